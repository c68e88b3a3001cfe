"""The order of a separate verification, read from the exec log and the pods as they are at that moment (C32).

Guarantees: nothing of what an operator thinks or writes counts, but which step is graded.
"""

from typing import Any

from taskfold.effects import client as api
from tests.world import exec as execs
from tests.world.apiserver import ApiServer

Object = dict[str, Any]


class Order:
    """`opened` is told of each exec. `unproven`: something was asked of a verifier's own sandbox while its agent's was
    not known to have ended. `problems`: those, and execs in an agent's sandbox that was asked to go.
    """

    def __init__(self, server: ApiServer) -> None:
        self.unproven: list[str] = []
        self._late: list[str] = []
        self._server = server

    @property
    def problems(self) -> list[str]:
        return [*self.unproven, *self._late]

    def opened(self, opening: execs.Opening) -> None:
        """An exec is about to begin."""
        pod = self._server.read(api.PODS, opening.namespace, opening.pod)
        verifier = self._verifier(pod) if pod is not None else None
        if pod is None:
            return
        if verifier is not None:
            self._delivered(opening, verifier)
        elif "deletionTimestamp" in pod["metadata"]:
            self._asked_of_one_that_goes(opening, pod)

    def _delivered(self, opening: execs.Opening, verifier: Object) -> None:
        run = self._run(opening.namespace, verifier["spec"]["source"]["runRef"])
        if run is None or not self._last(run, verifier):
            return
        agent = (run.get("status") or {}).get("attempts") or [{}]
        pod = self._server.read(api.PODS, opening.namespace, agent[-1].get("podName") or "none")
        if pod is not None and pod["metadata"]["uid"] == agent[-1].get("podUID") and not _stopped(pod):
            self.unproven.append(f"{opening.argv} in {opening.pod} while {pod['metadata']['name']} may still work")

    def _asked_of_one_that_goes(self, opening: execs.Opening, pod: Object) -> None:
        """Whoever deletes a pod, an operator does so only when it needs nothing of it any more."""
        for verifier in self._server.all(api.VERIFIERRUNS, opening.namespace):
            status = verifier.get("status") or {}
            run = self._run(opening.namespace, verifier["spec"]["source"]["runRef"])
            mine = run is not None and any(
                each["uid"] == run["metadata"]["uid"] for each in pod["metadata"].get("ownerReferences") or ()
            )
            if mine and verifier["spec"]["mode"] == "separate" and status.get("phase") in ("Queued", "Seeding"):
                self._late.append(f"{opening.argv} in {opening.pod}, which was asked to go")

    def _verifier(self, pod: Object) -> Object | None:
        owners = pod["metadata"].get("ownerReferences") or ()
        name = next((each["name"] for each in owners if each["kind"] == "VerifierRun"), None)
        return self._server.read(api.VERIFIERRUNS, pod["metadata"]["namespace"], name) if name else None

    def _run(self, namespace: str, reference: Object) -> Object | None:
        run = self._server.read(api.TASKRUNS, namespace, reference["name"])
        same = run is not None and reference.get("uid") in (None, run["metadata"]["uid"])
        return run if same else None

    def _last(self, run: Object, verifier: Object) -> bool:
        """Whether no later step needs the agent's sandbox."""
        step = verifier["spec"].get("step")
        files = run["spec"]["task"]["inline"]["files"]
        names = [line.split('"')[1] for line in files["task.toml"].splitlines() if line.startswith("name = ")]
        return step is None or not names or step == names[-1]


def _stopped(pod: Object) -> bool:
    """Every container is reported terminated."""
    status = pod.get("status") or {}
    told = [each for part in ("initContainerStatuses", "containerStatuses") for each in status.get(part) or ()]
    main = any(each["name"] == "main" for each in told)
    return main and all("terminated" in (each.get("state") or {}) for each in told)
