"""The operator dies at any moment: no result is lost, none is invented, and nothing runs twice.

What ran is counted by a server outside of the sandboxes. The moments are held open by the sandbox's own scripts, which
block until the test releases them, so that no test depends on being fast.
"""

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import harness
from tests.conformance.counter import Counter
from tests.conformance.harness import ORACLE, script, spec, task

pytestmark = pytest.mark.timeout(300)

SOAK = bool(os.environ.get("TASKFOLD_SOAK"))
REWARD = "0.625"
ONCE = {"agent": 1, "test": 1}
ENDINGS = ["SIGKILL", "SIGTERM"]


@pytest.fixture(scope="module")
def counter(cluster: harness.Cluster, own_namespace: str) -> Counter:
    made = Counter(cluster, own_namespace)
    made.start()
    return made


class Case:
    """One run under a dying operator."""

    def __init__(
        self,
        cluster: harness.Cluster,
        namespace: str,
        operator: harness.Operator,
        counter: Counter,
        name: str,
    ) -> None:
        self.cluster, self.namespace, self.operator = cluster, namespace, operator
        self.counter, self.name = counter, name

    def create(self, *, agent: str = "", before: str = "", after: str = "", **more: Any) -> None:
        """A run whose two scripts report themselves. `before`, `after`: what test.sh does around its reward."""
        counter, name = self.counter, self.name
        test = counter.report(name, "test") + before + f"echo {REWARD} > /logs/verifier/reward.txt\n" + after
        run = counter.report(name, "agent") + agent
        self.cluster.create_run(self.namespace, name, spec(task(test), script(run), **more))

    def hold(self, step: str) -> str:
        """Lines for a script: report that the step is reached, then block until it is released."""
        return self.counter.report(self.name, step) + self.counter.wait(self.name, step)

    def release(self, step: str) -> None:
        self.counter.release(self.name, step)

    def end(self, how: str) -> None:
        """End the operator."""
        if how == "SIGKILL":
            self.operator.kill()
        else:
            self.operator.stop()

    @property
    def status(self) -> dict[str, Any]:
        return self.cluster.status(self.namespace, self.name)

    def reached(self, step: str) -> None:
        self.counter.reported(self.name, step)

    def check(self, **held: int) -> dict[str, Any]:
        """The run ends with its reward, and each of its steps has run exactly once."""
        status = self.cluster.finished(self.namespace, self.name)
        assert (status["phase"], status.get("reward")) == ("Succeeded", REWARD), status
        assert self.counter.counts(self.name) == {**ONCE, **held}
        assert len(status["attempts"]) == 1
        assert self.cluster.pods(self.namespace, self.name) == []
        return status


@pytest.fixture
def case(
    cluster: harness.Cluster,
    own_namespace: str,
    own_operator: harness.Operator,
    counter: Counter,
    name: str,
) -> Iterator[Case]:
    if not own_operator.running:
        own_operator.start()
    yield Case(cluster, own_namespace, own_operator, counter, name)
    if not own_operator.running:
        own_operator.start()


@pytest.mark.parametrize("delay", [0.0, 0.15, 0.3, 0.5, 0.8])
def test_killed_while_seeding(case: Case, delay: float) -> None:
    """At some moment between the pod's creation and the agent's start, whichever the delay meets."""
    case.create()
    case.cluster.until(lambda: case.cluster.pods(case.namespace, case.name), "the pod exists")
    time.sleep(delay)  # not a wait for something: the moment to hit is the parameter
    case.operator.kill()
    case.operator.start()
    case.check()


@pytest.mark.parametrize("how", ENDINGS)
def test_ended_between_the_journals_nonces_and_the_seed(case: Case, how: str) -> None:
    case.create()
    case.cluster.until(lambda: case.cluster.status(case.namespace, case.name).get("journal"), "the nonces are written")
    case.end(how)
    case.operator.start()
    case.check()


PHASES = ("Running", "Closing", "Verifying", "Succeeded")


@pytest.mark.parametrize("delay", [0.0, 0.03, 0.07, 0.12])
@pytest.mark.parametrize("phase", ["Running", "Verifying"])
def test_killed_while_a_phase_is_claimed_and_its_files_are_sent(case: Case, phase: str, delay: float) -> None:
    """Around the exchange's beginning: claim, archives, start. Whichever of them the delay meets."""
    counter, name = case.counter, case.name
    bulk = {"solution/bulk": "0123456789abcdef" * 16_000, "tests/bulk": "fedcba9876543210" * 16_000}
    test = counter.report(name, "test") + f"echo {REWARD} > /logs/verifier/reward.txt\n"
    files = task(test, solve=counter.report(name, "agent"), **bulk)
    case.cluster.create_run(case.namespace, name, spec(files, ORACLE))
    reached = PHASES[PHASES.index(phase) :]  # a phase may be over before the next look
    case.cluster.until(lambda: case.cluster.status(case.namespace, name).get("phase") in reached, phase)
    time.sleep(delay)  # not a wait for something: the moment to hit is the parameter
    case.operator.kill()
    case.operator.start()
    case.check()


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("released", ["before the restart", "after the restart"])
def test_ended_while_the_agent_runs(case: Case, how: str, released: str) -> None:
    case.create(agent=case.hold("middle"))
    case.reached("middle")
    case.end(how)
    if released == "before the restart":
        case.release("middle")
        case.operator.start()
    else:
        case.operator.start()
        case.cluster.until(lambda: case.status.get("phase") == "Running", "still running")
        case.release("middle")
    case.check(middle=1)


