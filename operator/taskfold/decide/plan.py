"""What a decision can ask for: effects in order, the wished status, and when to look again.

Guarantees: effects are data; each is idempotent when it is applied, so a plan may be applied twice or by two
operators. They are applied in order, the first failure stops, and the status is written last.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taskfold.api.reasons import Reason
from taskfold.api.status import Mode, Status
from taskfold.contract.images import RecordedImage
from taskfold.decide.world import Signal


@dataclass(frozen=True)
class StoreSnapshot:
    """Keep the task folder under its digest; everything later reads this copy only (C25)."""

    digest: str


@dataclass(frozen=True)
class StoreRecordedImage:
    """Keep the image's configuration on record with the run: the registry's tag may move."""

    recorded: RecordedImage


@dataclass(frozen=True)
class CreatePod:
    """Create the sandbox of this try. `record`: an init container tells the image's own user."""

    name: str
    attempt: int
    try_number: int
    record: bool


@dataclass(frozen=True)
class CreateGateway:
    """Make the gateway's pod of this number, behind the address that the sandbox knows."""

    number: int


@dataclass(frozen=True)
class KeepRefusals:
    """Keep what the gateway told about what it refused. `place`: where to in the store."""

    place: str


@dataclass(frozen=True)
class DeleteNetwork:
    """Remove what the restriction of a sandbox consists of, now that there is no such sandbox."""


@dataclass(frozen=True)
class DeletePod:
    """Ask for the pod's deletion; its end is observed, not awaited."""

    name: str
    uid: str


@dataclass(frozen=True)
class StoreImageUser:
    """Remember under the image's id what its own user is."""

    reference: str
    image_id: str
    record: str


@dataclass(frozen=True)
class RunPhase:
    """Start the phase of this nonce, or attach to it. The outcome is found by its nonce."""

    phase: str
    nonce: str
    signal: Signal = Signal.NONE


@dataclass(frozen=True)
class RestPhase:
    """The phase goes on by itself: look again later, at the pace that the signal allows. Nothing is sent."""

    nonce: str
    started_at: str
    signal: Signal


@dataclass(frozen=True)
class AddWaiter:
    """Have a container of the pod wait for the end of this phase. Where that is refused, nothing is lost."""

    pod: str
    uid: str
    nonce: str


@dataclass(frozen=True)
class CreateVerifierRun:
    """Hand the pod over to a verification, of one step or of the whole task."""

    name: str
    attempt: int
    mode: Mode
    step: str | None = None


@dataclass(frozen=True)
class CancelVerifierRun:
    """Pass a cancellation on."""

    name: str


@dataclass(frozen=True)
class Collect:
    """Copy what the run leaves out of its pod into the store. `reachable`: there is a pod to copy from."""

    prefix: str
    reachable: bool


@dataclass(frozen=True)
class Export:
    """Copy out of the agent's sandbox what its separate verification needs: transcript, response, artifacts, logs.

    `place`: where to in the store. `logs`: the sandbox is stopped next, its logs are to be kept now.
    """

    place: str
    logs: bool


@dataclass(frozen=True)
class KeepLogs:
    """Copy what a separate verifier leaves out of its own sandbox. `reachable`: there is one to copy from."""

    place: str
    reachable: bool


@dataclass(frozen=True)
class StoreResponse:
    """Keep the agent's final response: a Responses API response."""

    prefix: str
    response: Mapping[str, Any]


@dataclass(frozen=True)
class StoreRewards:
    """Keep every reward of a verdict that has more of them than a status can hold (C8)."""

    prefix: str
    rewards: Mapping[str, float]


@dataclass(frozen=True)
class StoreRow:
    """Keep the result document of this attempt, with what is to be said about its files, and how long they took."""

    prefix: str
    notes: tuple[str, ...] = ()
    collect_seconds: float | None = None


@dataclass(frozen=True)
class ForgetPhases:
    """Drop what is remembered of these phases."""

    nonces: tuple[str, ...]


@dataclass(frozen=True)
class DeleteRun:
    """The time of a finished run, or of a verification that stands alone, is over."""

    uid: str


Effect = (
    StoreSnapshot
    | StoreRecordedImage
    | CreatePod
    | CreateGateway
    | KeepRefusals
    | DeleteNetwork
    | DeletePod
    | StoreImageUser
    | RunPhase
    | RestPhase
    | AddWaiter
    | CreateVerifierRun
    | CancelVerifierRun
    | Collect
    | Export
    | KeepLogs
    | StoreResponse
    | StoreRewards
    | StoreRow
    | ForgetPhases
    | DeleteRun
)


@dataclass(frozen=True)
class Note:
    """What the conditions say about this moment: a reason of the closed enum and a sentence for people."""

    reason: Reason
    message: str = ""


@dataclass(frozen=True)
class Plan:
    """What to do now.

    `status`: the wished status without its conditions (None: as it is). `note`: what its conditions shall say.
    `again`: seconds until the next look even if nothing happens (None: only when something does).
    """

    status: Status | None = None
    note: Note | None = None
    effects: tuple[Effect, ...] = ()
    again: float | None = None


NOTHING = Plan()
