"""The sandbox pod of one try.

Guarantees: no service account token, no service links, seccomp RuntimeDefault, explicit capabilities, requests and
limits for CPU, memory and storage, a deadline for the case that no operator lives. No secret value and nothing that
a template could fill stands in it. The first process of `main` is the helper, never the image's own.
"""

import math
from dataclasses import dataclass
from typing import Any

from taskfold import protocol
from taskfold.api import names
from taskfold.api.common import API_VERSION, Resource
from taskfold.api.settings import HelperSettings, Settings
from taskfold.api.taskrun import PodRetention, SecurityProfile, TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import environment, resources, security
from taskfold.build import restriction as restrictions
from taskfold.build.restriction import Restriction
from taskfold.contract.images import RecordedImage
from taskfold.contract.task import Task

HELPER_FOLDER = "/.taskfold"
HELPER = f"{HELPER_FOLDER}/helper"
AGENT = "sandbox"
VERIFIER = "verifier-sandbox"
"""Values of the role label."""
MAIN = "main"
RECORD = "record"
COPY = "helper"

DO_NOT_DISTURB = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
GRACE_SECONDS = 5
"""The helper ends at once on SIGTERM; this is for a node under load."""


@dataclass(frozen=True)
class PodPlan:
    """What is decided about the pod before it is built.

    `verifier`: it is that one's own, not the agent's. `image_volumes`: whether the cluster mounts images. `uid`, `gid`:
    the one user of a restricted pod; None: the image's own. `restriction`: of its network; None: it has none.
    """

    name: str
    attempt: int
    record: bool
    image_volumes: bool
    limit_seconds: float
    profile: SecurityProfile = SecurityProfile.ROOT
    uid: int | None = None
    gid: int | None = None
    verifier: VerifierRun | None = None
    restriction: Restriction | None = None


def manifest(
    run: TaskRun, task: Task, settings: Settings, plan: PodPlan, recorded: RecordedImage | None
) -> dict[str, Any]:
    """The pod's manifest. The same arguments give the same manifest."""
    options = run.spec.pod
    image = recorded.pinned if recorded is not None else task.image.reference
    pull = settings.pod.image_pull_policy
    amounts = resources.of_main(run, task, settings.pod)
    folders = security.empty_folders(run, plan.profile)
    main = {
        "name": MAIN,
        "image": image,
        "imagePullPolicy": pull,
        "command": [HELPER, "init", "--name", MAIN],
        "env": [
            # Kubernetes expands $(NAME) in values; the contract's values are taken as they are written.
            {"name": name, "value": value.replace("$", "$$")}
            for name, value in environment.of_container(run, task, recorded, settings.pod).items()
        ],
        "resources": amounts,
        "securityContext": security.of_main(plan.profile, plan.uid, plan.gid, settings.pod),
        "volumeMounts": [_helper_mount(), *security.mounts(folders)],
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        **security.of_pod(plan.profile),
        "initContainers": _init_containers(image, pull, settings, plan),
        "containers": [main],
        "volumes": [
            _helper_volume(settings, plan),
            *security.volumes(folders, amounts["limits"]["ephemeral-storage"]),
        ],
    }
    # A pod that is kept stays; how long an external agent's is needed only its driver knows.
    if run.spec.pod_retention is PodRetention.NEVER and run.spec.agent.external is None:
        deadline = plan.limit_seconds + settings.limits.queue_seconds + settings.limits.outage_seconds
        spec["activeDeadlineSeconds"] = math.ceil(deadline)
    if plan.restriction is not None:
        spec |= restrictions.dns(plan.restriction)
    wire = options.wire() if options is not None else {}
    spec |= resources.placement(task, settings.pod, {key: wire[key] for key in _PLACEMENT if wire.get(key)})
    about = metadata(run, plan.name, AGENT if plan.verifier is None else VERIFIER, plan.attempt, plan.verifier)
    if plan.restriction is not None:
        about["labels"] |= plan.restriction.labels
        about["annotations"] |= plan.restriction.annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def waiter(nonce: str, helper: HelperSettings) -> dict[str, Any]:
    """The ephemeral container that ends when this phase of `main` is done. It has no rights and nothing of the run.

    Such a container has no resources of its own: its few MiB count as the pod's.
    """
    return {
        "name": names.waiter(nonce),
        "image": helper.image,
        "imagePullPolicy": helper.image_pull_policy,
        "command": ["/helper", "wait", "--name", MAIN, "--nonce", nonce],
        "securityContext": security.NO_RIGHTS,
    }


_PLACEMENT = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "priorityClassName",
    "runtimeClassName",
    "imagePullSecrets",
    "serviceAccountName",
)


def metadata(run: TaskRun, name: str, role: str, attempt: int, verifier: VerifierRun | None = None) -> dict[str, Any]:
    """Metadata of a child: owned by the run, or by its verification, and found by its labels."""
    options = run.spec.pod
    status = run.status.admitted
    return {
        "name": name,
        "namespace": run.metadata.namespace,
        "labels": {
            **(options.labels if options else {}),
            names.MANAGED_BY: names.OPERATOR,
            names.RUN: run.metadata.name,
            names.RUN_UID: run.metadata.uid,
            names.ROLE: role,
            names.ATTEMPT: str(attempt),
            names.PROTOCOL: str(protocol.PROTOCOL),
        },
        "annotations": {
            **(options.annotations if options else {}),
            **DO_NOT_DISTURB,
            **({names.TASK_DIGEST: status.task_digest} if status and status.task_digest else {}),
        },
        "ownerReferences": [owner(verifier if verifier is not None else run)],
    }


def owner(run: Resource) -> dict[str, Any]:
    """The controller reference that makes the garbage collector take a child with its run."""
    return {
        "apiVersion": API_VERSION,
        "kind": run.KIND,
        "name": run.metadata.name,
        "uid": run.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _init_containers(image: str, pull: str, settings: Settings, plan: PodPlan) -> list[dict[str, Any]]:
    small = {"cpu": "10m", "memory": "32Mi", "ephemeral-storage": "64Mi"}
    amounts = {"requests": small, "limits": {"memory": "128Mi", "ephemeral-storage": "256Mi"}}
    containers = [restrictions.probe(plan.restriction, settings)] if plan.restriction is not None else []
    if not plan.image_volumes:
        containers.append(
            {
                "name": COPY,
                "image": settings.helper.image,
                "imagePullPolicy": settings.helper.image_pull_policy,
                "command": ["/helper", "copy", HELPER_FOLDER],
                "resources": amounts,
                "securityContext": security.NO_RIGHTS,
                "volumeMounts": [{"name": "helper", "mountPath": HELPER_FOLDER}],
            }
        )
    if plan.record and plan.uid is None:  # else there is nobody to record, and an image of root would not start
        containers.append(
            {
                # No runAsUser: what is recorded is the image's own user.
                "name": RECORD,
                "image": image,
                "imagePullPolicy": pull,
                "command": [HELPER, "record"],
                "resources": amounts,
                "securityContext": security.AS_THE_IMAGE,
                "volumeMounts": [_helper_mount()],
            }
        )
    return containers


def _helper_volume(settings: Settings, plan: PodPlan) -> dict[str, Any]:
    if plan.image_volumes:
        source = {"reference": settings.helper.image, "pullPolicy": settings.helper.image_pull_policy}
        return {"name": "helper", "image": source}
    return {"name": "helper", "emptyDir": {"sizeLimit": "64Mi"}}


def _helper_mount() -> dict[str, Any]:
    return {"name": "helper", "mountPath": HELPER_FOLDER, "readOnly": True}
