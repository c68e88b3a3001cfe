"""Every way in which an exec can end, against a server that can misbehave."""

import asyncio
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effects import fake_exec as fake
from tests.effects.fake_exec import PIN, FakeCluster, Remote, serving

from taskfold.effects import errors, places
from taskfold.effects import exec as execs

QUICK = execs.Limits(total_seconds=20, idle_seconds=10)


async def run(cluster: FakeCluster, **options: object) -> execs.Completed:
    async with serving(cluster) as (exec_, _):
        return await exec_.run(PIN, ["true"], limits=QUICK, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [0, 1, 42, 126, 127, 137, 255])
async def test_an_exit_code_is_a_value(code: int) -> None:
    async def script(remote: Remote) -> None:
        await remote.out(b"out")
        await remote.out(b"err", 2)
        await remote.end(code)

    assert await run(FakeCluster(script)) == execs.Completed(code, b"out", b"err")


async def test_stdin_is_delivered_in_bounded_frames_and_half_closed() -> None:
    got = bytearray()

    async def script(remote: Remote) -> None:
        async for data in remote.stdin():
            got.extend(data)
        await remote.out(b"%d" % len(got))
        await remote.end()

    data = bytes(range(256)) * 4096
    result = await run(FakeCluster(script), stdin=data)
    assert result.stdout == b"%d" % len(data)
    assert got == data


async def test_only_v5_is_offered_with_stdin() -> None:
    cluster = FakeCluster(protocols=(execs.V4,))
    with pytest.raises(errors.HandshakeRefused, match=r"1\.30"):
        await run(cluster, stdin=b"x")
    assert cluster.offered == [execs.V5]


async def test_v4_is_good_enough_without_stdin() -> None:
    cluster = FakeCluster(protocols=(execs.V4,))
    assert (await run(cluster)).code == 0
    assert cluster.offered == [f"{execs.V5},{execs.V4}"]


async def test_no_common_protocol_is_refused() -> None:
    with pytest.raises(errors.HandshakeRefused):
        await run(FakeCluster(protocols=("channel.k8s.io",)))


async def test_closing_without_a_status_is_an_unknown_outcome() -> None:
    async def script(remote: Remote) -> None:
        await remote.out(b"all of the output")

    with pytest.raises(errors.ConnectionLost, match="without a final status"):
        await run(FakeCluster(script))


async def test_a_dropped_connection_is_an_unknown_outcome() -> None:
    async def script(remote: Remote) -> None:
        await remote.out(b"some")
        remote.drop()

    with pytest.raises(errors.ConnectionLost):
        await run(FakeCluster(script))


async def test_output_after_the_status_is_not_lost() -> None:
    """The API server's copies of stdout and of the status race (kubernetes#124571)."""

    async def script(remote: Remote) -> None:
        await remote.out(b"first ")
        await remote.end(3)
        await remote.out(b"late")

    assert await run(FakeCluster(script)) == execs.Completed(3, b"first late", b"")


async def test_an_early_exit_while_uploading_keeps_its_code_and_output() -> None:
    async def script(remote: Remote) -> None:
        await remote.out(b"no, thanks")
        await remote.end(9)

    async with serving(FakeCluster(script)) as (exec_, _), exec_.open(PIN, ["x"], stdin=True) as stream:
        with pytest.raises(errors.InputRefused):
            for _ in range(10_000):
                await stream.send(bytes(1 << 20))
        assert b"".join([bytes(chunk) async for chunk in stream.stdout()]) == b"no, thanks"
        assert (await stream.wait()).code == 9


async def test_reading_goes_on_while_writing() -> None:
    """`cat` of more than every buffer on the way: would deadlock if input went first."""
    data = bytes(range(256)) * (64 << 10)  # 16 MiB

    async with serving(FakeCluster(fake.process())) as (exec_, _):
        result = await exec_.run(PIN, ["cat"], stdin=data, max_stdout=len(data), limits=QUICK)
    assert result.stdout == data


