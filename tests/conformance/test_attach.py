"""`taskfold attach` and `taskfold finish` against the real cluster, at a terminal and from a pipe."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.conformance import harness

FILES = {
    "task.toml": harness.DEFAULT_TOML,
    "instruction.md": "Write 42 to answer.txt.\n",
    "tests/test.sh": 'if [ "$(cat answer.txt)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n',
}
PATIENCE = 60.0
PROMPT = r"[#$] "


def command(cluster: harness.Cluster, namespace: str, *arguments: str) -> list[str]:
    where = ["--namespace", namespace, "--kubeconfig", str(cluster.kubeconfig)]
    return [sys.executable, "-m", "taskfold", *arguments, *where]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(harness.ROOT / "operator")}


def call(argv: Sequence[str], given: str = "") -> subprocess.CompletedProcess[str]:
    """The command with this standard input, which is no terminal."""
    return subprocess.run(
        argv, input=given, capture_output=True, text=True, env=environment(), timeout=PATIENCE, check=False
    )


class Terminal:
    """A command at a terminal of its own, and somebody who types."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.seen = ""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.execve(argv[0], list(argv), environment())
        self.size(100, 40)

    def size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def types(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def shows(self, pattern: str) -> re.Match[str]:
        """Wait until this is shown, after what was found before."""
        deadline = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.seen)) is None:
            assert time.monotonic() < deadline, f"{pattern!r} is not in {self.seen!r}"
            if select.select([self._fd], [], [], 1.0)[0]:
                try:
                    self.seen += os.read(self._fd, 65536).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"ended without {pattern!r}: {self.seen!r}") from None
        self.seen = self.seen[found.end() :]
        return found

    def ends(self) -> int:
        """Its exit code."""
        with contextlib.suppress(OSError):
            while os.read(self._fd, 65536):
                pass
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def run(cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str) -> str:
    cluster.create_run(namespace, name, harness.spec(FILES, {"external": {}}))
    return name


@pytest.fixture
def terminal(cluster: harness.Cluster, namespace: str, run: str, request: Any) -> Iterator[Terminal]:
    found = Terminal(command(cluster, namespace, "attach", run, *request.param))
    yield found
    found.close()


@pytest.mark.parametrize("terminal", [["--finish", "succeeded", "--response", "done"]], indirect=True)
def test_a_shell_at_a_terminal(terminal: Terminal, cluster: harness.Cluster, namespace: str, run: str) -> None:
    terminal.shows(r"waits until the sandbox of run-\d+ is ready")
    terminal.shows(r"container main of pod run-\d+-1-1, as 0:0")
    terminal.shows(r"Write 42 to answer\.txt\.")
    terminal.shows(PROMPT)
    terminal.types('echo "at $(tty | cut -c1-8) $(pwd) $(id -u)"; stty size\n')
    terminal.shows(r"at /dev/pts /app 0\s+40 100")
    terminal.shows(PROMPT)
    terminal.size(120, 50)
    terminal.types("until [ \"$(stty size)\" = '50 120' ]; do :; done; echo grown\n")
    terminal.shows(r"\sgrown\s")
    terminal.shows(PROMPT)
    terminal.types("sleep 5000\n")
    look = ("exec", f"{run}-1-1", "--container=main", "--", "bash", "-c", "cat /proc/[0-9]*/comm")
    cluster.until(lambda: "sleep" in harness.kubectl(cluster, "--namespace", namespace, *look), "sleep runs")
    terminal.types("\x03")
    terminal.shows(PROMPT)
    terminal.types("echo code $?\n")
    terminal.shows(r"\scode 130\s")
    terminal.shows(PROMPT)
    terminal.types("echo 42 > answer.txt; exit 7\n")
    terminal.shows(r"reward: 1")
    assert terminal.ends() == 0
    status = cluster.finished(namespace, run)
    assert (status["reward"], status["agent"]["outcome"]) == ("1", "Succeeded")


@pytest.mark.parametrize("terminal", [[]], indirect=True)
def test_a_shell_that_ends_leaves_the_run_waiting(
    terminal: Terminal, cluster: harness.Cluster, namespace: str, run: str
) -> None:
    terminal.shows(PROMPT)
    terminal.types("exit 7\n")
    terminal.shows(r"Is the work done\? succeeded, failed")
    terminal.types("\n")
    terminal.shows(rf"taskfold finish --namespace {namespace} {run} succeeded")
    assert terminal.ends() == 7
    assert cluster.status(namespace, run)["phase"] == "Running"
    done = call(command(cluster, namespace, "finish", run, "failed", "--no-wait"))
    assert (done.returncode, done.stdout) == (0, "")
    assert cluster.finished(namespace, run)["agent"]["outcome"] == "Failed"


@pytest.mark.parametrize("terminal", [[]], indirect=True)
def test_somebody_who_is_asked_says_so(terminal: Terminal, cluster: harness.Cluster, namespace: str, run: str) -> None:
    terminal.shows(PROMPT)
    terminal.types("exit\n")
    terminal.shows(r"Is the work done\?")
    terminal.types("failed\n")
    terminal.shows(r"reward: 0")
    assert terminal.ends() == 1


def test_commands_from_a_pipe(cluster: harness.Cluster, namespace: str, run: str) -> None:
    script = "echo 42 > answer.txt\nid -u\necho said >&2\nexit 5\n"
    done = call(command(cluster, namespace, "attach", run), script)
    assert (done.returncode, done.stdout) == (5, "0\n"), done.stderr
    assert "Write 42 to answer.txt." in done.stderr
    assert "said\n" in done.stderr
    assert f"taskfold finish --namespace {namespace} {run} succeeded" in done.stderr
    done = call(command(cluster, namespace, "finish", run, "succeeded", "--response", "It is 42."))
    assert (done.returncode, done.stdout) == (0, "reward: 1\n"), done.stderr


def test_the_response_may_be_a_file(cluster: harness.Cluster, namespace: str, run: str, tmp_path: Any) -> None:
    (tmp_path / "answer.json").write_text('{"object": "response", "output": 3}')
    done = call(command(cluster, namespace, "finish", run, "succeeded", "--response", f"@{tmp_path}/answer.json"))
    assert (done.returncode, "output: is not a list" in done.stderr) == (64, True)
    assert "finish" not in cluster.run(namespace, run)["spec"]
    (tmp_path / "answer.json").write_text('{"object": "response", "output": []}')
    done = call(
        command(cluster, namespace, "attach", run, "--finish", "failed", "--response", f"@{tmp_path}/answer.json")
    )
    assert (done.returncode, done.stdout) == (1, "reward: 0\n"), done.stderr
    assert cluster.run(namespace, run)["spec"]["finish"]["response"] == '{"object": "response", "output": []}'


def test_what_cannot_be_attached_to(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    done = call(command(cluster, namespace, "attach", "no-such-run"))
    assert (done.returncode, "there is no TaskRun no-such-run" in done.stderr) == (3, True)
    cluster.create_run(namespace, name, harness.spec(FILES, harness.NOP))
    done = call(command(cluster, namespace, "finish", name, "succeeded"))
    assert (done.returncode, "has the agent nop" in done.stderr) == (3, True)
    other = f"{name}-over"
    cluster.create_run(namespace, other, harness.spec(FILES, {"external": {}}, finish={"outcome": "Succeeded"}))
    cluster.finished(namespace, other)
    done = call(command(cluster, namespace, "attach", other))
    assert (done.returncode, "is Succeeded" in done.stderr) == (3, True), done.stderr
