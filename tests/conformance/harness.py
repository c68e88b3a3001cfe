"""A real operator process beside a real cluster, and short words for what the conformance tests do with them.

The operator runs on this machine, against the cluster's API server, so that a test can kill it, read its memory and
its log. What a test asserts is read by the `kubernetes` package, not by the operator's own client.
"""

import contextlib
import functools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import kubernetes.client as k8s
import kubernetes.config
import yaml
from kubernetes.client.exceptions import ApiException

from tests import cluster as under_test
from tests import ports

ROOT = Path(__file__).resolve().parents[2]
GROUP, VERSION = "taskfold.dev", "v1alpha1"
IMAGE = "python:3.13-slim"
DEFAULT_TOML = f'schema_version = "1.4"\n[environment]\ndocker_image = "{IMAGE}"\nworkdir = "/app"\n'
POLL_SECONDS = 0.1


class Cluster:
    """The API, as an independent reader sees it."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        client = kubernetes.config.new_client_from_config(str(kubeconfig))
        self.core = k8s.CoreV1Api(client)
        self.custom = k8s.CustomObjectsApi(client)
        self.networking = k8s.NetworkingV1Api(client)

    @classmethod
    def under_test(cls) -> Self:
        """The cluster under test, with today's custom resource definitions."""
        found = cls(under_test.existing())
        apply_crds(found)
        return found

    def create_namespace(self, prefix: str = "conformance") -> str:
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.core.create_namespace({"metadata": {"name": name}})
        return name

    def delete_namespace(self, name: str) -> None:
        with contextlib.suppress(ApiException):
            self.core.delete_namespace(name)

    def create_run(self, namespace: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "TaskRun",
            "metadata": {"name": name},
            "spec": dict(spec),
        }
        return self.custom.create_namespaced_custom_object(GROUP, VERSION, namespace, "taskruns", body)

    def run(self, namespace: str, name: str) -> dict[str, Any]:
        return self.custom.get_namespaced_custom_object(GROUP, VERSION, namespace, "taskruns", name)

    def patch_run(self, namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        self.custom.patch_namespaced_custom_object(GROUP, VERSION, namespace, "taskruns", name, {"spec": dict(spec)})

    def delete_run(self, namespace: str, name: str) -> None:
        self.custom.delete_namespaced_custom_object(GROUP, VERSION, namespace, "taskruns", name)

    def verifier(self, namespace: str, name: str) -> dict[str, Any]:
        return self.custom.get_namespaced_custom_object(GROUP, VERSION, namespace, "verifierruns", name)

    def status(self, namespace: str, name: str) -> dict[str, Any]:
        return self.run(namespace, name).get("status") or {}

    def pods(self, namespace: str, run: str | None = None) -> list[Any]:
        selector = f"taskfold.dev/run={run}" if run else "taskfold.dev/run"
        return self.core.list_namespaced_pod(namespace, label_selector=selector).items

    def delete_pods(self, namespace: str, run: str, grace: int) -> None:
        """Delete the run's pods, as a user would."""
        for pod in self.pods(namespace, run):
            self.core.delete_namespaced_pod(pod.metadata.name, namespace, grace_period_seconds=grace)

    def namespaces(self) -> set[str]:
        return {each.metadata.name for each in self.core.list_namespace().items}

    def belongings(self, namespace: str, run: str, uid: str) -> list[str]:
        """Everything in the namespace that has the run's label or names it as an owner."""
        listings = [
            self.core.list_namespaced_pod,
            self.core.list_namespaced_secret,
            self.core.list_namespaced_config_map,
            self.core.list_namespaced_service,
            self.networking.list_namespaced_network_policy,
        ]
        found = [each.to_dict()["metadata"] for listing in listings for each in listing(namespace).items]
        for plural in ("taskruns", "verifierruns"):
            objects = self.custom.list_namespaced_custom_object(GROUP, VERSION, namespace, plural)["items"]
            found += [each["metadata"] for each in objects]
        return [
            metadata["name"]
            for metadata in found
            if (metadata.get("labels") or {}).get("taskfold.dev/run") == run
            or metadata["uid"] == uid
            or any(o["uid"] == uid for o in metadata.get("owner_references") or metadata.get("ownerReferences") or ())
        ]

    def until(self, condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
        """Poll until the condition gives something true, and return that."""
        deadline = time.monotonic() + seconds
        while True:
            found = condition()
            if found:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:g} s: {what}")
            time.sleep(POLL_SECONDS)

    def finished(self, namespace: str, name: str, seconds: float = 90.0) -> dict[str, Any]:
        """The run's status once it is complete."""

        def complete() -> dict[str, Any] | None:
            status = self.status(namespace, name)
            return status if status.get("complete") else None

        try:
            return self.until(complete, f"TaskRun {name} complete", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; its status: {self.status(namespace, name)}") from None

    def in_phase(self, namespace: str, name: str, phase: str, seconds: float = 60.0) -> dict[str, Any]:
        """The run's status once it is in this phase."""

        def there() -> dict[str, Any] | None:
            status = self.status(namespace, name)
            return status if status.get("phase") == phase else None

        return self.until(there, f"TaskRun {name} in phase {phase}", seconds)

    def shown(self, namespace: str, name: str, reason: str) -> str:
        """The message of the run's condition with this reason, as soon as there is one."""

        def message() -> str | None:
            conditions = self.status(namespace, name).get("conditions", ())
            return next((each["message"] for each in conditions if each["reason"] == reason), None)

        return str(self.until(message, f"TaskRun {name} shows {reason}"))


class Operator:
    """One operator process that can be killed and started again."""

    def __init__(self, folder: Path, kubeconfig: Path, namespaces: list[str], **settings: Any) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.log = folder / "operator.log"
        self.kubeconfig = kubeconfig
        self._process: subprocess.Popen[bytes] | None = None
        registry = os.environ.get("TASKFOLD_TEST_REGISTRY", "http://127.0.0.1:15001")
        document = {
            "clusterName": "test",
            "namespaces": namespaces,
            "store": {"url": f"file://{self.store}"},
            "registry": {"mirrors": {"_default": [registry]}},
            "helper": {"image": helper_image()},
            "pod": {"cpuRequestFraction": 0.05, "memoryRequestFraction": 0.05, "cpuRequest": "20m"},
            "healthPort": ports.free(),
            "logFormat": "text",
            **settings,
        }
        self.health_port = document["healthPort"]
        self.config = folder / "settings.yaml"
        self.config.write_text(yaml.safe_dump(document))

    def start(self) -> None:
        """Start it and wait until its probe answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "taskfold", "operator", "--config", str(self.config)],
                stdout=log,
                stderr=log,
                env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(ROOT / "operator")},
            )

        try:
            self.ready()
        except AssertionError:
            self.kill()
            raise

    def ready(self, seconds: float = 60.0) -> None:
        """Wait until its probe answers."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.running:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/healthz", timeout=5).close()
                return
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"the operator does not answer its probe; its log ends:\n{self.text()[-3000:]}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def ended_with(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def kill(self) -> None:
        """SIGKILL, as a lost node or an OOM would do it."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, as a roll-out does it."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(30)

    def freeze(self) -> None:
        """SIGSTOP: its connections stay open and nothing is read from them."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT after `freeze`."""
        os.kill(self.pid, signal.SIGCONT)

    def rss(self) -> int:
        """Resident memory in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def task(
    test: str | None = None, *, solve: str | None = None, toml: str = DEFAULT_TOML, **files: str
) -> dict[str, str]:
    """The files of a task folder. `test` and `solve` are the bodies of the two scripts."""
    folder = {"task.toml": toml, "instruction.md": "Do it.\n", **files}
    if test is not None:
        folder["tests/test.sh"] = "#!/bin/bash\n" + test
    if solve is not None:
        folder["solution/solve.sh"] = "#!/bin/bash\n" + solve
    return folder


def _applied(definitions: k8s.ApiextensionsV1Api, body: dict[str, Any]) -> bool:
    """Create it, or replace the one that is there. False: another session was faster."""
    try:
        definitions.create_custom_resource_definition(body)
    except ApiException as error:
        if error.status != 409:
            raise
    else:
        return True
    name = body["metadata"]["name"]
    version = definitions.read_custom_resource_definition(name).metadata.resource_version
    newer = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
    try:
        definitions.replace_custom_resource_definition(name, newer)
    except ApiException as error:
        if error.status != 409:
            raise
        return False
    return True


def apply_crds(cluster: Cluster) -> None:
    """The definitions of crds/ as they are, and wait until the API server serves them."""
    definitions = k8s.ApiextensionsV1Api(cluster.core.api_client)
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        body = yaml.safe_load(path.read_text())
        cluster.until(lambda body=body: _applied(definitions, body), f"{path.name} is applied")

    def served() -> bool:
        try:
            cluster.custom.list_namespaced_custom_object(GROUP, VERSION, "default", "verifierruns")
            cluster.custom.list_namespaced_custom_object(GROUP, VERSION, "default", "taskruns")
        except ApiException:
            return False
        return True

    cluster.until(served, "the custom resources are served")


@functools.cache
def helper_image() -> str:
    """The helper of this tree, pinned by digest: a node keeps what it has under a tag."""
    named = os.environ.get("TASKFOLD_TEST_HELPER_IMAGE")
    command = [sys.executable, str(ROOT / "hack/images"), "--pinned", "helper"]
    return named or subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def tools() -> Path:
    """The folder of kubectl and helm of the local cluster."""
    command = [sys.executable, str(ROOT / "hack/cluster"), "bin"]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def kubectl(cluster: Cluster, *arguments: str, text: str | None = None) -> str:
    """kubectl as a user would call it; its output. Fails with what it said."""
    found = shutil.which("kubectl") or str(tools() / "kubectl")
    done = subprocess.run(
        [found, "--kubeconfig", str(cluster.kubeconfig), *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ORACLE: dict[str, Any] = {"oracle": {}}
NOP: dict[str, Any] = {"nop": {}}


def script(run: str, **more: Any) -> dict[str, Any]:
    """An agent that is a shell script."""
    return {"script": {"run": run, **more}}


def spec(files: Mapping[str, str], agent: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The spec of a run with an inline task."""
    return {"task": {"inline": {"files": dict(files)}, "id": "task"}, "agent": dict(agent), **more}
