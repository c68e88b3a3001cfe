"""`taskfold logs` reads a separate verifier's own pod while it works, and believes nothing of the agent's about it."""

import os
import subprocess
import sys

from taskfold.conformance.cases import separate
from tests.conformance import harness
from tests.conformance.harness import script, task
from tests.conformance.test_separate import IMAGE, SAID


def test_what_a_verifier_prints_is_read_while_it_runs(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    files = task("echo testing; sleep 60; echo 1 > /logs/verifier/reward.txt")
    files["task.toml"] = separate.toml(environment=f'docker_image = "{IMAGE}"\n')
    files["environment/Dockerfile"] = f"FROM {IMAGE}\n"
    agent = script("echo working; echo planted > /logs/verifier/test-stdout.txt")
    cluster.create_run(namespace, name, harness.spec(files, agent))

    def logs(run: str, *flags: str) -> subprocess.CompletedProcess[str]:
        where = ("--namespace", namespace, "--kubeconfig", str(cluster.kubeconfig))
        environment = {**os.environ, "PYTHONPATH": str(harness.ROOT / "operator")}
        command = [sys.executable, "-m", "taskfold", "logs", run, *flags, *where]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def tested() -> str | None:
        done = logs(name, "--verifier")
        assert "planted" not in done.stdout or cluster.status(namespace, name)["phase"] == "Running"
        return done.stdout if "testing" in done.stdout else None

    cluster.in_phase(namespace, name, "Verifying")
    assert cluster.until(tested, "the output of test.sh is read") == "==> /logs/verifier/test-stdout.txt <==\ntesting\n"
    entrypoint = logs(name, "--entrypoint")
    assert entrypoint.stdout == f"==> /logs/entrypoint-stdout.txt <==\n{SAID.decode()}"
    verifier = cluster.status(namespace, name)["verifier"]["name"]
    assert "testing\n" in logs(f"verifierrun/{verifier}").stdout
    agents = logs(name, "--agent")
    assert (agents.returncode, agents.stdout) == (2, "")
    assert "The agent's pod is gone" in agents.stderr
    cluster.patch_run(namespace, name, {"cancel": True})
    assert cluster.finished(namespace, name)["phase"] == "Cancelled"
