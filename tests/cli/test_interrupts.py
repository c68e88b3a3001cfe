"""Ctrl-C: a real process, a real signal."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, document
from .fakes import CANCELLED, RUNNING, FakeCluster, judged

LIMIT_SECONDS = 60


class Process:
    """`taskfold run … --output json`, with what it says so far."""

    def __init__(self, folder: Path) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "taskfold", "run", str(folder), "--output", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT / "operator")},
        )
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until(self, text: str) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while text not in self.said:
            assert time.monotonic() < deadline, self.said
            assert self.child.poll() is None, self.said
            time.sleep(0.01)

    def end(self) -> tuple[int, dict[str, Any]]:
        assert self.child.stdout is not None
        code = self.child.wait(LIMIT_SECONDS)
        self._reader.join(LIMIT_SECONDS)
        return code, document(self.child.stdout.read())

    def _read(self) -> None:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            self.said += line


@pytest.fixture
def process(write: Any, cluster: FakeCluster) -> Iterator[Process]:
    cluster.statuses[:] = [RUNNING]
    started = Process(write())
    yield started
    if started.child.poll() is None:
        started.child.kill()
        started.child.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_cancels_and_waits_for_the_end(
    process: Process, cluster: FakeCluster, number: signal.Signals
) -> None:
    cluster.on_cancel = list(CANCELLED)
    process.until("AgentRunning")
    process.child.send_signal(number)
    code, found = process.end()
    assert (code, found["outcome"], found["phase"]) == (130, "cancelled", "Cancelled")
    assert cluster.run["spec"]["cancel"] is True


def test_a_verdict_that_comes_first_stands(process: Process, cluster: FakeCluster) -> None:
    cluster.on_cancel = [judged("1", complete=True)]
    process.until("AgentRunning")
    process.child.send_signal(signal.SIGINT)
    code, found = process.end()
    assert (code, found["outcome"], found["reward"]) == (130, "verdict", 1)


def test_the_second_leaves_at_once(process: Process, cluster: FakeCluster) -> None:
    cluster.on_cancel = []
    process.until("AgentRunning")
    process.child.send_signal(signal.SIGINT)
    process.until("Ctrl-C again leaves at once")
    process.child.send_signal(signal.SIGINT)
    code, found = process.end()
    assert (code, found["outcome"], found["failure"]["reason"]) == (130, "running", "Interrupted")
    assert cluster.run["spec"]["cancel"] is True
