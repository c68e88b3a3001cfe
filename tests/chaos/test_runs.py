"""The mix of runs, and the reports of their starts: both must be right before a fault can prove anything."""

import collections
import random
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import ports
from tests.chaos import report, runs
from tests.chaos.starts import Starts
from tests.conformance import counting_server


class Server:
    """Stands for the counter's pod."""

    address = "127.0.0.1"

    def counts(self, run: str) -> dict[str, int]:
        prefix = f"{run}."
        counted = counting_server.counts
        return {key.removeprefix(prefix): count for key, count in counted.items() if key.startswith(prefix)}


def starts(namespace: str = "ns") -> Starts:
    return Starts(Server(), namespace)  # type: ignore[arg-type]


def mixed(seed: int, count: int = 40) -> list[runs.Case]:
    return runs.mix(count, random.Random(seed), starts(), {"ttlSecondsAfterFinished": 9})


def test_a_seed_gives_the_same_mix() -> None:
    assert mixed(1) == mixed(1)
    assert mixed(1) != mixed(2)


def test_a_whole_mix_has_every_shape_and_every_name_once() -> None:
    names = [case.name for case in mixed(3)]
    assert len(set(names)) == len(names) == 40
    assert {name.rpartition("-")[0] for name in names} == {s.__name__.replace("_", "-") for s in runs.SHAPES}


def test_a_short_mix_has_a_cancellation_a_suspension_and_a_heavy_verification() -> None:
    shapes = {case.name.rpartition("-")[0] for case in mixed(4, 8)}
    assert {"cancelled", "suspended", "many-rewards"} <= shapes


def test_what_all_runs_have_besides_is_in_each_spec() -> None:
    assert all(case.spec["ttlSecondsAfterFinished"] == 9 for case in mixed(5))


def test_no_run_may_end_with_what_a_verifier_gives_for_missing_work() -> None:
    assert all(case.end.reward != runs.WRONG for case in mixed(6))


@contextmanager
def serving(port: int) -> Iterator[None]:
    with counting_server.Server(("127.0.0.1", port), counting_server.Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    found = ports.free()
    monkeypatch.setattr("tests.conformance.counter.PORT", found)
    return found


def bash(script: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["bash", "-c", script])


def test_every_start_is_counted_once(port: int) -> None:
    lines = starts("each").lines("run-1", "agent")
    with serving(port):
        assert [bash(lines).wait(30), bash(lines).wait(30)] == [0, 0]
    assert starts("each").of("run-1") == {"agent": 2}
    assert starts("each").of("run-2") == {}


def test_a_report_waits_for_a_network_that_was_cut_and_counts_one_start(port: int) -> None:
    heard = threading.Event()

    class Deaf(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            """Takes the report and loses the answer."""
            heard.set()

    class Cut(socketserver.TCPServer):
        allow_reuse_address = True  # the counter takes its place at once

    with Cut(("127.0.0.1", port), Deaf) as deaf:
        script = bash(starts("cut").lines("run-1", "test"))
        deaf.handle_request()
    assert heard.is_set()
    with serving(port):
        assert script.wait(60) == 0
    assert starts("cut").of("run-1") == {"test": 1}


def test_the_table_of_results_has_a_row_for_each_fault() -> None:
    losses = collections.Counter({"PodDeleted": 2})
    result = report.Result("kubelet-killed", 40, 39, losses, blows=3, doubles=0, orphans=1, ended=0, seconds=61.4)
    lines = report.table([result]).splitlines()
    assert lines[0].split()[:2] == ["fault", "blows"]
    assert lines[1].split() == ["kubelet-killed", "3", "40", "39", "2", "PodDeleted", "0", "1", "0", "61", "-"]