async def test_too_much_output() -> None:
    async def script(remote: Remote) -> None:
        for _ in range(20):
            await remote.out(bytes(1000))
        await remote.end()

    with pytest.raises(errors.OutputTooLarge) as caught:
        await run(FakeCluster(script), max_stdout=10_000)
    assert caught.value.limit == 10_000


async def test_stderr_keeps_its_end() -> None:
    async def script(remote: Remote) -> None:
        for index in range(100):
            await remote.out(b"%05d" % index * 500, 2)
        await remote.end(1)

    result = await run(FakeCluster(script))
    assert len(result.stderr) == execs.STDERR_TAIL
    assert result.stderr.endswith(b"00099")


@pytest.mark.parametrize(
    ("limits", "idle"),
    [(execs.Limits(total_seconds=0.3, idle_seconds=None), False), (execs.Limits(None, 0.3), True)],
    ids=["total", "idle"],
)
async def test_limits(limits: execs.Limits, idle: bool) -> None:
    async def script(remote: Remote) -> None:
        async for _ in remote.stdin():
            pass

    async with serving(FakeCluster(script)) as (exec_, _):
        with pytest.raises(errors.ExecTimeout) as caught:
            async with exec_.open(PIN, ["sleep"], limits=limits) as stream:
                await stream.wait()
    assert (caught.value.seconds, caught.value.idle) == (0.3, idle)


async def test_the_limit_ends_a_sender_that_nobody_reads() -> None:
    """The server reads nothing: the send buffer stays full, and only the watchdog can end the wait."""

    over = asyncio.Event()

    async def script(remote: Remote) -> None:
        await over.wait()

    limits = execs.Limits(total_seconds=None, idle_seconds=0.5)
    async with serving(FakeCluster(script)) as (exec_, _):
        async with exec_.open(PIN, ["x"], stdin=True, limits=limits) as stream:
            with pytest.raises(errors.ExecTimeout):
                while True:
                    await stream.send(bytes(1 << 20))
        over.set()


async def test_a_slow_reader_is_not_idle() -> None:
    size = 8 << 20

    async def script(remote: Remote) -> None:
        for _ in range(size >> 15):
            await remote.out(bytes(1 << 15))
        await remote.end()

    limits = execs.Limits(total_seconds=None, idle_seconds=2)
    async with serving(FakeCluster(script)) as (exec_, _), exec_.open(PIN, ["x"], limits=limits) as stream:
        await asyncio.sleep(4)  # not a wait for something: how slow the reader is
        assert stream._waiting <= execs.STDOUT_BUFFER + (1 << 15)
        assert sum([len(chunk) async for chunk in stream.stdout()]) == size
        assert (await stream.wait()).code == 0


async def test_unread_output_is_discarded_by_wait() -> None:
    async def script(remote: Remote) -> None:
        for _ in range(200):
            await remote.out(bytes(1 << 15))
        await remote.end(5)

    async with serving(FakeCluster(script)) as (exec_, _), exec_.open(PIN, ["x"]) as stream:
        assert (await stream.wait()).code == 5


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('unable to upgrade connection: container not found ("main")', errors.NotRunning),
        ("container is not running", errors.NotRunning),
        (
            "Internal error occurred: failed to exec in container: failed to start exec: OCI runtime exec failed: "
            'exec failed: unable to start container process: exec: "nope": executable file not found in $PATH',
            errors.StartFailed,
        ),
        ("error dialing backend: dial tcp 10.0.0.1:10250: connect: connection refused", errors.HandshakeRefused),
        ("error reading from error stream: unexpected EOF", errors.ConnectionLost),
    ],
)
async def test_a_status_without_exit_code(message: str, kind: type[Exception]) -> None:
    async def script(remote: Remote) -> None:
        await remote.out(fake.failure(message), 3)

    with pytest.raises(kind, match=r"ns/pod"):
        await run(FakeCluster(script))


