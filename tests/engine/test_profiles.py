"""The profile of a run on its way into the pod, and the one user of a restricted pod on his way into the requests."""

import pytest
from tests.decide import worlds
from tests.engine.parts import RUN, Operator

from taskfold.engine import observe
from taskfold.engine.reconcile import Reconciler
from taskfold.protocol.phase import User


@pytest.fixture
def operator(tmp_path):
    return Operator(tmp_path)


async def steps(operator, count):
    for _ in range(count):
        await Reconciler(operator.parts).reconcile(RUN)
        operator.see()


@pytest.mark.parametrize(
    ("security", "pod"),
    [
        ({"profile": "root"}, {}),
        ({"profile": "userns"}, {"hostUsers": False}),
        ({"profile": "restricted", "runAsUser": 7}, {}),
    ],
)
async def test_the_pod_has_the_runs_profile(operator, security, pod):
    operator.create(security=security)
    await steps(operator, 2)
    spec = operator.pod["spec"]
    assert {name: spec[name] for name in ("hostUsers",) if name in spec} == pod
    restricted = security["profile"] == "restricted"
    assert spec["containers"][0]["securityContext"]["runAsNonRoot"] is restricted
    assert bool(spec["initContainers"]) is not restricted, "whoever is chosen need not be recorded"


async def test_the_one_user_of_a_restricted_pod_is_who_its_image_starts_as(operator):
    operator.create(security={"profile": "restricted", "runAsUser": 7})
    await operator.parts.image_users.put((worlds.runs()["imageID"], worlds.TASK.image.reference), worlds.ROOT)
    await steps(operator, 2)
    world = await observe.Observer(operator.parts).run(RUN)
    assert world is not None
    assert world.image_user == User(uid=7)
