"""environments/hello_dataset on the real cluster, by the command line: each folder gives what its README promises."""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conformance import harness

FOLDER = "environments/hello_dataset"
DATASET = harness.ROOT / FOLDER
AGENTS = ("oracle", "nop")
ROW = re.compile(
    r"^\| \[`(?P<task>[a-z-]+)`\]\([a-z-]+\) \|.*\| \*{0,2}(?P<oracle>\d)\*{0,2} \| (?P<nop>\d) \|$", re.MULTILINE
)
CODES = {1.0: 0, 0.0: 1}


def promises() -> dict[str, tuple[float, float]]:
    """Task → reward of the oracle and of an agent that does nothing, as the README's table has it."""
    readme = (DATASET / "README.md").read_text(encoding="utf-8")
    return {match["task"]: (float(match["oracle"]), float(match["nop"])) for match in ROW.finditer(readme)}


def taskfold(cluster: harness.Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PYTHONPATH": str(harness.ROOT / "operator")}
    command = [sys.executable, "-m", "taskfold", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=harness.ROOT)


def test_the_readme_names_every_folder() -> None:
    assert set(promises()) == {path.parent.name for path in DATASET.glob("*/task.toml")}


Answers = dict[tuple[str, str], concurrent.futures.Future[subprocess.CompletedProcess[str]]]


@pytest.fixture(scope="module")
def answers(cluster: harness.Cluster, namespace: str, operator: harness.Operator) -> Iterator[Answers]:
    """(task, agent) → what the command says, all of them at work four at a time."""
    more = ("--namespace", namespace, "--output", "json")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        yield {
            (task, agent): pool.submit(taskfold, cluster, "run", f"{FOLDER}/{task}", "--agent", agent, *more)
            for task in sorted(promises())
            for agent in AGENTS
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("task", sorted(promises()))
def test_a_folder_gives_the_rewards_that_its_readme_promises(answers: Answers, task: str) -> None:
    for agent, reward in zip(AGENTS, promises()[task], strict=True):
        done = answers[task, agent].result()
        document = json.loads(done.stdout)
        assert (document["outcome"], document["reward"]) == ("verdict", reward), (agent, document, done.stderr)
        assert done.returncode == CODES[reward]


def test_render_and_kubectl_give_the_same_as_run(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    rendered = taskfold(cluster, "render", f"{FOLDER}/file-state", "--agent", "oracle", "--name", name).stdout
    harness.kubectl(cluster, "apply", "--server-side", "--namespace", namespace, "--filename", "-", text=rendered)
    assert cluster.finished(namespace, name)["reward"] == "1"
