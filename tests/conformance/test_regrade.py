"""A complete run graded again, by kubectl and by the command, from what it left (C36)."""

import concurrent.futures
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from . import harness

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MANY = 50 if os.environ.get("TASKFOLD_SOAK") else 10
HEAD, _, REST = harness.DEFAULT_TOML.partition("\n")
TOML = f'{HEAD}\nartifacts = ["/app"]\n{REST}[verifier]\nenvironment_mode = "separate"\n'
SOLVE = "echo 42 > /app/answer\n"
TEST = "grep -q 42 /app/answer && echo 0.75 > /logs/verifier/reward.txt\n"

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[harness.Cluster, str]]:
    """The cluster, and a namespace that an operator serves."""
    cluster = harness.Cluster.under_test()
    namespace = cluster.create_namespace()
    operator = harness.Operator(
        tmp_path_factory.mktemp("operator"),
        cluster.kubeconfig,
        [namespace],
        limits={"queueSeconds": 8},
        janitor={"finishedSeconds": 2},
    )
    operator.start()
    try:
        yield cluster, namespace
    finally:
        operator.stop()
        cluster.delete_namespace(namespace)


@pytest.fixture
def ran(place: tuple[harness.Cluster, str], request: pytest.FixtureRequest) -> Run:
    """`ran(name)`: a run of this name, complete."""
    cluster, namespace = place

    def run(name: str, *, toml: str = TOML, solve: str = SOLVE, **spec: Any) -> dict[str, Any]:
        files = {**harness.task(solve=solve, test=TEST), "task.toml": toml}
        cluster.create_run(namespace, name, harness.spec(files, harness.ORACLE, **spec))
        return cluster.finished(namespace, name)

    return run


def again(place: tuple[harness.Cluster, str], name: str, run: str, **spec: Any) -> None:
    """A VerifierRun as people write it."""
    cluster, namespace = place
    uid = cluster.run(namespace, run)["metadata"]["uid"]
    source = {"runRef": {"name": run, "uid": uid}}
    body = {"apiVersion": "taskfold.dev/v1alpha1", "kind": "VerifierRun", "metadata": {"name": name}}
    manifest = json.dumps(body | {"spec": {"mode": "separate", "source": source, **spec}})
    harness.kubectl(cluster, "-n", namespace, "apply", "-f", "-", text=manifest)


def verdict(place: tuple[harness.Cluster, str], name: str) -> dict[str, Any]:
    cluster, _ = place

    def complete() -> dict[str, Any] | None:
        found = status(place, name)
        return found if found.get("complete") else None

    found: dict[str, Any] = cluster.until(complete, f"VerifierRun {name} complete", 120)
    return found


def status(place: tuple[harness.Cluster, str], name: str) -> dict[str, Any]:
    cluster, namespace = place
    found: dict[str, Any] = cluster.verifier(namespace, name).get("status") or {}
    return found


def verifying(place: tuple[harness.Cluster, str], name: str) -> None:
    """Wait until somebody has made the VerifierRun, and its test.sh may run."""

    def begun() -> bool:
        try:
            return status(place, name).get("phase") == "Verifying"
        except ApiException as error:
            if error.status != 404:
                raise
            return False

    place[0].until(begun, f"{name} verifies", 120)


def command(place: tuple[harness.Cluster, str], *words: str) -> "subprocess.CompletedProcess[str]":
    with started(place, "regrade", *words) as child:
        stdout, stderr = child.communicate(timeout=120)
    return subprocess.CompletedProcess(child.args, child.returncode, stdout, stderr)


@contextlib.contextmanager
def started(place: tuple[harness.Cluster, str], *words: str) -> "Iterator[subprocess.Popen[str]]":
    """`taskfold …`; it is killed if it is still there at the end of the block."""
    cluster, namespace = place
    child = subprocess.Popen(
        [sys.executable, "-m", "taskfold", *words, "--kubeconfig", str(cluster.kubeconfig), "-n", namespace],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(harness.ROOT / "operator"), "PATH": "/usr/bin:/bin", "TERM": "dumb"},
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()


def test_the_manifest_of_the_docs_gives_the_same_reward(place, ran):
    cluster, namespace = place
    before = ran("my-run")
    text = re.findall(r"```yaml\n(.*?)```", (harness.ROOT / "docs/regrade.md").read_text(), re.DOTALL)[0]
    harness.kubectl(cluster, "-n", namespace, "apply", "-f", "-", text=text)
    found = verdict(place, "my-run-again")
    assert found["runUID"] == cluster.run(namespace, "my-run")["metadata"]["uid"]
    assert (before["reward"], found["reward"], found["phase"]) == ("0.75", "0.75", "Succeeded")
    assert cluster.status(namespace, "my-run") == before


def test_the_command_gives_other_tests_another_reward(place, ran, tmp_path: Path):
    ran("other")
    (tmp_path / "test.sh").write_text("grep -q 42 /app/answer && echo 1 > /logs/verifier/reward.txt\n")
    done = command(place, "other", "--tests", str(tmp_path), "--name", "other-again")
    assert (done.returncode, done.stdout) == (0, "reward: 1\n"), done.stderr
    assert "is not changed: 0.75" in done.stderr
    shown = command(place, "other", "--output", "json")
    assert shown.returncode == 1
    found = json.loads(shown.stdout)
    assert (found["outcome"], found["reward"], found["previous_reward"]) == ("verdict", 0.75, 0.75)


def test_a_folder_that_holds_no_tests_is_refused(place, ran, tmp_path: Path):
    ran("wrong")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test.sh").write_text("true\n")
    done = command(place, "wrong", "--tests", str(tmp_path))
    assert done.returncode == 3
    assert "spec.tests.path: tests" in done.stderr