async def test_a_status_that_is_not_json_is_unknown() -> None:
    async def script(remote: Remote) -> None:
        await remote.out(b"<html>", 3)

    with pytest.raises(errors.ConnectionLost, match="html"):
        await run(FakeCluster(script))


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (None, errors.NotRunning),
        (fake.pod(uid="uid-2"), errors.PodReplaced),
        (fake.pod(restarts=1), errors.ContainerRestarted),
        (fake.pod(state="terminated", reason="OOMKilled"), errors.NotRunning),
        (fake.pod(state="waiting", reason="ContainerCreating"), errors.NotRunning),
    ],
    ids=["gone", "replaced", "restarted", "terminated", "waiting"],
)
async def test_nothing_is_started_in_another_sandbox(seen: dict[str, object] | None, kind: type[Exception]) -> None:
    cluster = FakeCluster(pod=seen)
    with pytest.raises(kind):
        await run(cluster)
    assert cluster.offered == []


async def test_a_fresh_observation_saves_the_get() -> None:
    cluster = FakeCluster()
    assert (await run(cluster, checked=True)).code == 0
    assert cluster.gets == 0


async def test_a_pod_that_was_replaced_under_way_explains_the_failure() -> None:
    cluster = FakeCluster()

    async def script(remote: Remote) -> None:
        cluster.pod = fake.pod(uid="uid-2")
        await remote.out(fake.failure("error dialing backend"), 3)

    cluster.script = script
    with pytest.raises(errors.PodReplaced):
        await run(cluster)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (403, "Forbidden", errors.HandshakeRefused),
        (404, "NotFound", errors.NotRunning),
        (400, "BadRequest", errors.HandshakeRefused),
        (500, "InternalError", errors.HandshakeRefused),
        (502, "", errors.ConnectionLost),
        (200, "", errors.HandshakeRefused),
    ],
)
async def test_a_refused_handshake_keeps_the_api_message(status: int, reason: str, kind: type[Exception]) -> None:
    cluster = FakeCluster(refuse=(status, {"reason": reason, "message": "the API's own words"}))
    with pytest.raises(kind) as caught:
        await run(cluster)
    if status != 200:
        assert "the API's own words" in str(caught.value)
    if status == 403:
        assert "pods/exec" in str(caught.value)


async def test_leaving_early_drops_the_connection_at_once() -> None:
    gone = asyncio.Event()

    async def script(remote: Remote) -> None:
        try:
            async for _ in remote.stdin():
                pass
        finally:
            gone.set()

    async with serving(FakeCluster(script)) as (exec_, _):
        async with exec_.open(PIN, ["sleep"], stdin=True):
            pass
        await asyncio.wait_for(gone.wait(), 60)


async def test_cancellation_passes() -> None:
    over = asyncio.Event()

    async def script(remote: Remote) -> None:
        await over.wait()

    async with serving(FakeCluster(script)) as (exec_, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await exec_.run(PIN, ["sleep"], stdin=b"x")
        over.set()


async def test_execs_are_bounded_in_all_and_per_node() -> None:
    started, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def script(remote: Remote) -> None:
        started.release()
        await go_on.wait()
        await remote.end()

    cluster = FakeCluster(script)
    async with (
        serving(cluster, caps=places.Caps(execs=3, execs_per_node=2)) as (exec_, _),
        asyncio.TaskGroup() as group,
    ):
        pins = [PIN] * 4 + [execs.PodPin("ns", "pod", "uid-1", node="node-2")] * 4
        for pin in pins:
            group.create_task(exec_.run(pin, ["true"]))
        for _ in range(3):
            await asyncio.wait_for(started.acquire(), 60)
        go_on.set()
    assert cluster.most <= 3


async def test_a_pin_of_an_observed_pod() -> None:
    assert execs.PodPin.of(fake.pod(restarts=2)) == execs.PodPin("ns", "pod", "uid-1", "main", 2, "node-1")
    with pytest.raises(errors.NotRunning) as caught:
        execs.PodPin.of(fake.pod(state="terminated", reason="Error"))
    assert caught.value.state == "terminated (Error)"


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(0, 5000), max_size=12))
def test_output_is_the_same_however_it_is_split(cuts: list[int]) -> None:
    data = json.dumps(list(range(900))).encode()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]

    async def script(remote: Remote) -> None:
        for start, end in itertools.pairwise(edges):
            await remote.out(data[start:end])  # empty messages included
        await remote.end()

    assert asyncio.run(run(FakeCluster(script))).stdout == data
