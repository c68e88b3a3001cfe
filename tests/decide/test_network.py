"""decide/network.py by way of both deciders: before a restricted pod, once it runs, while it works, and after."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.decide import apart, restricted, worlds

from taskfold.api import conditions
from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.settings import Settings
from taskfold.api.taskrun import RunNetwork
from taskfold.contract.network import NO_NETWORK
from taskfold.decide import plan as plans
from taskfold.decide import taskrun, verifierrun
from taskfold.decide.world import Admission

CREATE = plans.CreatePod(worlds.POD, 1, 1, record=False)
BOTH = pytest.mark.parametrize("restriction", [NO_NETWORK, restricted.ALLOWLIST], ids=["no-network", "allowlist"])


def decide(status, **changes):
    return taskrun.decide(worlds.world(status, **changes))


# -- admission -------------------------------------------------------------------------------------------------------

PROVABLE = Settings.model_validate({"network": {"canary": {"namespace": "taskfold"}}})
NOBODY = {"agent": {"mode": "no-network"}}
JUDGED = worlds.task(
    'verifier = { environment_mode = "separate", network_mode = "allowlist", allowed_hosts = ["judge.test"] }'
)


def admitted(task=worlds.TASK, *, settings=worlds.SETTINGS, network=None):
    """`network`: of the run's spec."""
    world = worlds.world(admission=Admission(worlds.TASK_DIGEST, task), settings=settings)
    spec = world.run.spec.model_copy(update={"network": RunNetwork.model_validate(network) if network else None})
    return taskrun.decide(replace(world, run=world.run.model_copy(update={"spec": spec})))


@pytest.mark.parametrize(
    ("task", "network"), [(worlds.TASK, NOBODY), (JUDGED, None)], ids=["the run's wish", "the task's verifier"]
)
def test_an_operator_that_could_prove_nothing_refuses_before_anybody_works(task, network):
    plan = admitted(task, network=network)
    failure = worlds.failure_of(plan)
    assert (failure.reason, failure.terminal) == (Reason.CANARY_UNAVAILABLE, True)
    assert "network.canary.enabled=true" in failure.message
    assert worlds.phase_of(admitted(task, network=network, settings=PROVABLE)) == Phase.QUEUED


def test_a_host_that_is_none_is_named_with_the_field():
    wrong = {"agent": {"mode": "allowlist", "allowedHosts": ["good.test", "https://bad.test", "a.*.b"]}}
    failure = worlds.failure_of(admitted(settings=PROVABLE, network=wrong))
    assert (failure.reason, failure.terminal) == (Reason.INVALID_SPEC, True)
    assert "spec.network.agent" in failure.message
    assert "https://bad.test" in failure.message
    assert "a.*.b" in failure.message


# -- before there is a pod -------------------------------------------------------------------------------------------


def test_the_pod_is_made_when_its_proof_is_possible():
    plan = decide(worlds.queued(), network=restricted.found(intact=None))
    assert plan.effects == (CREATE,)


def test_a_policy_of_others_that_allows_more_ends_the_run_before_its_pod():
    plan = decide(worlds.queued(), network=restricted.found(wider=("allow-all", "other")))
    failure = worlds.failure_of(plan)
    assert (failure.reason, worlds.phase_of(plan), plan.effects) == (Reason.NETWORK_POLICY_CONFLICT, Phase.FAILED, ())
    assert "NetworkPolicy allow-all, other" in failure.message
    assert "taskfold.dev/network" in failure.message


def test_without_canaries_the_run_waits():
    plan = decide(worlds.queued(), network=restricted.found(canaries=frozenset()))
    assert (worlds.reason_of(plan), plan.effects) == (Reason.CANARY_UNAVAILABLE, ())
    assert plan.again is not None


