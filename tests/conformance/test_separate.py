"""What no row can say of separate verification: what both sandboxes keep, and the operator's own choice of the mode."""

import tarfile
from pathlib import Path

from taskfold.conformance.cases import separate
from tests.conformance import harness
from tests.conformance.conftest import Runner
from tests.conformance.facts import document
from tests.conformance.harness import script, task

IMAGE = f"{separate.TEST}/entrypoint:1"
SAID = b"entrypoint: sh -c sleep infinity\n"


def archives(operator: harness.Operator, place: str) -> dict[str, dict[str, bytes]]:
    """Of which sandbox → the regular files in its archive."""
    found: dict[str, dict[str, bytes]] = {}
    for archive in document(operator, {"store": place}, "collected.json")["archives"]:
        with tarfile.open(operator.store / place / archive["key"]) as tar:
            members = [member for member in tar if member.isreg()]
            found[archive["of"]] = {member.name: tar.extractfile(member).read() for member in members}  # type: ignore[union-attr]
    return found


def test_both_sandboxes_keep_their_logs_and_the_output_of_their_entrypoints(
    run: Runner, operator: harness.Operator
) -> None:
    files = task("echo testing; echo 1 > /logs/verifier/reward.txt")
    files["task.toml"] = separate.toml(environment=f'docker_image = "{IMAGE}"\n')
    files["environment/Dockerfile"] = f"FROM {IMAGE}\n"
    status = run(files, script("echo working; echo planted > /logs/verifier/test-stdout.txt"))
    assert (status["reward"], status["verifier"]["mode"]) == ("1", "separate")
    kept = archives(operator, status["store"])
    assert set(kept) == {"agent", "verifier"}
    assert kept["verifier"]["logs/verifier/test-stdout.txt"] == b"testing\n"
    assert kept["verifier"]["logs/verifier/verifier-entrypoint-stdout.txt"] == SAID
    assert kept["agent"]["logs/agent/stdout.txt"] == b"working\n"
    assert kept["agent"]["logs/verifier/entrypoint-stdout.txt"] == SAID
    assert b"planted\n" not in [*kept["agent"].values(), *kept["verifier"].values()]


def test_an_operator_may_verify_everything_with_artifacts_separately(
    cluster: harness.Cluster, own_namespace: str, tmp_path: Path
) -> None:
    operator = harness.Operator(tmp_path, cluster.kubeconfig, [own_namespace], separateVerifierForArtifacts=True)
    operator.start()
    try:
        modes = {}
        for name, artifacts in {"with": '"/app/x"', "without": ""}.items():
            files = task("echo 1 > /logs/verifier/reward.txt")
            files["task.toml"] = separate.toml("", artifacts=artifacts)
            cluster.create_run(own_namespace, name, harness.spec(files, harness.NOP))
            modes[name] = cluster.finished(own_namespace, name)["verifier"]["mode"]
    finally:
        operator.stop()
    assert modes == {"with": "separate", "without": "shared"}
