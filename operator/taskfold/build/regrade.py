"""The VerifierRun with which somebody grades a complete run again (docs/regrade.md)."""

from dataclasses import dataclass
from typing import Any

from taskfold.api.common import API_VERSION
from taskfold.api.reasons import Reason
from taskfold.api.status import Mode
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import manifests, verifierrun
from taskfold.build.refused import Refused
from taskfold.contract import folder


@dataclass(frozen=True)
class Wanted:
    """What is asked for. `tests`: in place of the task's own. `timeout_seconds`: of test.sh; None: the run's."""

    name: str
    tests: folder.Folder | None = None
    step: str | None = None
    timeout_seconds: float | None = None
    force: bool = False


def manifest(run: TaskRun, wanted: Wanted) -> dict[str, Any]:
    """The manifest: with the run's own words about its verification, and owned by nobody. Refused: tests that no
    object can hold.
    """
    made = verifierrun.manifest(run, wanted.name, 1, Mode.SEPARATE, wanted.step)
    spec = made["spec"]
    if wanted.tests is not None:
        obstacle = manifests.not_inline(wanted.tests)
        if obstacle:
            text = (
                f"the tests cannot be sent inline: {obstacle}. Put them into a ConfigMap, and name that in spec.tests."
            )
            raise Refused(Reason.INVALID_TASK, text)
        spec["tests"] = {"inline": manifests.inline(wanted.tests)}
    if wanted.timeout_seconds is not None:
        spec["timeoutSeconds"] = wanted.timeout_seconds
    if wanted.force:
        spec["force"] = True
    metadata = {"name": wanted.name, "namespace": run.metadata.namespace}
    return {"apiVersion": API_VERSION, "kind": VerifierRun.KIND, "metadata": metadata, "spec": spec}
