"""engine/restricting.py and network_sweep.py: what a restriction consists of, its order, and what is left of it."""

from typing import Any

import pytest
from tests.decide import worlds
from tests.engine import parts

from taskfold.api import names
from taskfold.contract.network import NO_NETWORK, Network, NetworkMode
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine import outcome
from taskfold.engine.network_sweep import NetworkSweeper
from taskfold.engine.restricting import Restricting, Sandbox

SETTINGS: dict[str, Any] = {"network": {"canary": {"namespace": "taskfold"}}}
ALLOWLIST = Network(NetworkMode.ALLOWLIST, ("192.0.2.0/24", "allowed.test"))
RUN = worlds.run(worlds.queued())
OWN, GATEWAY, GATEWAY_POD = names.network(worlds.UID), names.gateway(worlds.UID), names.gateway_pod(worlds.UID, 1)
ALLOW_ALL = {"metadata": {"name": "allow-all"}, "spec": {"podSelector": {}, "egress": [{}], "policyTypes": ["Egress"]}}


@pytest.fixture
def operator(tmp_path):
    found = parts.Operator(tmp_path, **SETTINGS)
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.244.0.9"}
    found.client.put(api.PODS, {"metadata": {"name": "canary", "namespace": "taskfold"}, "spec": {}, "status": ready})
    return found


def sandbox(network: Network = ALLOWLIST) -> Sandbox:
    return Sandbox(RUN, RUN, 1, network, 60.0)


def services_have_addresses(operator: Any) -> None:
    """As the API server gives them."""
    put = operator.client.put

    def addressed(resource: api.Resource, obj: Any) -> api.Json:
        if resource == api.SERVICES:
            obj = {**obj, "spec": {**obj["spec"], "clusterIP": "10.96.0.7"}}
        return put(resource, obj)

    operator.client.put = addressed


def made(operator: Any) -> list[str]:
    return [call.removeprefix("create ") for call in operator.client.calls if call.startswith("create ")]


async def test_its_own_policy_comes_first_and_of_nobody_else_a_thing(operator):
    services_have_addresses(operator)
    found = await Restricting(operator.parts).prepare(sandbox(), 1)
    policies = [f"networkpolicies/{OWN}", f"services/{GATEWAY}", f"networkpolicies/{GATEWAY}", f"pods/{GATEWAY_POD}"]
    assert made(operator) == policies
    assert (found.gateway, dict(found.canaries)) == ("10.96.0.7", {"uid-pods-canary": "10.244.0.9"})
    spec = operator.client.find(api.NETWORKPOLICIES, OWN)["spec"]
    assert spec["podSelector"] == {"matchLabels": found.labels}
    assert [list(each["to"][0]) for each in spec["egress"]] == [["podSelector"], ["ipBlock"]]


async def test_no_network_is_one_object(operator):
    await Restricting(operator.parts).prepare(sandbox(NO_NETWORK), 1)
    assert made(operator) == [f"networkpolicies/{OWN}"]
    assert "egress" not in operator.client.find(api.NETWORKPOLICIES, OWN)["spec"]


async def test_what_is_there_already_is_adopted_and_what_is_somebody_elses_is_not(operator):
    services_have_addresses(operator)
    restricting = Restricting(operator.parts)
    await restricting.prepare(sandbox(), 1)
    again = await restricting.prepare(sandbox(), 1)
    assert again.gateway == "10.96.0.7"
    operator.client.find(api.SERVICES, GATEWAY)["metadata"]["ownerReferences"][0]["uid"] = "another"
    with pytest.raises(outcome.Waiting, match="belongs to somebody else"):
        await restricting.prepare(sandbox(), 1)


async def test_a_policy_of_its_name_that_says_something_else_is_not_adopted(operator):
    restricting = Restricting(operator.parts)
    await restricting.prepare(sandbox(NO_NETWORK), 1)
    operator.client.find(api.NETWORKPOLICIES, OWN)["spec"]["egress"] = [{}]
    with pytest.raises(outcome.Waiting, match="belongs to somebody else"):
        await restricting.prepare(sandbox(NO_NETWORK), 1)


async def test_a_policy_that_no_watch_has_told_of_yet_counts(operator):
    operator.client.put(api.NETWORKPOLICIES, ALLOW_ALL)
    with pytest.raises(outcome.Waiting, match="allow-all"):
        await Restricting(operator.parts).prepare(sandbox(), 1)
    assert made(operator) == []
    assert ("team", "allow-all") in operator.watch.policies


async def test_without_a_canary_nothing_is_made(operator):
    operator.client.objects.clear()
    with pytest.raises(outcome.Waiting, match="no canary"):
        await Restricting(operator.parts).prepare(sandbox(), 1)
    assert made(operator) == []


async def test_a_pod_that_is_refused_leaves_no_gateway_to_wait_for_it(operator):
    services_have_addresses(operator)
    restricting = Restricting(operator.parts)
    await restricting.prepare(sandbox(), 1)
    await restricting.withdraw(sandbox(), 1)
    assert ("pods", "team", GATEWAY_POD) not in operator.client.objects


async def test_a_quota_that_has_no_room_for_the_gateway_is_waited_for(operator):
    services_have_addresses(operator)
    operator.client.failures[f"create pods/{GATEWAY_POD}"] = errors.Forbidden("exceeded quota: few", status=403)
    with pytest.raises(outcome.Waiting) as waiting:
        await Restricting(operator.parts).prepare(sandbox(), 1)
    assert waiting.value.reason == "QuotaExceeded"


# -- what is left ----------------------------------------------------------------------------------------------------


async def late(operator: Any, network: Network = ALLOWLIST) -> None:
    """An operator that was stopped makes a restriction, whatever became of its run."""
    services_have_addresses(operator)
    await Restricting(operator.parts).prepare(sandbox(network), 1)
    operator.client.calls.clear()


def left(operator: Any) -> list[str]:
    return sorted(name for _, _, name in operator.client.objects if worlds.UID in name)


async def test_of_a_complete_run_nothing_stays(operator):
    await late(operator)
    operator.client.put(api.TASKRUNS, worlds.run(worlds.complete()).wire())
    await NetworkSweeper(operator.parts).sweep("team")
    assert left(operator) == []


async def test_of_a_run_that_is_gone_nothing_stays(operator):
    await late(operator)
    await NetworkSweeper(operator.parts).sweep(None)
    assert left(operator) == []


@pytest.mark.parametrize(
    ("status", "spec"),
    [(worlds.running(), {}), (worlds.complete(), {"podRetention": "Always"})],
    ids=["at work", "kept"],
)
async def test_what_its_run_needs_or_keeps_stays(operator, status, spec):
    await late(operator)
    operator.client.put(api.TASKRUNS, worlds.run(status, **spec).wire())
    await NetworkSweeper(operator.parts).sweep("team")
    assert left(operator) == sorted([OWN, GATEWAY, GATEWAY, GATEWAY_POD])


async def test_other_namespaces_and_policies_of_others_are_left_alone(operator):
    await late(operator)
    await NetworkSweeper(operator.parts).sweep("other")
    assert OWN in left(operator)
    operator.watch.see_policy(operator.client.put(api.NETWORKPOLICIES, ALLOW_ALL))
    await NetworkSweeper(operator.parts).sweep("team")
    assert ("networkpolicies", "team", "allow-all") in operator.client.objects
