"""The VerifierRun that grades one attempt of a TaskRun."""

from typing import Any

from taskfold.api.common import API_VERSION
from taskfold.api.status import Mode
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import pod


def manifest(run: TaskRun, name: str, attempt: int, mode: Mode, step: str | None = None) -> dict[str, Any]:
    """The manifest: owned by the run, with the run's own words about verification. `step`: the one that is graded."""
    overrides = run.spec.verifier
    spec: dict[str, Any] = {
        "source": {"runRef": {"name": run.metadata.name, "uid": run.metadata.uid}},
        "mode": mode.value,
        "environmentFrom": [source.wire() for source in run.spec.environment_from],
        "secretsFrom": [source.wire() for source in run.spec.secrets_from],
    }
    if step is not None:
        spec["step"] = step
    if overrides is not None:
        if overrides.timeout_seconds is not None:
            spec["timeoutSeconds"] = overrides.timeout_seconds
        spec["env"] = [variable.wire() for variable in overrides.env]
    if mode is Mode.SEPARATE:  # a pod of its own, under the rules of the run's
        own = {"pod": run.spec.pod, "security": run.spec.security}
        spec |= {field: _said(options.wire()) for field, options in own.items() if options is not None}
    metadata = pod.metadata(run, name, "verifier", attempt)
    del metadata["annotations"]
    return {"apiVersion": API_VERSION, "kind": VerifierRun.KIND, "metadata": metadata, "spec": spec}


def _said(options: dict[str, Any]) -> dict[str, Any]:
    """Without lists and tables that hold nothing: some fields are not even to be named beside others."""
    return {field: value for field, value in options.items() if value not in ([], {})}
