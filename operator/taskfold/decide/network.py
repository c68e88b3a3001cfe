"""Whether a restricted sandbox is restricted: before its pod is made, once it runs, and for as long as it works.

Guarantees: no pod is made while nothing could prove its restriction, or while a policy of somebody else allows more.
Nothing is sent to a sandbox before the proof of this very pod stands in the status: its probe was blocked by canaries
that were ready before and are the same and ready after. A policy that goes, changes, or comes beside it ends the work.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from taskfold.api import names
from taskfold.api.reasons import Reason
from taskfold.api.settings import LimitSettings
from taskfold.api.status import NetworkStatus, Status
from taskfold.contract.network import Network
from taskfold.decide import pod as pods
from taskfold.decide import probes
from taskfold.decide import status as to
from taskfold.decide.losses import Cause, Loss
from taskfold.decide.plan import CreateGateway, DeleteNetwork, DeletePod, KeepRefusals, Note, Plan
from taskfold.decide.pod import PodView, Standing
from taskfold.decide.world import NetworkWorld
from taskfold.protocol import probe as protocol

S = TypeVar("S", bound=Status)
AWAY_LOOK_SECONDS = 5.0


class Mechanism(StrEnum):
    """What enforces a restriction."""

    POLICY = "NetworkPolicy"
    GATEWAY = "NetworkPolicy+Gateway"


def mechanism(restriction: Network) -> Mechanism:
    """What enforces this one: names need a gateway, addresses and nothing at all do not."""
    return Mechanism.GATEWAY if restriction.names else Mechanism.POLICY


# -- before there is a pod -------------------------------------------------------------------------------------------


def conflict(found: NetworkWorld | None) -> str | None:
    """Why no pod can have this restriction in its namespace; None: nothing is known against it."""
    if found is None or not found.wider:
        return None
    return (
        f"NetworkPolicy {', '.join(found.wider)} selects the restricted pod too and allows what its restriction does "
        "not, and policies add up. Have it leave out pods with the label taskfold.dev/network "
        "(matchExpressions, DoesNotExist)."
    )


def unprovable(found: NetworkWorld | None) -> Note | None:
    """What is waited for before there may be a pod; None: nothing."""
    if found is None or found.canaries:
        return None
    text = (
        "no canary is ready in the operator's namespace: what blocks a connection could not be told from a server that "
        "is not there (`kubectl get pods -A -l app.kubernetes.io/component=canary`)"
    )
    return Note(Reason.CANARY_UNAVAILABLE, text)


# -- the pod runs ----------------------------------------------------------------------------------------------------


def proven(known: NetworkStatus | None, pod: PodView) -> bool:
    """Whether the restriction is proven in this pod."""
    return known is not None and known.pod_uid == pod.uid and known.enforced is not None


def proof(found: NetworkWorld, known: NetworkStatus | None, pod: PodView, now: str) -> NetworkStatus | Loss:
    """The proof for a pod whose probe has ended well, to be written before anything is sent; or what it lacks."""
    container = pod.containers.get(probes.PROBE)
    report = protocol.parse(container.message) if container is not None and container.exit_code == 0 else None
    if report is None or not report.enforced:
        return Loss(Cause.NOT_PROVEN, "the pod runs, and its probe has left no proof")
    if found.restriction.names and not report.gateway:
        return Loss(Cause.NO_GATEWAY, "the pod runs, and its probe did not see the gateway")
    tried = frozenset(filter(None, pod.annotations.get(names.CANARIES, "").split(",")))
    if not tried & found.canaries:
        text = "the probe was blocked, but no canary that it tried is ready any more: they may have been dead"
        return Loss(Cause.NOT_PROVEN, text)
    before = known if known is not None else NetworkStatus()
    return before.model_copy(
        update={
            "mode": found.restriction.mode.value,
            "enforced": True,
            "mechanism": mechanism(found.restriction).value,
            "pod_uid": pod.uid,
            "proven_time": now,
            "probe_seconds": report.seconds,
            "attempts": report.attempts,
            "opened": report.opened,
        }
    )


def widened(found: NetworkWorld | None) -> Loss | None:
    """The restriction is not what it was made to be any more; None: it is, as far as can be told."""
    if found is None:
        return None
    if found.wider:
        text = f"NetworkPolicy {', '.join(found.wider)} came beside the restricted pod's own and allows more"
        return Loss(Cause.WIDENED, text)
    if found.intact is False:
        return Loss(Cause.WIDENED, "the restricted pod's own NetworkPolicy is gone, or is not as it was made")
    return None


@dataclass(frozen=True)
class Change:
    """What is to be written before anything else. `make`: and the gateway's pod of its number is to be made.

    `drop`: this one is to be deleted first.
    """

    status: NetworkStatus
    make: bool = False
    drop: PodView | None = None

    @property
    def effects(self) -> tuple[CreateGateway | DeletePod, ...]:
        if self.drop is not None:
            return (DeletePod(self.drop.name, self.drop.uid),)
        return (CreateGateway(number(self.status)),) if self.make else ()


def look(
    found: NetworkWorld | None, known: NetworkStatus | None, pod: PodView, now: str, limits: LimitSettings
) -> Loss | Change | None:
    """What the restriction of this pod needs before anything else happens in it; None: nothing, or there is none."""
    if found is None:
        return None
    lost = widened(found)
    if lost is not None or pods.standing(pod) is not Standing.READY:
        return lost
    if known is None or not proven(known, pod):
        shown = proof(found, known, pod, now)
        return shown if isinstance(shown, Loss) else Change(shown)
    return mending(found, known, now, limits)


def watched(plan: Plan, known: NetworkStatus | None) -> Plan:
    """The same plan, looked at again soon while the gateway is away: nobody else may tell that it stays so."""
    if known is None or known.gateway_lost_time is None:
        return plan
    return replace(plan, again=AWAY_LOOK_SECONDS if plan.again is None else min(plan.again, AWAY_LOOK_SECONDS))


def disproved(status: S, lost: Loss, now: datetime) -> S:
    """The status of a run that this loss ended."""
    if status.network is None or lost.cause is not Cause.WIDENED:
        return status
    return to.restricted(status, status.network.model_copy(update={"enforced": False}), now)


# -- the gateway -----------------------------------------------------------------------------------------------------


def mending(found: NetworkWorld, known: NetworkStatus, now: str, limits: LimitSettings) -> Change | Loss | None:
    """What is to be done for the gateway; None: it serves, or there is none. A loss: it was away for too long, and who
    works behind it cannot be held to account for that.

    A pod that ended, or is on its way out, is followed by one of the next number behind the same address. So is one
    whose kubelet waits before it starts a container anew: it would wait for longer each time.
    """
    if not found.restriction.names:
        return None
    pod = found.gateway
    if pod is not None and pod.ready and not pod.deleting:
        return Change(known.model_copy(update={"gateway_lost_time": None})) if known.gateway_lost_time else None
    if known.gateway_lost_time is None:
        return Change(known.model_copy(update={"gateway_lost_time": now}))
    away = to.seconds_between(known.gateway_lost_time, now) or 0.0
    if away > limits.gateway_seconds:
        return Loss(Cause.NO_GATEWAY, f"the gateway of the allowlist has not served for {away:.0f} s")
    if pod is None:
        return Change(known, make=True)
    waits = any(each.waiting_reason == "CrashLoopBackOff" for each in pod.containers.values())
    if pod.deleting or pod.phase in pods.ENDED_PHASES or waits:
        following = known.model_copy(update={"gateways": number(known) + 1})
        return Change(following, drop=pod if waits and not pod.deleting else None)
    return None


def leave(found: NetworkWorld | None, place: str | None, *, retained: bool) -> KeepRefusals | DeleteNetwork | None:
    """What is to be done with a restriction whose sandbox is over; None: nothing. `place`: in the store.

    `retained`: the sandbox stays, and with it what restricts it.
    """
    if found is None or not found.exists:
        return None
    if found.restriction.names and found.kept is None and place is not None:
        return KeepRefusals(place)
    return None if retained else DeleteNetwork()


def refused(found: NetworkWorld | None, known: NetworkStatus | None) -> NetworkStatus | None:
    """What is known of the restriction, with the count of what the gateway refused."""
    count = found.kept.get("refused") if found is not None and found.kept is not None else None
    if known is None or type(count) is not int:
        return known
    return known.model_copy(update={"refused": count})


def number(known: NetworkStatus | None) -> int:
    """Of the gateway's pod, from 1."""
    return (known.gateways if known is not None else None) or 1
