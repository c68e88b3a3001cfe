"""decide/profile.py: whom a pod runs as, and what is refused before there is one."""

import pytest
from tests.decide import worlds

from taskfold.api.phases import Phase
from taskfold.api.reasons import Reason
from taskfold.api.settings import Settings
from taskfold.api.status import Stage
from taskfold.api.taskrun import SecurityProfile
from taskfold.contract.dockerfile import ImageConfig
from taskfold.contract.images import RecordedImage
from taskfold.decide import profile, taskrun
from taskfold.decide.profile import Confinement
from taskfold.decide.world import Admission, PhaseRefused

RESTRICTED, USERNS = SecurityProfile.RESTRICTED, SecurityProfile.USERNS


def settings(**pod):
    return Settings.model_validate({"pod": pod})


def recorded(user):
    return RecordedImage("base:1", "sha256:" + "9" * 64, ImageConfig(user=user))


def task(agent=None, verifier=None, hook=None):
    lines = [f"agent.user = {agent}" if agent else "", f"verifier.user = {verifier}" if verifier else ""]
    lines.append(f'[[verifier.collect]]\ncommand = "true"\nuser = {hook}' if hook else "")
    return worlds.task(*filter(None, lines))


def restricted(**more):
    return {"security": {"profile": "restricted", **more}}


OF = {
    "the operator's default": ({}, settings(), None, None, Confinement(SecurityProfile.ROOT)),
    "another default": ({}, settings(securityProfile="userns"), None, None, Confinement(USERNS)),
    "the run's word wins": (
        {"security": {"profile": "root"}},
        settings(securityProfile="restricted"),
        None,
        None,
        Confinement(SecurityProfile.ROOT),
    ),
    "the image's own user": (restricted(), settings(), None, None, Confinement(RESTRICTED)),
    "the image's on record": (restricted(), settings(), None, "12:34", Confinement(RESTRICTED, 12, 34)),
    "the operator's": (restricted(), settings(restrictedUid=7), None, "12:34", Confinement(RESTRICTED, 7)),
    "the agent's": (restricted(), settings(restrictedUid=7), "8", "12:34", Confinement(RESTRICTED, 8)),
    "the run's": (restricted(runAsUser=9), settings(restrictedUid=7), "8", "1", Confinement(RESTRICTED, 9)),
    "a name is no number": (restricted(), settings(restrictedUid=7), '"app"', None, Confinement(RESTRICTED, 7)),
    "not in another profile": ({}, settings(restrictedUid=7), "8", "12:34", Confinement(SecurityProfile.ROOT)),
}


@pytest.mark.parametrize(("spec", "own", "agent", "image", "expected"), OF.values(), ids=OF)
def test_the_profile_and_the_one_user_of_a_restricted_pod(spec, own, agent, image, expected):
    image = recorded(image) if image is not None else None
    assert profile.of(worlds.run(**spec), task(agent), own, image) == expected


SCRIPT = {"script": {"run": "true"}}
REFUSED = {
    "userns: a large number": ({"security": {"profile": "userns"}}, task("65536"), None, "[agent].user is 65536"),
    "userns: a large number of test.sh": ({"security": {"profile": "userns"}}, task(None, "70000"), None, "[verifier]"),
    "userns: a large number of a hook": (
        {"security": {"profile": "userns"}},
        task(None, None, "70000"),
        None,
        "collect",
    ),
    "userns: a large number of the image": ({"security": {"profile": "userns"}}, task(), "1:65536", "the group"),
    "userns: a user of restricted": ({"security": {"runAsUser": 5}}, task(), None, "belongs to the profile restricted"),
    "root: folders of restricted": ({"security": {"emptyDirs": ["/a"]}}, task(), None, "emptyDirs belongs"),
    "restricted: root": (restricted(), task("0", "0"), None, "[agent].user is 0"),
    "restricted: two users": (restricted(), task("5", "6"), None, "[verifier].user is 6"),
    "restricted: another than the run's": (restricted(runAsUser=4), task("5", "5"), None, "user 4"),
    "restricted: a hook of root": (restricted(runAsUser=4), task(None, None, "0"), None, "collect]] 1: user is 0"),
    "restricted: test.sh as root": (restricted(), task("5"), None, "so test.sh would run as root"),
    "restricted: an image of root": (restricted(), task(), "", "USER on record is root"),
    "restricted: an image of user 0": (restricted(), task(), "0:5", "USER on record is 0:5"),
    "restricted: an image of a name": (restricted(), task(), "app", "USER on record is app"),
    "restricted: an installation": (
        restricted(runAsUser=4) | {"agent": {"script": {"run": "true", "install": "true"}}},
        task(),
        None,
        "install runs as root",
    ),
    "restricted: a script of another": (
        restricted(runAsUser=4) | {"agent": {"script": {"run": "true", "user": 5}}},
        task(),
        None,
        "spec.agent.script.user is 5",
    ),
    **{
        f"restricted: a folder at {path}": (
            restricted(runAsUser=4, emptyDirs=[path]),
            task(),
            None,
            "in the way",
        )
        for path in ("/tests", "/logs/agent", "/proc/x", "/.taskfold")
    },
}


