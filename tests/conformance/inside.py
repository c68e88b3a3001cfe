"""What a test does inside of a run's sandbox, beside the operator."""

import asyncio

import kubernetes.client
import kubernetes.config
import kubernetes.stream

from taskfold.effects import client as api
from taskfold.effects import credentials, sandbox
from taskfold.effects import exec as execs
from taskfold.protocol.phase import PhaseRequest
from tests.conformance import harness

VERIFY = "verify"


def shell(cluster: harness.Cluster, namespace: str, pod: str, command: str) -> str:
    """What a command in the sandbox prints, by an exec of the `kubernetes` package."""
    reader = kubernetes.config.new_client_from_config(str(cluster.kubeconfig))  # `stream` changes its client
    answer = kubernetes.stream.stream(
        kubernetes.client.CoreV1Api(reader).connect_get_namespaced_pod_exec,
        pod,
        namespace,
        container="main",
        command=["sh", "-c", command],
        stdout=True,
        stderr=True,
    )
    return str(answer)


def await_verification(cluster: harness.Cluster, namespace: str, run: str) -> None:
    """Wait until the sandbox's supervisor has the result of the verify phase, reward files included.

    A second connection to a phase that runs: it waits with the operator's own, and changes nothing.
    """
    entries = cluster.verifier(namespace, f"{run}-1-verify")["status"]["journal"]
    (nonce,) = (entry["nonce"] for entry in entries if entry["phase"] == VERIFY)
    pod = cluster.core.read_namespaced_pod(f"{run}-1-1", namespace)
    pin = execs.PodPin(namespace, pod.metadata.name, pod.metadata.uid, "main", 0, pod.spec.node_name)

    async def attach() -> None:
        async with api.Client(credentials.from_kubeconfig(str(cluster.kubeconfig))) as client:
            request = PhaseRequest(nonce, VERIFY, attach_only=True)
            await sandbox.Sandbox(execs.Exec(client), pin).run_phase(request, total_seconds=60)

    asyncio.run(attach())
