"""Ctrl-C: a real process, a real signal."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

from .conftest import ROOT, document, verification
from .fakes import CANCELLED, RUNNING, FakeCluster, going, judged

LIMIT_SECONDS = 60
VERIFYING = going("Verifying", "Verifying")


class Process:
    """`taskfold … --output json`, with what it says so far."""

    def __init__(self, *words: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "taskfold", *words, "--output", "json"],
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

    def end(self, read: Callable[[str], dict[str, Any]] = document) -> tuple[int, dict[str, Any]]:
        assert self.child.stdout is not None
        code = self.child.wait(LIMIT_SECONDS)
        self._reader.join(LIMIT_SECONDS)
        return code, read(self.child.stdout.read())

    def kill(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    def _read(self) -> None:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            self.said += line


@pytest.fixture
def process(write: Any, cluster: FakeCluster) -> Iterator[Process]:
    cluster.statuses[:] = [RUNNING]
    started = Process("run", str(write()))
    yield started
    started.kill()


@pytest.fixture
def regrading(cluster: FakeCluster) -> Iterator[Process]:
    cluster.have("r", judged("0.5", complete=True))
    cluster.statuses[:] = [VERIFYING]
    started = Process("regrade", "r")
    yield started
    started.kill()


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_regrade_is_left_and_goes_on(regrading: Process, cluster: FakeCluster, number: signal.Signals) -> None:
    regrading.until("Verifying")
    regrading.child.send_signal(number)
    code, found = regrading.end(verification)
    assert (code, found["outcome"], found["failure"]["reason"]) == (130, "running", "Interrupted")
    assert found["message"].startswith("Ctrl-C; the VerifierRun goes on. See: kubectl --namespace ns get verifierrun ")
    assert cluster.verifier["status"] == VERIFYING
    assert "cancel" not in cluster.calls


@pytest.mark.parametrize("held", ["looked up", "created"])
def test_a_regrade_that_has_not_begun_is_left(cluster: FakeCluster, held: str) -> None:
    cluster.have("r", judged("0.5", complete=True))
    arrived = threading.Event()

    async def hold() -> web.Response:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError("nothing wakes it")

    if held == "created":
        cluster.create = hold
    else:
        cluster.read["taskruns"] = hold
    process = Process("regrade", "r", "--name", "a")
    try:
        assert arrived.wait(LIMIT_SECONDS)
        process.child.send_signal(signal.SIGINT)
        code, found = process.end(verification)
        assert (code, found["outcome"], found["failure"]["reason"]) == (130, "cancelled", "Interrupted")
        assert (found["name"], found["namespace"]) == ("a", "ns")
        assert held in found["message"] or "before the VerifierRun was created" in found["message"]
    finally:
        process.kill()
