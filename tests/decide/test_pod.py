"""decide/pod.py: pod objects as kubelets, schedulers and node controllers leave them → standing and loss."""

import pytest
from tests.decide import worlds

from taskfold.api.reasons import Reason
from taskfold.decide import pod as pods
from taskfold.decide.pod import Standing

RECORDED = worlds.stopped("Completed", 0, "{}", name="record")
PULLING = worlds.waits("PodInitializing")
INIT_FAILED = worlds.stopped("Error", 1, "no such file", name="helper")

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


OWN_LIMITS = [
    "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
    'Container main exceeded its local ephemeral storage limit "1Gi". ',
    'Usage of EmptyDir volume "helper" exceeds the limit "64Mi". ',
]
PRESSURE = [
    "The node was low on resource: ephemeral-storage. Threshold quantity: 10, available: 8. Container main was "
    "using 500Mi, request is 256Mi, has larger consumption of ephemeral-storage. ",
    "The node was low on resource: memory. Container main was using 512Mi, which exceeds its request of 256Mi. ",
]
DISRUPTED = {"type": "DisruptionTarget", "status": "True"}


def disrupted(reason: str) -> dict:
    return {
        "phase": "Running",
        "conditions": [{**DISRUPTED, "reason": reason}],
        "containerStatuses": [worlds.runs()],
    }


LOSSES = [
    ("OOM kill", {"containerStatuses": [worlds.stopped("OOMKilled", 137)]}, {}, Reason.OOM_KILLED, True),
    *(
        (f"own storage limit {number}", {"phase": "Failed", "reason": "Evicted", "message": text}, {}, None, True)
        for number, text in enumerate(OWN_LIMITS)
    ),
    *(
        (f"pressure {number}", {"phase": "Failed", "reason": "Evicted", "message": text}, {}, Reason.POD_EVICTED, False)
        for number, text in enumerate(PRESSURE)
    ),
    ("evicted, no message", {"phase": "Failed", "reason": "Evicted"}, {}, Reason.POD_EVICTED, False),
    ("preempted", disrupted("PreemptionByScheduler"), {}, Reason.POD_EVICTED, False),
    ("drained", disrupted("EvictionByEvictionAPI"), {}, Reason.POD_EVICTED, False),
    ("node shuts down", disrupted("TerminationByKubelet"), {}, Reason.POD_EVICTED, False),
    ("taint manager", disrupted("DeletionByTaintManager"), {}, Reason.NODE_LOST, False),
    ("NodeLost", {"phase": "Running", "reason": "NodeLost"}, {}, Reason.NODE_LOST, False),
    (
        "being deleted",
        {"phase": "Running", "containerStatuses": [worlds.runs()]},
        {"deletionTimestamp": worlds.ago(0)},
        Reason.POD_DELETED,
        False,
    ),
    ("first process ended", {"containerStatuses": [worlds.stopped("Error", 137)]}, {}, Reason.SANDBOX_LOST, True),
    ("ended well", {"containerStatuses": [worlds.stopped("Completed", 0)]}, {}, Reason.SANDBOX_LOST, True),
    ("restarted", {"containerStatuses": [worlds.runs(restarts=1)]}, {}, Reason.SANDBOX_LOST, True),
    (
        "init failed",
        {"phase": "Failed", "initContainerStatuses": [INIT_FAILED], "containerStatuses": [PULLING]},
        {},
        Reason.SANDBOX_LOST,
        False,
    ),
    ("refused by the kubelet", {"phase": "Failed", "reason": "OutOfcpu"}, {}, Reason.SANDBOX_LOST, False),
]


@pytest.mark.parametrize(
    ("status", "metadata", "reason", "by_agent"), [each[1:] for each in LOSSES], ids=[each[0] for each in LOSSES]
)
def test_a_lost_pod_has_one_reason(status, metadata, reason, by_agent):
    found = worlds.seen(status, **metadata)
    lost = pods.loss(found)
    assert lost is not None
    assert pods.standing(found) is Standing.LOST
    assert lost.by_agent is by_agent
    assert lost.message
    if reason is not None:
        assert lost.reason is reason


@pytest.mark.parametrize("message", OWN_LIMITS)
def test_its_own_storage_limit_has_its_own_reason(message):
    lost = pods.loss(worlds.evicted(message))
    assert lost is not None
    assert lost.reason is Reason.STORAGE_LIMIT_EXCEEDED


def test_a_pod_without_its_node_is_a_lost_node():
    lost = pods.loss(worlds.seen(disrupted("DeletionByPodGC")))
    assert lost is not None
    assert lost.reason is Reason.NODE_LOST


def test_an_absent_pod_was_deleted():
    assert pods.loss(None) is pods.GONE
    assert pods.GONE.reason is Reason.POD_DELETED


def test_a_failed_init_container_is_quoted():
    lost = pods.loss(worlds.seen({"phase": "Failed", "initContainerStatuses": [INIT_FAILED]}))
    assert lost is not None
    assert "init container helper failed (exit code 1): no such file" in lost.message


def test_a_disruption_condition_that_is_not_true_is_no_loss():
    status = {**disrupted("PreemptionByScheduler"), "conditions": [{**DISRUPTED, "status": "False", "reason": "x"}]}
    assert pods.loss(worlds.seen(status)) is None


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