@pytest.mark.parametrize("how", ENDINGS)
def test_what_the_agent_left_is_found_again(case: Case, how: str) -> None:
    """It ends while nobody is there: its response and the warning about its trajectory come from the sandbox."""
    leaves = "echo forty-two > /logs/agent/response.txt; echo '{}' > /logs/agent/trajectory.json\n"
    case.create(
        agent=leaves + case.hold("middle"),
        before="grep -q forty-two /logs/agent/trajectory.json || exit 1\n",
    )
    case.reached("middle")
    case.end(how)
    case.release("middle")
    case.operator.start()
    status = case.check(middle=1)
    assert [note for note in status["warnings"] if "trajectory.json is no valid ATIF" in note]


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("released", ["before the restart", "after the restart"])
def test_ended_while_test_sh_runs(case: Case, how: str, released: str) -> None:
    case.create(before=case.hold("middle"))
    case.reached("middle")
    case.end(how)
    if released == "before the restart":
        case.release("middle")
        case.operator.start()
    else:
        case.operator.start()
        case.release("middle")
    case.check(middle=1)


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("released", ["before the restart", "after the restart"])
def test_ended_between_the_rewards_writing_and_its_reading(case: Case, how: str, released: str) -> None:
    case.create(after=case.hold("written"))
    case.reached("written")
    case.end(how)
    if released == "before the restart":
        case.release("written")
        case.operator.start()
    else:
        case.operator.start()
        case.release("written")
    case.check(written=1)


def test_killed_when_test_sh_has_ended_and_its_end_was_not_read(case: Case) -> None:
    """The operator is frozen, so that the sandbox's answer lies in its socket when it dies."""
    ended = case.counter.report(case.name, "ended")
    watcher = f"( while kill -0 $$ 2>/dev/null; do sleep 0.05; done\n{ended}) &\n"
    case.create(before=watcher, after=case.hold("written"))
    case.reached("written")
    case.operator.freeze()
    case.release("written")
    case.reached("ended")
    case.operator.kill()
    case.operator.start()
    case.check(written=1, ended=1)


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3, 0.6])
def test_killed_around_the_verdict(case: Case, delay: float) -> None:
    """Right at the end: the verdict is being read, written, its files kept, its pod removed."""
    case.create(after=case.hold("written"))
    case.reached("written")
    case.release("written")
    time.sleep(delay)  # not a wait for something: the moment to hit is the parameter
    case.operator.kill()
    case.operator.start()
    case.check(written=1)


def test_killed_once_the_reward_is_in_the_status(case: Case) -> None:
    """After the verdict: files are kept and the pod removed by the next operator; the reward stays."""
    case.create(after="head -c 50000000 /dev/urandom > /logs/verifier/large\n")
    case.cluster.until(lambda: case.status.get("reward"), "a reward")
    case.operator.kill()
    frozen = case.status
    case.operator.start()
    status = case.check()
    assert status["verdictTime"] == frozen["verdictTime"]


def test_killed_before_anything_was_done(case: Case) -> None:
    case.end("SIGKILL")
    case.create()
    case.operator.start()
    case.check()


@pytest.fixture
def second(case: Case, tmp_path: Path) -> Iterator[harness.Operator]:
    """Another operator for the same namespace with the same store."""
    settings = {"store": {"url": f"file://{case.operator.store}"}}
    other = harness.Operator(tmp_path, case.cluster.kubeconfig, [case.namespace], **settings)
    other.start()
    yield other
    other.stop()


def test_two_operators_at_once(case: Case, second: harness.Operator) -> None:
    assert case.operator.running
    case.create(agent=case.hold("agent-runs"), after=case.hold("written"))
    case.reached("agent-runs")
    case.release("agent-runs")
    case.reached("written")
    case.release("written")
    case.check(**{"agent-runs": 1, "written": 1})


def test_two_operators_and_one_of_them_freezes(case: Case, second: harness.Operator) -> None:
    """The frozen one holds the connections; when it wakes up, its picture is old and it must change nothing."""
    case.create(agent=case.hold("middle"))
    case.reached("middle")
    case.operator.freeze()
    case.release("middle")
    verdict = case.check(middle=1)
    case.operator.thaw()
    second.stop()
    later = Case(case.cluster, case.namespace, case.operator, case.counter, f"{case.name}-later")
    later.create()
    later.check()  # by then the one that was frozen has worked off what it had missed
    assert case.status == verdict
    assert case.counter.counts(case.name) == {**ONCE, "middle": 1}


@pytest.mark.bulk
def test_killed_again_and_again_while_six_runs_go_on(case: Case) -> None:
    """Every 1.5 s. New runs take the place of finished ones, so that there is always something to break."""
    numbers, cases, going = itertools.count(1), [], []
    deadline = time.monotonic() + (60 if SOAK else 15)
    while time.monotonic() < deadline:
        going = [each for each in going if not each.status.get("complete")]
        for number in itertools.islice(numbers, 6 - len(going)):
            made = Case(case.cluster, case.namespace, case.operator, case.counter, f"{case.name}-{number}")
            made.create(agent="sleep 0.7\n", after="sleep 0.7\n")
            cases.append(made)
            going.append(made)
        time.sleep(1.5)  # the rhythm of the deaths
        case.operator.kill()
        case.operator.start()
    assert len(cases) >= 6
    for each in cases:
        each.check()