def test_a_run_that_was_graded_in_its_agents_sandbox_is_forced_only(place, ran):
    toml = TOML.replace('environment_mode = "separate"', 'environment_mode = "shared"')
    assert ran("shared", toml=toml)["verifier"]["mode"] == "shared"
    refused = command(place, "shared")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "NotGradable" in refused.stderr
    forced = command(place, "shared", "--force")
    assert (forced.returncode, forced.stdout) == (1, "reward: 0.75\n"), forced.stderr
    assert "warning: forced:" in forced.stderr


def test_force_does_not_make_an_image_for_the_verifier(place, ran):
    toml = TOML.replace('[verifier]\nenvironment_mode = "separate"', "[verifier.environment]\ncpus = 1")
    assert ran("imageless", toml=toml, verifier={"mode": "shared"})["verifier"]["mode"] == "shared"
    refused = command(place, "imageless", "--force", "--output", "json")
    found = json.loads(refused.stdout)
    assert (refused.returncode, found["outcome"], found["failure"]["reason"]) == (3, "refused", "NotGradable")
    assert "task.toml: verifier.environment.docker_image: names no image" in found["message"]
    assert "Name an image there" in found["message"]


@pytest.mark.parametrize("which", ["verifierrun", "taskrun"])
def test_a_deletion_ends_the_command(place, ran, which: str, tmp_path: Path):
    cluster, namespace = place
    run = f"deleted-{which}"
    ran(run)
    (tmp_path / "test.sh").write_text("sleep 60\n")
    name = f"{run}-again"
    words = ("regrade", run, "--tests", str(tmp_path), "--name", name, "--output", "json")
    with started(place, *words) as child:
        verifying(place, name)
        harness.kubectl(
            cluster, "-n", namespace, "delete", which, name if which == "verifierrun" else run, "--wait=false"
        )
        stdout, stderr = child.communicate(timeout=120)
    found = json.loads(stdout)
    assert (child.returncode, found["outcome"], found["failure"]["reason"]) == (2, "cancelled", "RunDeleted"), stderr


def test_ctrl_c_leaves_a_verifierrun_that_goes_on(place, ran, tmp_path: Path):
    ran("left")
    (tmp_path / "test.sh").write_text("sleep 5; echo 1 > /logs/verifier/reward.txt\n")
    with started(place, "regrade", "left", "--tests", str(tmp_path), "--name", "left-again", "-o", "json") as child:
        verifying(place, "left-again")
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=60)
    found = json.loads(stdout)
    assert (child.returncode, found["outcome"], found["failure"]["reason"]) == (130, "running", "Interrupted"), stderr
    assert verdict(place, "left-again")["reward"] == "1"


def test_work_whose_verifier_found_no_room_is_graded_later(place, ran):
    cluster, namespace = place
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "3"}}}
    cluster.core.create_namespaced_resource_quota(namespace, quota)
    own = '[verifier.environment]\ndocker_image = "python:3.13-slim"\ncpus = 500\nworkdir = "/app"\n'
    try:
        masked = ran("cramped", toml=TOML + own)
    finally:
        cluster.core.delete_namespaced_resource_quota("small", namespace)
    assert (masked["phase"], masked["failure"]["reason"]) == ("Masked", "QuotaExceeded")
    assert "taskfold regrade cramped" in masked["failure"]["message"]
    pod = {"resources": {"requests": {"cpu": "10m"}}}
    again(place, "cramped-again", "cramped", pod=pod)
    assert verdict(place, "cramped-again")["reward"] == "0.75"


def test_a_pod_that_the_cluster_does_not_admit_masks_at_once_with_its_words(place, ran):
    ran("unfit")
    again(place, "unfit-again", "unfit", pod={"priorityClassName": "no-such-class"})
    found = verdict(place, "unfit-again")
    assert (found["phase"], found["failure"]["reason"]) == ("Masked", "PodRejected")
    assert "no-such-class" in found["failure"]["message"]
    assert "taskfold regrade unfit" in found["failure"]["message"]
    assert "reward" not in found


def test_one_with_a_time_to_live_is_deleted_after_it_and_its_run_stays(place, ran):
    cluster, namespace = place
    ran("lasting")
    again(place, "lasting-short", "lasting", ttlSecondsAfterFinished=3)
    again(place, "lasting-late", "lasting")
    assert verdict(place, "lasting-short")["reward"] == "0.75"
    verdict(place, "lasting-late")
    cluster.until(lambda: gone(place, "lasting-short"), "its time is over")
    change = json.dumps({"spec": {"ttlSecondsAfterFinished": 0}})
    harness.kubectl(cluster, "-n", namespace, "patch", "verifierrun", "lasting-late", "--type=merge", "-p", change)
    cluster.until(lambda: gone(place, "lasting-late"), "a time that is set later is noticed")
    assert cluster.status(namespace, "lasting")["complete"]


def gone(place: tuple[harness.Cluster, str], name: str) -> bool:
    cluster, namespace = place
    listed = harness.kubectl(cluster, "-n", namespace, "get", "verifierruns", "-o", "name")
    return f"verifierrun.taskfold.dev/{name}\n" not in listed


def test_many_at_a_time_give_the_rewards_of_the_first_grading(place, ran):
    solutions = {f"many-{n}": SOLVE if n % 2 else "true\n" for n in range(MANY)}
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        statuses = threads.map(lambda name: ran(name, solve=solutions[name]), solutions)
        rewards = {name: status.get("reward") for name, status in zip(solutions, statuses, strict=True)}
    for name in rewards:
        again(place, f"{name}-again", name)
    assert {name: verdict(place, f"{name}-again").get("reward") for name in rewards} == rewards
    assert set(rewards.values()) == {"0", "0.75"}
