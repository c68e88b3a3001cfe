"""Long phases: no connection while they go on, a container of the pod that tells their end, and looks where none does.

The settings leave no look in the time of a test while a container waits: what ends in time was signalled.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import harness, inside
from tests.conformance.counter import Counter
from tests.conformance.harness import NOP, script, spec, task

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

REWARD = "0.625"
SETTINGS = {"streamSeconds": 1, "lookSeconds": 10, "signalledLookSeconds": 100_000}
PHASES = r"grep -lz '^/.taskfold/helper$' /proc/[0-9]*/cmdline | xargs grep -lz '^phase$' | wc -l"
"""How many processes serve a connection to a phase."""
WATCH = f'while [ ! -e /app/stop ]; do [ "$({PHASES})" = 0 ] || date >> /app/seen; sleep 0.1; done &\n'
UNSEEN = f"[ -e /app/seen ] || echo {REWARD} > /logs/verifier/reward.txt\n"
FLOOD = """
import os, socket, struct, time
os.setsid()
nonce = "0" * 32
said = ['{"await":"%s"}' % nonce, '{"nonce":"%s","idleSeconds":30}' % nonce, "{}"]
held = []
for number in range(5000):
    with open("/app/flooding", "w"):
        pass
    try:
        made = socket.socket(socket.AF_UNIX)
        made.connect("\\0taskfold/main")
        text = said[number % 3].encode()
        made.sendall(struct.pack(">I", len(text)) + text)
        held = [*held[-400:], made]
    except OSError:
        time.sleep(0.001)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def operator(
    cluster: harness.Cluster, own_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[harness.Operator]:
    running = harness.Operator(
        tmp_path_factory.mktemp("operator"), cluster.kubeconfig, [own_namespace], waiting=SETTINGS
    )
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def counter(cluster: harness.Cluster, own_namespace: str) -> Counter:
    made = Counter(cluster, own_namespace)
    made.start()
    return made


class Case:
    """One run with phases that last until the test lets them end."""

    def __init__(self, cluster: harness.Cluster, namespace: str, counter: Counter, name: str) -> None:
        self.cluster, self.namespace, self.counter, self.name = cluster, namespace, counter, name

    def hold(self, step: str) -> str:
        """Lines for a script: report that the step is reached, then block until it is released."""
        return self.counter.report(self.name, step) + self.counter.wait(self.name, step)

    def create(self, agent: str, test: str = f"echo {REWARD} > /logs/verifier/reward.txt\n") -> None:
        self.cluster.create_run(self.namespace, self.name, spec(task(test), script(agent)))

    def reached(self, step: str) -> None:
        self.counter.reported(self.name, step)

    def release(self, step: str) -> None:
        self.counter.release(self.name, step)

    def nonce(self, phase: str) -> str:
        """The nonce of a phase whose status says that it goes on."""

        def started() -> str | None:
            found = list(self.cluster.status(self.namespace, self.name).get("journal") or [])
            if phase == "verify":
                found = self.cluster.verifier(self.namespace, f"{self.name}-1-verify")["status"]["journal"]
            return next((each["nonce"] for each in found if each["phase"] == phase and each.get("startedAt")), None)

        return str(self.cluster.until(started, f"the status says since when {phase} goes on"))

    def waiter(self, phase: str) -> str:
        """The container that waits for this phase, once it runs. Returns the phase's nonce."""
        nonce = self.nonce(phase)

        def runs() -> bool:
            (pod,) = self.cluster.pods(self.namespace, self.name)
            found = {each.name: each for each in pod.status.ephemeral_container_statuses or ()}
            each = found.get(f"wait-{nonce[:12]}")
            return each is not None and each.state.running is not None

        self.cluster.until(runs, f"a container waits for {phase}")
        return nonce

    def connections(self) -> int:
        return int(inside.shell(self.cluster, self.namespace, f"{self.name}-1-1", PHASES))

    def let_go(self) -> None:
        """Wait until nothing in the sandbox serves a connection."""
        self.cluster.until(lambda: self.connections() == 0, "no connection is held")

    def graded(self) -> None:
        status = self.cluster.finished(self.namespace, self.name)
        assert (status["phase"], status.get("reward")) == ("Succeeded", REWARD), status
        assert len(status["attempts"]) == 1


@pytest.fixture
def case(
    cluster: harness.Cluster, own_namespace: str, operator: harness.Operator, counter: Counter, name: str
) -> Iterator[Case]:
    if not operator.running:
        operator.start()
    yield Case(cluster, own_namespace, counter, name)


def test_long_phases_are_let_go_of_and_their_ends_are_signalled(case: Case) -> None:
    reward = f"echo {REWARD} > /logs/verifier/reward.txt\n"
    case.create(case.hold("agent"), case.hold("test") + reward)
    case.waiter("agent")
    case.let_go()
    case.release("agent")
    case.reached("test")
    case.waiter("verify")
    case.let_go()
    case.release("test")
    case.graded()


def test_short_phases_get_no_container(case: Case) -> None:
    """The pod's last state is read while the phases' own container still runs."""
    case.create("true\n", f"echo {REWARD} > /logs/verifier/reward.txt\n")
    seen: set[str] = set()

    def complete() -> bool:
        for pod in case.cluster.pods(case.namespace, case.name):
            seen.update(each.name for each in pod.spec.ephemeral_containers or ())
        return bool(case.cluster.status(case.namespace, case.name).get("complete"))

    case.cluster.until(complete, "the run is complete")
    case.graded()
    assert seen == set()


def test_an_operator_that_was_killed_attaches_only_after_the_signal(case: Case, operator: harness.Operator) -> None:
    hold = case.hold("middle") + WATCH + case.hold("end") + "touch /app/stop; wait\n"
    case.create(hold, UNSEEN)
    case.waiter("agent")
    operator.kill()
    case.let_go()
    case.release("middle")
    case.reached("end")  # from here on the sandbox itself notes every connection
    operator.start()
    # A run that is made now and ends: the operator has been through everything that it found.
    case.cluster.create_run(
        case.namespace, f"{case.name}-later", spec(task("echo 1 > /logs/verifier/reward.txt\n"), NOP)
    )
    case.cluster.finished(case.namespace, f"{case.name}-later")
    case.release("end")
    case.graded()


def test_a_container_that_was_killed_is_followed_by_looks(case: Case) -> None:
    case.create(case.hold("agent"))
    waiting = _processes(case.waiter("agent"))
    if not waiting:
        pytest.skip("the cluster's nodes are on another machine")
    for pid in waiting:
        os.kill(pid, signal.SIGKILL)
    case.let_go()
    case.release("agent")
    case.graded()


def test_an_agent_that_floods_the_socket_changes_nothing(case: Case) -> None:
    flood = f"cat > /app/flood.py <<'END'\n{FLOOD}END\nfor i in 1 2 3; do python3 /app/flood.py & done\n"
    case.create(f"{flood}while [ ! -e /app/flooding ]; do sleep 0.05; done\n{case.hold('agent')}", case.hold("test"))
    case.waiter("agent")
    case.release("agent")
    case.reached("test")
    case.waiter("verify")
    inside.shell(case.cluster, case.namespace, f"{case.name}-1-1", f"echo {REWARD} > /logs/verifier/reward.txt")
    case.release("test")
    case.graded()


def _processes(nonce: str) -> list[int]:
    """Waiters of this phase among the processes of this machine, where the local cluster's nodes are."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"/helper", b"wait"] and nonce.encode() in words:
            found.append(int(path.parent.name))
    return found
