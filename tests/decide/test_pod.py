"""decide/pod.py: pod objects as kubelets and schedulers leave them → standing. Losses are in test_losses.py."""

import pytest
from tests.decide import worlds

from taskfold.decide import pod as pods
from taskfold.decide.losses import Cause
from taskfold.decide.pod import Standing

RECORDED = worlds.stopped("Completed", 0, "{}", name="record")
PULLING = worlds.waits("PodInitializing")

STANDINGS = [
    ("no status at all", {}, None, Standing.UNSCHEDULED),
    ("pending, unscheduled", {"phase": "Pending"}, None, Standing.UNSCHEDULED),
    ("bound, kubelet silent", {"phase": "Pending"}, "node-1", Standing.STARTING),
    (
        "creating",
        {"phase": "Pending", "containerStatuses": [worlds.waits("ContainerCreating")]},
        "n",
        Standing.STARTING,
    ),
    (
        "init container runs",
        {
            "phase": "Pending",
            "initContainerStatuses": [worlds.container({"running": {"startedAt": worlds.ago(1)}}, name="helper")],
            "containerStatuses": [PULLING],
        },
        "node-1",
        Standing.STARTING,
    ),
    *(
        (reason, {"phase": "Pending", "containerStatuses": [worlds.waits(reason)]}, "node-1", Standing.PULL_FAILING)
        for reason in (
            "ErrImagePull",
            "ImagePullBackOff",
            "RegistryUnavailable",
            "ErrImageNeverPull",
            "InvalidImageName",
        )
    ),
    (
        "an init container's image cannot be pulled",
        {
            "phase": "Pending",
            "initContainerStatuses": [worlds.waits("ErrImagePull", name="helper")],
            "containerStatuses": [PULLING],
        },
        "node-1",
        Standing.PULL_FAILING,
    ),
    *(
        (reason, {"phase": "Pending", "containerStatuses": [worlds.waits(reason)]}, "node-1", Standing.START_FAILING)
        for reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError")
    ),
    (
        "running",
        {"phase": "Running", "initContainerStatuses": [RECORDED], "containerStatuses": [worlds.runs()]},
        "node-1",
        Standing.READY,
    ),
    ("runs before the phase says so", {"phase": "Pending", "containerStatuses": [worlds.runs()]}, "n", Standing.READY),
]


@pytest.mark.parametrize(
    ("status", "node", "expected"), [each[1:] for each in STANDINGS], ids=[each[0] for each in STANDINGS]
)
def test_a_pod_that_is_not_lost_has_one_standing(status, node, expected):
    found = worlds.seen(status, node=node)
    assert pods.loss(found) is None
    assert pods.standing(found) is expected


def test_only_the_controller_owns_a_pod():
    owners = [{"kind": "A", "name": "a", "uid": "1"}, {"kind": "B", "name": "b", "uid": "2", "controller": True}]
    assert worlds.seen({}, ownerReferences=owners).owner_uid == "2"
    assert worlds.seen({}, ownerReferences=owners[:1]).owner_uid == ""


def test_the_kubelets_words_come_before_the_schedulers():
    message = 'Back-off pulling image "nope"'
    found = worlds.seen({"phase": "Pending", "containerStatuses": [worlds.waits("ImagePullBackOff", message)]})
    assert pods.waiting_message(found) == f"container main: ImagePullBackOff: {message}"
    assert pods.waiting_message(worlds.unscheduled("no node")) == "no node"
    assert pods.waiting_message(worlds.starting()) == ""


def test_only_an_impossible_name_is_hopeless():
    def waiting(reason: str) -> pods.PodView:
        return worlds.seen({"phase": "Pending", "containerStatuses": [worlds.waits(reason)]})

    assert pods.pull_is_hopeless(waiting("InvalidImageName"))
    assert not pods.pull_is_hopeless(waiting("ImagePullBackOff"))


@pytest.mark.parametrize(
    ("departed", "cause"),
    [
        (worlds.disrupted("DeletionByPodGC", failed=True), Cause.NODE_GONE),
        (worlds.ready(), Cause.POD_DELETED),
        (worlds.ready(uid="another"), Cause.POD_DELETED),
        (None, Cause.POD_DELETED),
    ],
    ids=["with a cause", "none told", "of another pod", "never seen"],
)
def test_a_pod_that_is_gone_was_lost_for_what_its_last_state_says(departed, cause):
    lost = pods.loss(None, worlds.ready().uid, departed)
    assert lost is not None
    assert lost.cause is cause