@pytest.mark.parametrize(("spec", "of", "image", "says"), REFUSED.values(), ids=REFUSED)
def test_what_a_profile_cannot_give_is_refused_at_admission_with_a_remedy(spec, of, image, says):
    image = recorded(image) if image is not None else None
    plan = taskrun.decide(worlds.world(**{"agent": SCRIPT, **spec}, admission=Admission("sha256:x", of, image)))
    assert worlds.phase_of(plan) is Phase.FAILED
    failure = worlds.failure_of(plan)
    assert (failure.reason, failure.stage, failure.terminal) == ("ForbiddenByProfile", Stage.ADMISSION, True)
    assert says in failure.message
    assert any(word in failure.message for word in ("Write", "Take", "Leave", "Put", "Build"))


GIVEN = {
    "userns: the largest number": ({"security": {"profile": "userns"}}, task("65535"), "65535:65535"),
    "restricted: the image's number": (restricted(), task(), "5:6"),
    "restricted: the image's number, named": (restricted(), task("5", "5", "5"), "5"),
    "restricted: an image of root, as somebody": (restricted(runAsUser=5), task(), ""),
    "restricted: test.sh as the image": (restricted(), task("5"), "5"),
    "restricted: a name, looked up at seed": (restricted(runAsUser=5), task('"app"', '"app"'), None),
    "restricted: a folder": (restricted(runAsUser=5, emptyDirs=["/app", "/testsuite"]), task(), None),
}


@pytest.mark.parametrize(("spec", "of", "image"), GIVEN.values(), ids=GIVEN)
def test_what_a_profile_can_give_is_admitted(spec, of, image):
    image = recorded(image) if image is not None else None
    plan = taskrun.decide(worlds.world(**{"agent": SCRIPT, **spec}, admission=Admission("sha256:x", of, image)))
    assert worlds.phase_of(plan) is Phase.QUEUED


def test_a_restricted_run_is_warned_that_agent_and_verifier_are_one_user():
    admission = Admission("sha256:x", task(), None)
    plan = taskrun.decide(worlds.world(agent=SCRIPT, **restricted(runAsUser=5), admission=admission))
    assert plan.status is not None
    assert any("the same user" in warning for warning in plan.status.warnings)


AT_SEED = {
    "a user that the pod cannot become": ("ForbiddenUser", "cannot become user 0", Reason.FORBIDDEN_BY_PROFILE),
    "a folder that it cannot make": ("Prepare", "/app: permission denied", Reason.FORBIDDEN_BY_PROFILE),
}


@pytest.mark.parametrize(("refusal", "says", "reason"), AT_SEED.values(), ids=AT_SEED)
def test_what_only_the_sandbox_knows_is_refused_at_seed(refusal, says, reason):
    status = worlds.placed()
    phases = {worlds.SEED: PhaseRefused(refusal, says)}
    plan = taskrun.decide(worlds.world(status, phases=phases, **restricted(runAsUser=5)))
    failure = worlds.failure_of(plan)
    assert (failure.reason, failure.stage, failure.terminal) == (reason.value, Stage.SEED, True)
    assert says in failure.message


def test_a_folder_that_root_cannot_make_is_no_question_of_the_profile():
    phases = {worlds.SEED: PhaseRefused("Prepare", "/app: permission denied")}
    assert worlds.phase_of(taskrun.decide(worlds.world(worlds.placed(), phases=phases))) is Phase.QUEUED


def test_a_node_without_user_namespaces_costs_a_try_and_the_message_helps():
    phases = {worlds.SEED: PhaseRefused("NoUserNamespace", "root of its node")}
    plan = taskrun.decide(worlds.world(worlds.placed(), phases=phases, security={"profile": "userns"}))
    assert worlds.phase_of(plan) is Phase.QUEUED
    assert plan.note is not None
    assert "NoUserNamespace" in plan.note.message
    assert "Kubernetes 1.33" in plan.note.message


def test_a_runtime_that_cannot_start_the_container_is_explained_too():
    lost = worlds.seen({"phase": "Failed", "containerStatuses": [worlds.stopped("StartError", 128, "idmap")]})
    plan = taskrun.decide(worlds.world(worlds.placed(), pod=lost, security={"profile": "userns"}))
    assert plan.note is not None
    assert "Linux 6.3" in plan.note.message


@pytest.mark.parametrize(
    ("message", "asked", "says"),
    [
        ("container has runAsNonRoot and image will run as root", "restricted", "runAsUser"),
        ("runc create failed: idmap mounts", "userns", "Linux 6.3"),
        ("runc create failed", "restricted", None),
        ("runc create failed", "root", None),
    ],
)
def test_what_a_kubelet_says_is_explained_where_the_profile_has_to_do_with_it(message, asked, says):
    explained = profile.explained(worlds.world(worlds.placed(), security={"profile": asked}), message)
    assert explained.startswith(message)
    assert (says in explained) if says else explained == message
