"""engine/networks.py: what the restriction of a sandbox rests on, read when it counts."""

from dataclasses import replace
from typing import Any

import pytest
from tests.decide import restricted, worlds
from tests.engine import parts

from taskfold.api import names
from taskfold.build import restriction
from taskfold.contract.network import NO_NETWORK, PUBLIC
from taskfold.effects import client as api
from taskfold.engine.networks import Networks

OWN = names.network(worlds.UID)
POD = replace(worlds.ready(), labels=restriction.labels(NO_NETWORK, worlds.UID))


@pytest.fixture
def operator(tmp_path):
    return parts.Operator(tmp_path, network={"canary": {"namespace": "taskfold"}})


async def found(operator: Any, pod: Any = POD, known: Any = None, **more: Any) -> Any:
    return await Networks(operator.parts).world(NO_NETWORK, "team", worlds.UID, known, pod=pod, **more)


def policy(operator: Any, name: str = OWN, **spec: Any) -> api.Json:
    own = restriction.policy_spec(NO_NETWORK, worlds.UID, operator.settings.network)
    return operator.client.put(api.NETWORKPOLICIES, {"metadata": {"name": name}, "spec": {**own, **spec}})


async def test_without_a_restriction_nothing_is_asked(operator):
    assert await Networks(operator.parts).world(PUBLIC, "team", worlds.UID, None, pod=POD) is None
    assert operator.client.calls == []


async def test_that_its_policy_is_gone_is_the_api_servers_word(operator):
    policy(operator)
    assert (await found(operator)).intact is True, "no watch has told of it yet"
    operator.watch.policies.clear()
    operator.client.objects.clear()
    assert (await found(operator)).intact is False


async def test_a_policy_that_was_changed_is_not_intact(operator):
    operator.watch.see_policy(policy(operator))
    assert (await found(operator)).intact is True
    operator.watch.see_policy(policy(operator, egress=[{}]))
    assert (await found(operator)).intact is False


async def test_before_there_is_a_pod_there_need_be_no_policy(operator):
    assert (await found(operator, pod=None)).intact is None


@pytest.mark.parametrize("name", ["allow-all", names.gateway(worlds.UID)], ids=["a plain name", "a name of ours"])
async def test_a_wider_policy_counts_whatever_its_name(operator, name):
    operator.watch.see_policy(policy(operator))
    operator.watch.see_policy(policy(operator, name, egress=[{}]))
    assert (await found(operator)).wider == (name,)


async def test_canaries_are_asked_for_when_they_count(operator):
    asked = f"list pods/taskfold {operator.settings.network.canary.selector}"
    operator.watch.see_policy(policy(operator))
    await found(operator, pod=None)
    await found(operator)
    assert operator.client.calls.count(asked) == 2, "before the pod, and for its proof"
    await found(operator, pod=replace(worlds.starting(), labels=POD.labels))
    await found(operator, known=restricted.proven())
    await found(operator, place=worlds.PREFIX)
    assert operator.client.calls.count(asked) == 2


async def test_at_the_end_it_is_asked_whether_anything_is_left(operator):
    assert (await found(operator, pod=None, place=worlds.PREFIX)).exists is False
    policy(operator)
    assert (await found(operator, pod=None, place=worlds.PREFIX)).exists is True