def test_without_canaries_it_does_not_wait_for_ever():
    limit = worlds.SETTINGS.limits.queue_seconds
    plan = decide(worlds.queued(since=limit + 1), network=restricted.found(canaries=frozenset()))
    assert (worlds.failure_of(plan).reason, worlds.phase_of(plan)) == (Reason.CANARY_UNAVAILABLE, Phase.FAILED)


def test_a_verifier_without_canaries_waits_and_is_masked_with_its_artifacts_kept():
    found = restricted.found(canaries=frozenset())
    waits = verifierrun.decide(apart.world(apart.queued(), pod=None, own_network=found))
    assert worlds.reason_of(waits) == Reason.CANARY_UNAVAILABLE
    late = worlds.in_a_while(worlds.SETTINGS.limits.queue_seconds)
    over = verifierrun.decide(apart.world(apart.queued(), pod=None, own_network=found, now=late))
    failure = worlds.failure_of(over)
    assert (failure.reason, worlds.phase_of(over)) == (Reason.CANARY_UNAVAILABLE, Phase.MASKED)
    assert "taskfold regrade" in failure.message


# -- the pod runs ----------------------------------------------------------------------------------------------------


@BOTH
def test_the_proof_stands_in_the_status_before_anything_is_sent(restriction):
    message = restricted.line(gateway=True if restriction.names else None)
    found = restricted.found(restriction)
    plan = decide(worlds.placed(), pod=restricted.probed(message), network=found)
    assert plan.status is not None
    assert (plan.effects, plan.again) == ((), 0)
    network = plan.status.network
    assert network == restricted.proven(restriction, proven_time=worlds.ago(0))
    assert conditions.holds(plan.status.conditions, conditions.ConditionType.NETWORK_ENFORCED)
    then = decide(worlds.placed(network=network), pod=restricted.probed(message), network=found)
    assert worlds.deeds(then) != ()


def test_the_proof_of_another_pod_is_none():
    known = restricted.proven(pod_uid="uid-pod-0")
    plan = decide(worlds.placed(network=known), pod=restricted.probed(restricted.line()), network=restricted.found())
    assert plan.status is not None
    assert plan.status.network is not None
    assert (plan.status.network.pod_uid, plan.effects) == (worlds.POD_UID, ())


def test_one_canary_that_is_still_the_same_is_enough():
    found = restricted.found(canaries=frozenset({restricted.CANARY, "uid-new"}))
    pod = restricted.probed(restricted.line(), canaries=f"uid-old,{restricted.CANARY}")
    plan = decide(worlds.placed(), pod=pod, network=found)
    assert plan.status is not None
    assert plan.status.network is not None


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{}",
        "null",
        "[]",
        restricted.line(enforced="true"),
        restricted.line(seconds="NaN"),
        restricted.line(attempts=-1.5),
        restricted.line(enforced=False),
        restricted.line(gateway=False),
    ],
)
def test_what_is_no_proof(message):
    """Of an allowlist, whose gateway must have answered too."""
    found = restricted.found(restricted.ALLOWLIST)
    plan = decide(worlds.placed(), pod=restricted.probed(message), network=found)
    assert (worlds.reason_of(plan), plan.effects) == (Reason.RETRYING, (plans.DeletePod(worlds.POD, worlds.POD_UID),))


# -- the gateway -----------------------------------------------------------------------------------------------------


def mended(known, gateway, **changes):
    found = restricted.found(restricted.ALLOWLIST, gateway=gateway)
    return decide(worlds.running(network=known), network=found, **changes)


def proven(**changes):
    return restricted.proven(restricted.ALLOWLIST, **changes)


def test_a_gateway_that_is_away_is_written_down_first_and_then_followed_by_another():
    gone = mended(proven(), None)
    assert gone.status is not None
    lost = gone.status.network
    assert (lost, gone.effects) == (proven(gateway_lost_time=worlds.ago(0)), ())
    again = mended(lost, None)
    assert again.effects == (plans.CreateGateway(1),)


