"""What no row can say of separate verification: what both sandboxes keep, and the operator's own choice of the mode."""

import hashlib
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taskfold.conformance.cases import artifacts, separate
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


def told(operator: harness.Operator, status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By source: the entry of the manifest; the archive that it names is there, and is as it says."""
    entries = document(operator, status, "artifacts.json")["artifacts"]
    for archive in (each["archive"] for each in entries if each["archive"] is not None):
        content = (operator.store / status["store"] / archive["key"]).read_bytes()
        assert (archive["size"], archive["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    return {each["source"]: each for each in entries}


def test_artifacts_of_a_shared_task_are_in_the_store_with_their_manifest(
    run: Runner, operator: harness.Operator
) -> None:
    files = task("echo 1 > /logs/verifier/reward.txt")
    files["task.toml"] = separate.toml("", artifacts='"out", { source = "/app/one", destination = "1.txt" }, "/no"')
    agent = script("mkdir out; echo deep > out/deep; echo 1 > one; echo other > other")
    status = run(files, agent, artifacts=[{"source": "/app/empty"}])
    assert (status["reward"], status["verifier"]["mode"]) == ("1", "shared")
    found = told(operator, status)
    assert {source: (each["status"], each["type"]) for source, each in found.items()} == {
        "/logs/artifacts": ("empty", "directory"),
        "/app/out": ("ok", "directory"),
        "/app/one": ("ok", "file"),
        "/no": ("missing", None),
        "/app/empty": ("missing", None),
    }
    assert (found["/app/one"]["destination"], found["/app/one"]["size"]) == ("1.txt", 2)
    assert found["/app/one"]["sha256"] == hashlib.sha256(b"1\n").hexdigest()
    with tarfile.open(operator.store / status["store"] / found["/app/out"]["archive"]["key"]) as tar:
        assert {member.name.removeprefix("./"): member.size for member in tar if member.isreg()} == {"deep": 5}


def test_what_is_over_the_limits_is_left_out_with_a_reason_and_the_run_graded(
    cluster: harness.Cluster, own_namespace: str, tmp_path: Path
) -> None:
    limits = {"artifactBytes": 1_000_000, "artifactEntries": 20}
    operator = harness.Operator(tmp_path, cluster.kubeconfig, [own_namespace], limits=limits)
    test = "[ -e /app/small ] && [ ! -e /app/large ] && [ ! -e /app/many ] && echo 1 > /logs/verifier/reward.txt"
    toml = artifacts.toml('"/app/small"', '"/app/large"', '"/app/many"')
    agent = script("echo 1 > small; truncate -s 1000001 large; mkdir many; cd many; touch $(seq 20)")
    operator.start()
    try:
        cluster.create_run(own_namespace, "limits", harness.spec(task(test) | {"task.toml": toml}, agent))
        status = cluster.finished(own_namespace, "limits")
    finally:
        operator.stop()
    assert status.get("reward") == "1", status
    found = told(operator, status)
    assert {source: each["status"] for source, each in found.items()} == {
        "/logs/artifacts": "empty",
        "/app/small": "ok",
        "/app/large": "skipped",
        "/app/many": "skipped",
    }
    assert "1,000,000 bytes" in found["/app/large"]["reason"]
    assert "20 files and folders" in found["/app/many"]["reason"]
    for source in ("/app/large", "/app/many"):
        assert any(f"artifact {source} is skipped" in each for each in status["warnings"])
