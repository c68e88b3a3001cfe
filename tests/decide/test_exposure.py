"""decide/exposure.py: who may read a shared verifier's Secrets, and when a run with them is refused."""

from dataclasses import replace

import pytest
from tests.decide import worlds

from taskfold.api.reasons import Reason
from taskfold.api.settings import SecretSettings, Settings
from taskfold.contract import loader
from taskfold.contract.dockerfile import ImageConfig
from taskfold.contract.folder import MemoryFolder
from taskfold.contract.images import RecordedImage
from taskfold.decide import exposure, taskrun
from taskfold.decide.world import Admission

SECRETS = {"secretsFrom": [{"name": "judge"}]}
KEYED = {
    "verifier": {"env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "judge", "key": "k"}}}]},
}
ADMISSION = Admission(worlds.TASK_DIGEST, worlds.TASK)
STRICT = Settings(secrets=SecretSettings(refuse_with_shared_verification=True))
AGENT, VERIFIER = 'agent.user = "app"', 'verifier.user = "judge"'


def script(**more):
    return {"script": {"run": "x", **more}}


def on_record(user):
    return RecordedImage("i", "sha256:" + "9" * 64, ImageConfig({}, "", user))


def warned(*lines, agent=None, user=None, **spec):
    run = worlds.run(worlds.running(), **({"agent": agent} if agent else {}), **(spec or SECRETS))
    recorded = on_record(user) if user is not None else None
    return exposure.warnings(run, worlds.task(*lines), recorded, Settings())


EXPOSED = {
    "nobody says who": ({}, (), "both are the image's user"),
    "the verifier alone is somebody": ({}, (VERIFIER,), "it is the image's user, which may be root"),
    "root by number": ({}, ("agent.user = 0", VERIFIER), "it is root"),
    "root by name": ({}, ('agent.user = "root"', VERIFIER), "it is root"),
    "the script's user": ({"agent": script(user=0)}, (AGENT, VERIFIER), "it is root"),
    "an installation": ({"agent": script(install="get it")}, (AGENT, VERIFIER), "its installation runs as root"),
    "the same name": ({}, (AGENT, 'verifier.user = "app"'), "both are the same user"),
    "an image on record that is root": ({"user": ""}, (VERIFIER,), "it is root"),
    "an image on record": ({"user": "1000"}, (), "both are the same user"),
    "somebody outside": ({"agent": {"external": {}}}, (AGENT, VERIFIER), "by exec is root"),
    "one user for all": ({"security": {"profile": "restricted"}, **SECRETS}, (AGENT,), "one user for both"),
    "a key of a Secret": (KEYED, (), "both are the image's user"),
}


@pytest.mark.parametrize(("given", "lines", "why"), EXPOSED.values(), ids=EXPOSED)
def test_where_the_agent_may_read_them_the_run_says_so(given, lines, why):
    (note,) = warned(*lines, **given)
    assert why in note
    assert note.startswith("shared verification with Secrets")
    assert len(note) <= 500  # what a status holds of a warning


SAFE = {
    "two users": ({}, (AGENT, VERIFIER)),
    "the agent is somebody, the verifier root": ({}, (AGENT,)),
    "the script's user": ({"agent": script(user="worker")}, (VERIFIER,)),
    "an image on record": ({"user": "app"}, (VERIFIER,)),
    "nothing runs": ({"agent": worlds.NOP}, ()),
    "no Secret": ({"verifier": {"env": [{"name": "A", "value": "b"}]}}, ()),
    "a Secret for the agent": ({"environmentFrom": [{"secretRef": {"name": "s"}}]}, ()),
}


@pytest.mark.parametrize(("given", "lines"), SAFE.values(), ids=SAFE)
def test_where_it_may_not_nothing_is_said(given, lines):
    assert warned(*lines, **given) == []


@pytest.mark.parametrize(
    ("users", "met"),
    [(("a", "a", "b", "c"), True), (("a", "b", "c", "a"), True), (("a", "b", "b", "c"), False)],
    ids=["of the same step", "of an earlier one", "of a later one"],
)
def test_an_agent_of_an_earlier_step_is_met_again(users, met):
    """What it left in the sandbox still lives there."""
    first, judge, second, other = users
    toml = f"""environment.docker_image = "i"
[[steps]]
name = "one"
agent.user = "{first}"
verifier.user = "{judge}"
[[steps]]
name = "two"
agent.user = "{second}"
verifier.user = "{other}"
"""
    paths = [f"steps/{step}/{path}" for step in ("one", "two") for path in ("instruction.md", "tests/test.sh")]
    task = loader.load(
        MemoryFolder({"task.toml": (toml.encode(), False), **dict.fromkeys(paths, (b"x", False))}), task_id="t"
    )
    found = exposure.warnings(worlds.run(worlds.running(), **SECRETS), task, None, Settings())
    assert bool(found) is met


@pytest.mark.parametrize(("spec", "field"), [(SECRETS, "spec.secretsFrom"), (KEYED, "spec.verifier.env")])
def test_an_operator_may_refuse_them(spec, field):
    world = replace(worlds.world(None, admission=ADMISSION, settings=STRICT), run=worlds.run(**spec))
    plan = taskrun.decide(world)
    assert worlds.reason_of(plan) is Reason.SECRETS_EXPOSED
    failure = worlds.failure_of(plan)
    assert (failure.terminal, field in failure.message) == (True, True)
    assert "settings.secrets.refuseWithSharedVerification" in failure.message
    assert plan.effects == ()


def test_it_refuses_no_run_without_them():
    run = worlds.run(worlds.running(), environmentFrom=[{"secretRef": {"name": "s"}}])
    assert exposure.refusal(run, worlds.TASK, STRICT) is None
    assert exposure.refusal(worlds.run(worlds.running(), **SECRETS), worlds.TASK, Settings()) is None


def test_the_warning_stands_in_the_status_from_the_start():
    plan = taskrun.decide(worlds.world(None, admission=ADMISSION, **SECRETS))
    assert plan.status is not None
    assert [note for note in plan.status.warnings if "shared verification with Secrets" in note]