@pytest.mark.parametrize(
    "pod",
    [restricted.gateway(ready=False, deleted_at=worlds.ago(0)), restricted.gateway(ready=False, phase="Failed")],
    ids=["deleted", "evicted"],
)
def test_one_that_ended_has_a_name_that_the_next_one_cannot_have(pod):
    plan = mended(proven(gateway_lost_time=worlds.ago(1)), pod)
    assert plan.status is not None
    assert plan.status.network is not None
    assert (plan.status.network.gateways, plan.effects) == (2, ())
    then = mended(plan.status.network, None)
    assert then.effects == (plans.CreateGateway(2),)


def test_one_whose_kubelet_waits_before_the_next_start_gives_way():
    back_off = replace(
        worlds.seen({"phase": "Running", "containerStatuses": [worlds.waits("CrashLoopBackOff", name="proxy")]}),
        name=restricted.GATEWAY,
        uid="uid-gateway-1",
    )
    plan = mended(proven(gateway_lost_time=worlds.ago(1)), back_off)
    assert plan.status is not None
    assert plan.status.network is not None
    assert plan.status.network.gateways == 2
    assert plan.effects == (plans.DeletePod(restricted.GATEWAY, "uid-gateway-1"),)


def test_one_that_starts_is_waited_for_and_looked_at_soon():
    plan = mended(proven(gateway_lost_time=worlds.ago(1), gateways=2), restricted.gateway(ready=False))
    assert plan.again is not None
    assert plan.again <= 5
    assert not any(isinstance(effect, plans.CreateGateway) for effect in plan.effects)


def test_one_that_serves_again_is_written_down():
    plan = mended(proven(gateway_lost_time=worlds.ago(1), gateways=2), restricted.gateway())
    assert plan.status is not None
    assert plan.status.network == proven(gateways=2)


def test_nobody_works_for_long_without_a_gateway():
    limit = worlds.SETTINGS.limits.gateway_seconds
    known = proven(gateway_lost_time=worlds.ago(limit - 1))
    assert mended(known, None).effects == (plans.CreateGateway(1),)
    late = mended(known, None, now=worlds.NOW + timedelta(seconds=2))
    assert (worlds.failure_of(late).reason, worlds.phase_of(late)) == (Reason.GATEWAY_UNAVAILABLE, Phase.MASKED)


# -- it ends ---------------------------------------------------------------------------------------------------------


def test_a_run_whose_restriction_was_widened_says_that_it_is_not_in_force():
    plan = decide(worlds.running(network=restricted.proven()), network=restricted.found(wider=("allow-all",)))
    assert plan.status is not None
    assert plan.status.network is not None
    assert plan.status.network.enforced is False
    condition = conditions.find(plan.status.conditions, conditions.ConditionType.NETWORK_ENFORCED)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", Reason.NETWORK_WIDENED)


def ending(found, **changes):
    status = worlds.ended(network=restricted.proven(found.restriction))
    fields = {"pod": None, "collected": {"error": ""}, "row_stored": True, "network": found}
    return decide(status, **(fields | changes))


def test_what_the_gateway_refused_is_kept_before_it_goes():
    found = restricted.found(restricted.ALLOWLIST)
    assert ending(found).effects == (plans.KeepRefusals(worlds.PREFIX),)
    kept = replace(found, kept={"refused": 3})
    assert ending(kept).effects == (plans.DeleteNetwork(),)
    over = ending(replace(kept, exists=False))
    assert over.status is not None
    assert over.status.network is not None
    assert (over.status.complete, over.status.network.refused) == (True, 3)


def test_the_restriction_of_a_pod_that_stays_stays():
    plan = ending(restricted.found(), pod=worlds.ready(), podRetention="Always")
    assert plan.status is not None
    assert plan.status.complete


def test_a_pod_goes_before_what_restricts_it():
    plan = ending(restricted.found(), pod=worlds.ready())
    assert plan.effects == (plans.DeletePod(worlds.POD, worlds.POD_UID),)
