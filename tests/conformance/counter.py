"""What ran, and how often, counted outside of the sandboxes: a server in a pod of its own, which no run can reset."""

import json
from pathlib import Path
from typing import Any

from kubernetes.client.exceptions import ApiException

from tests.conformance import harness

SOURCE = Path(__file__).with_name("counting_server.py")
NAME, PORT = "counter", 8080


class Counter:
    """The client side; every look goes through the API server's pod proxy."""

    def __init__(self, cluster: harness.Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._address = ""

    @property
    def address(self) -> str:
        """Where sandboxes find it."""
        return self._address

    def start(self, node: str | None = None) -> None:
        """Create the server's pod, on this node if one is named, and wait until it answers."""
        core = self._cluster.core
        self._cluster.until(lambda: self._created(node), "the counter's pod is created")

        def address() -> str | None:
            pod = core.read_namespaced_pod(NAME, self._namespace)
            return pod.status.pod_ip if pod.status.phase == "Running" else None

        self._address = self._cluster.until(address, "the counter runs")
        self._cluster.until(self._answers, "the counter answers")

    def counts(self, run: str) -> dict[str, int]:
        """How often each step of this run has reported."""
        prefix = f"{run}."
        return {key.removeprefix(prefix): count for key, count in self._get("counts").items() if key.startswith(prefix)}

    def reported(self, run: str, step: str, seconds: float = 60.0) -> None:
        """Wait for the first report of a step."""
        self._cluster.until(lambda: self.counts(run).get(step), f"{run} reports {step}", seconds)

    def release(self, run: str, step: str) -> None:
        """Let the step go that waits under this name."""
        self._get(f"release/{run}.{step}")

    def report(self, run: str, step: str) -> str:
        """A line for bash that reports a step; it fails loudly, so that no report is lost."""
        return self._call(f"hit/{run}.{step}")

    def wait(self, run: str, step: str) -> str:
        """A line for bash that blocks until the step is released."""
        return self._call(f"wait/{run}.{step}")

    def _call(self, path: str) -> str:
        request = f"'GET /{path} HTTP/1.0\\r\\n\\r\\n'"
        return (
            f"{{ exec 9<>/dev/tcp/{self._address}/{PORT} && printf {request} >&9 && cat <&9 >/dev/null; }} || exit 99\n"
        )

    def _get(self, path: str) -> dict[str, int]:
        answer = self._cluster.core.connect_get_namespaced_pod_proxy_with_path(
            f"{NAME}:{PORT}", self._namespace, path, _preload_content=False
        )
        found: dict[str, int] = json.loads(answer.data)
        return found

    def _answers(self) -> bool:
        try:
            self._get("counts")
        except ApiException:
            return False
        return True

    def _created(self, node: str | None) -> bool:
        try:
            self._cluster.core.create_namespaced_pod(self._namespace, _manifest(node))
        except ApiException as error:
            if error.status == 403:  # the namespace's service account comes a moment after the namespace
                return False
            raise
        return True


def _manifest(node: str | None) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": harness.IMAGE,
        "command": ["python3", "-c", SOURCE.read_text()],
        # Without a share of the processors it would be the last to run on a busy machine, and everybody waits for it.
        "resources": {"requests": {"cpu": "100m"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME},
        "spec": {
            **({"nodeName": node} if node else {}),
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
