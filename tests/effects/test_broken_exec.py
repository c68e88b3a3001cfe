"""What real clients get wrong, on real sockets: nothing here is a success, and nothing hangs beyond its limit.

The ids name the symptom. Most were reported of kubectl, of the Kubernetes client libraries, or of other tools that run
sandboxes.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effects import fake_exec as fake
from tests.effects.fake_exec import PIN, Cutter, FakeCluster, Remote, serving
from tests.world import programs
from tests.world import sandbox as boxes

from taskfold.contract import folder as folders
from taskfold.effects import errors, frames, sandbox, sinks, transfer
from taskfold.effects import exec as execs
from taskfold.protocol import phase as phases

QUICK = execs.Limits(total_seconds=20, idle_seconds=10)
BOUNDS = {"max_bytes": 1 << 20, "max_entries": 100}
LIMIT = 60.0
"""No exchange here may take longer, whatever its own limits: they are shorter."""


# -- a whole exchange, cut anywhere ------------------------------------------------------------------------------------

OUTPUT = b"one line of output\n" * 20
CONTENT = b"content of a file " * 40


class Work:
    """A modelled sandbox with a program that leaves a mark each time it is started."""

    def __init__(self) -> None:
        book = programs.Book(texts={"work": programs.Script(0, 3, output=OUTPUT)})
        self.table = book.table
        self.box = boxes.Container(book=book)
        run = phases.Run("agent", ("sh", "-c", "work"), phases.Output("/logs/out"))
        read = [phases.Read("/logs/out", 1000)]
        self.request = phases.PhaseRequest("a" * 32, "agent", [phases.Unpack("/in")], [run], read)
        self.payload = transfer.from_folder(folders.MemoryFolder({"file": (CONTENT, False)}))

    async def phase(self, exec_: execs.Exec) -> phases.PhaseResult:
        result = await sandbox.Sandbox(exec_, PIN).run_phase(self.request, [self.payload], checked=True)
        assert (result.runs[0].return_code, result.files["/logs/out"].content) == (3, OUTPUT)
        return result

    async def copy(self, exec_: execs.Exec, folder: Path) -> None:
        box = sandbox.Sandbox(exec_, PIN)
        sink = sinks.ToDirectory(folder / "out", **BOUNDS)
        await box.pack([sandbox.Root("/in", "in")], sink, checked=True, **BOUNDS)
        assert (folder / "out" / "in" / "file").read_bytes() == CONTENT


async def _cut(cutter: Cutter, first: str) -> None:
    work = Work()
    cluster = FakeCluster(fake.modelled(work.box))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if first == "copy":
            async with serving(cluster) as (exec_, _):
                await work.phase(exec_)
        async with asyncio.timeout(LIMIT), serving(cluster, through=cutter) as (exec_, _):
            try:
                await (work.phase(exec_) if first == "phase" else work.copy(exec_, folder))
                arrived = True
            except errors.EffectError:
                arrived = False
        assert arrived or cutter.broke, "without a cut it is a success"
        async with asyncio.timeout(LIMIT), serving(cluster) as (exec_, _):
            for _ in range(50):  # the helper of the lost connection may still hold its claim
                try:
                    await work.phase(exec_)
                    break
                except errors.PhaseFailed as busy:
                    assert busy.reason == "Busy"
            with tempfile.TemporaryDirectory() as again:
                await work.copy(exec_, Path(again))
    assert len(work.table.starts) == 1
    work.box.end(137)


@settings(max_examples=40)
@given(at=st.integers(0, 4000), first=st.sampled_from(["phase", "copy"]))
def test_a_connection_cut_at_any_byte_on_its_way_to_us(at: int, first: str) -> None:
    asyncio.run(_cut(Cutter(to_client=at), first))


@settings(max_examples=40)
@given(at=st.integers(0, 4000), first=st.sampled_from(["phase", "copy"]))
def test_a_connection_cut_at_any_byte_on_its_way_to_the_sandbox(at: int, first: str) -> None:
    asyncio.run(_cut(Cutter(to_server=at), first))


# -- what arrives, and how ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, bytes]:
    """A server's context, and its certificate."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    extensions = ("subjectAltName=IP:127.0.0.1", "keyUsage=critical,digitalSignature,keyCertSign")
    options = [word for extension in extensions for word in ("-addext", extension)]
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=fake", "-days", "2")
    command = ["openssl", "req", "-x509", *curve, *options, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate.read_bytes()


@pytest.mark.parametrize("secure", [False, True], ids=["in one packet", "in one TLS record"])
async def test_many_frames_at_once_are_all_read(
    tls: tuple[ssl.SSLContext, bytes], secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing follows on the wire: who waits for the next packet while decrypted bytes are there waits for ever."""
    monkeypatch.setattr(execs, "LATE_SECONDS", 0.5)  # this server never closes; its status has long come by then
    lines = [b"%04d\n" % number for number in range(1000)]
    over = asyncio.Event()

    async def script(remote: Remote) -> None:
        frames_ = [fake.frame(b"\x01" + line) for line in lines] + [fake.frame(b"\x03" + fake.status(4))]
        whole = b"".join(frames_)
        assert len(whole) < 16 * 1024, "else it is more than one record"
        remote.transport.write(whole)
        await over.wait()

    async with asyncio.timeout(LIMIT), serving(FakeCluster(script), tls=tls if secure else None) as (exec_, _):
        result = await exec_.run(PIN, ["true"], limits=QUICK)
        over.set()
    assert result == execs.Completed(4, b"".join(lines), b"")


@pytest.mark.parametrize("size", [32_767, 32_768, 32_769, 65_536, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
async def test_output_is_not_cut_at_the_sizes_of_buffers(size: int) -> None:
    data = (b"%07d\n" * (size // 8 + 1) % tuple(range(size // 8 + 1)))[:size]

    async def script(remote: Remote) -> None:
        for start in range(0, size, 32_768):
            await remote.out(data[start : start + 32_768])
        await remote.end()

    async with serving(FakeCluster(script)) as (exec_, _):
        assert (await exec_.run(PIN, ["x"], max_stdout=size, limits=QUICK)).stdout == data


async def test_much_output_for_a_slow_reader_is_complete_and_keeps_its_code() -> None:
    size = 32 << 20

    async def script(remote: Remote) -> None:
        for _ in range(size >> 16):
            await remote.out(bytes(1 << 16))
        await remote.end(7)

    got = 0
    async with serving(FakeCluster(script)) as (exec_, _), exec_.open(PIN, ["x"], limits=QUICK) as stream:
        async for chunk in stream.stdout():
            got += len(chunk)
            assert stream._waiting <= execs.STDOUT_BUFFER + (1 << 16)
            await asyncio.sleep(0)
        assert (got, (await stream.wait()).code) == (size, 7)


# -- ends that are none ------------------------------------------------------------------------------------------------


def _phase(remote: Remote, *events: object) -> Awaitable[None]:
    return remote.out(b"".join(json.dumps(event).encode() + b"\n" for event in events))


STARTED = {"event": "started", "startedAt": "2026-01-01T00:00:00Z", "attached": False}


async def last_frame_dropped_with_success(remote: Remote) -> None:
    await _phase(remote, STARTED)
    await remote.end(0)  # where the event `done` was


async def last_half_dropped_with_success(remote: Remote) -> None:
    await remote.out(json.dumps(STARTED).encode() + b'\n{"event":"done","result":{"prepared":[],"runs":[')
    await remote.end(0)


async def closed_without_a_status(remote: Remote) -> None:
    await _phase(remote, STARTED)


async def not_found_folded_into_the_status(remote: Remote) -> None:
    wire = {"status": "Failure", "reason": "NotFound", "code": 404, "message": 'pods "pod" not found'}
    await remote.out(json.dumps(wire).encode(), 3)


async def a_failure_with_exit_code_0(remote: Remote) -> None:
    causes = [{"reason": "ExitCode", "message": "0"}]
    await remote.out(json.dumps({"status": "Failure", "details": {"causes": causes}}).encode(), 3)


async def a_failure_with_causes_that_are_no_exit_codes(remote: Remote) -> None:
    causes = ["x", {"reason": "ExitCode", "message": "many"}, {"reason": "ExitCode"}, {"reason": "Other"}]
    await remote.out(json.dumps({"status": "Failure", "details": {"causes": causes}}).encode(), 3)


async def a_failure_without_details(remote: Remote) -> None:
    await remote.out(fake.failure("something happened"), 3)


async def an_empty_status(remote: Remote) -> None:
    await remote.out(b"{}", 3)


async def a_status_that_is_a_list(remote: Remote) -> None:
    await remote.out(b"[]", 3)


async def a_status_without_content(remote: Remote) -> None:
    await remote.out(b"", 3)


async def a_status_of_null(remote: Remote) -> None:
    await remote.out(b"null", 3)


async def a_dropped_connection(remote: Remote) -> None:
    await _phase(remote, STARTED)
    remote.drop()


ENDS: list[Callable[[Remote], Awaitable[None]]] = [
    last_frame_dropped_with_success,
    last_half_dropped_with_success,
    closed_without_a_status,
    not_found_folded_into_the_status,
    a_failure_with_exit_code_0,
    a_failure_with_causes_that_are_no_exit_codes,
    a_failure_without_details,
    an_empty_status,
    a_status_that_is_a_list,
    a_status_without_content,
    a_status_of_null,
    a_dropped_connection,
]


@pytest.mark.parametrize("end", ENDS, ids=[end.__name__.replace("_", " ") for end in ENDS])
async def test_an_end_that_is_none(end: fake.Script) -> None:
    """Of a phase, and of a copy."""
    async with asyncio.timeout(LIMIT), serving(FakeCluster(end)) as (exec_, _):
        box = sandbox.Sandbox(exec_, PIN)
        with pytest.raises((errors.ExecError, errors.SandboxError)):
            await box.run_phase(phases.PhaseRequest("0" * 32, "agent"))
        with tempfile.TemporaryDirectory() as folder:
            with pytest.raises((errors.ExecError, errors.SandboxError, errors.TransferError)):
                await box.pack([sandbox.Root("/x", "x")], sinks.ToFile(Path(folder) / "x.tar"), **BOUNDS)
            assert os.listdir(folder) == []  # noqa: PTH208


@pytest.mark.parametrize("lost", [1, 4, 100, 2000], ids=lambda lost: f"the last {lost} bytes")
async def test_a_copy_whose_end_was_dropped_with_success(tmp_path: Path, lost: int) -> None:
    content = bytes(3000)
    trailer = frames.Trailer(1, len(content), hashlib.sha256(content).hexdigest())
    whole = frames.header(len(content)) + content + trailer.encode()

    async def script(remote: Remote) -> None:
        await remote.out(whole[:-lost])
        await remote.end(0)

    async with serving(FakeCluster(script)) as (exec_, _):
        with pytest.raises((errors.Truncated, errors.DigestMismatch)):
            box = sandbox.Sandbox(exec_, PIN)
            await box.pack([sandbox.Root("/x", "x")], sinks.ToFile(tmp_path / "x.tar"), **BOUNDS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("taken", [0, 1000], ids=["nothing arrived", "a part arrived"])
async def test_a_copy_in_that_arrived_short_and_is_reported_as_a_success(taken: int) -> None:
    async def script(remote: Remote) -> None:
        got = b""
        async for data in remote.stdin():
            got += data
            if b'"sha256"' in data:
                break
        answer = {"ok": True, "entries": 1, "bytes": taken, "sha256": hashlib.sha256(got[:taken]).hexdigest()}
        await _phase(remote, answer)
        await remote.end(0)

    payload = transfer.from_folder(folders.MemoryFolder({"x": (bytes(5000), False)}))
    async with asyncio.timeout(LIMIT), serving(FakeCluster(script)) as (exec_, _):
        with pytest.raises(errors.DigestMismatch):
            await sandbox.Sandbox(exec_, PIN).unpack("/x", payload, **BOUNDS)


# -- peers that hang ---------------------------------------------------------------------------------------------------


async def silent(remote: Remote) -> None:
    """Takes everything, says nothing, answers no ping: the socket is not read for those either."""
    await asyncio.Event().wait()


async def silent_after_the_start(remote: Remote) -> None:
    await _phase(remote, STARTED)
    await asyncio.Event().wait()


async def silent_after_half_an_event(remote: Remote) -> None:
    await remote.out(b'{"event":"do')
    await asyncio.Event().wait()


async def says_alive_for_ever(remote: Remote) -> None:
    await _phase(remote, STARTED)
    with contextlib.suppress(ConnectionError):
        while True:
            await _phase(remote, {"event": "alive"})
            await asyncio.sleep(0.05)


HUNG = [silent, silent_after_the_start, silent_after_half_an_event, says_alive_for_ever]


@pytest.mark.parametrize("script", HUNG, ids=[script.__name__.replace("_", " ") for script in HUNG])
async def test_a_peer_that_hangs_ends_at_the_limit(script: fake.Script) -> None:
    cluster = FakeCluster(script)
    async with asyncio.timeout(LIMIT), serving(cluster) as (exec_, _):
        with pytest.raises(errors.ExecTimeout):
            await sandbox.Sandbox(exec_, PIN).run_phase(phases.PhaseRequest("0" * 32, "agent"), total_seconds=0.5)
        cluster.script = fake.succeed
        assert (await exec_.run(PIN, ["true"], limits=QUICK)).code == 0, "its place is free again"


async def test_a_peer_that_hangs_before_the_handshake() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    source = execs.api.credentials.static(f"http://127.0.0.1:{port}")
    async with asyncio.timeout(LIMIT), server, execs.api.Client(source) as client:
        limits = execs.Limits(total_seconds=None, idle_seconds=None, start_seconds=0.3)
        with pytest.raises(errors.ConnectionLost, match="no handshake"):
            await execs.Exec(client).run(PIN, ["true"], limits=limits, checked=True)


async def test_a_peer_that_takes_no_more_of_an_archive_ends_at_the_limit() -> None:
    over = asyncio.Event()

    async def script(remote: Remote) -> None:
        await _phase(remote, {"event": "send"})
        await over.wait()

    files = {f"{index}": (bytes(1 << 20), False) for index in range(64)}
    request = phases.PhaseRequest("0" * 32, "agent", [phases.Unpack("/x")])
    async with asyncio.timeout(LIMIT), serving(FakeCluster(script)) as (exec_, _):
        payload = transfer.from_folder(folders.MemoryFolder(files))
        with pytest.raises(errors.ExecTimeout):
            await sandbox.Sandbox(exec_, PIN).run_phase(request, [payload], total_seconds=1)
        over.set()


# -- handshakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "kind"),
    [
        (fake.pod(), errors.NotRunning),
        (None, errors.NotRunning),
        (fake.pod(state="terminated", reason="OOMKilled"), errors.NotRunning),
        (fake.pod(uid="uid-2"), errors.PodReplaced),
        (fake.pod(restarts=1), errors.ContainerRestarted),
    ],
    ids=["as it was", "gone", "ended", "replaced", "restarted"],
)
async def test_a_500_at_the_handshake_is_explained_by_the_pod(
    pod: dict[str, object] | None, kind: type[Exception]
) -> None:
    """What the kubelet says of every container that does not run, through API servers of today."""
    refusal = (500, {"message": 'container not found ("main")'})
    async with serving(FakeCluster(pod=pod, refuse=refusal)) as (exec_, _):
        with pytest.raises(kind) as caught:
            await exec_.run(PIN, ["true"], checked=True)
    if pod is not None and kind is errors.NotRunning:
        assert caught.value.state in ("unknown", "terminated (OOMKilled)")  # type: ignore[attr-defined]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 500, 502, 503, 504])
async def test_a_refused_command_is_not_asked_for_again(status: int) -> None:
    """Whether it may run twice is the caller's knowledge. A 401 is asked again once, with new credentials."""
    cluster = FakeCluster(refuse=(status, {"message": "no"}))
    async with asyncio.timeout(LIMIT), serving(cluster) as (exec_, _):
        with pytest.raises(errors.ExecError):
            await exec_.run(PIN, ["true"], checked=True)
    assert len(cluster.offered) == (2 if status == 401 else 1)


async def test_an_upload_to_an_old_server_is_refused_and_not_left_hanging() -> None:
    """v4 cannot end stdin: `cat` in the pod would wait for ever."""
    cluster = FakeCluster(protocols=(execs.V4,))
    payload = transfer.from_folder(folders.MemoryFolder({"x": (b"x", False)}))
    async with asyncio.timeout(LIMIT), serving(cluster) as (exec_, _):
        box = sandbox.Sandbox(exec_, PIN)
        with pytest.raises(errors.HandshakeRefused, match=r"1\.30"):
            await box.unpack("/x", payload, **BOUNDS)
        with pytest.raises(errors.HandshakeRefused, match=r"1\.30"):
            await box.run_phase(phases.PhaseRequest("0" * 32, "agent"))
        assert (await exec_.run(PIN, ["true"])).code == 0, "without input it is good enough"


# -- descriptors -------------------------------------------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


async def test_five_hundred_execs_leave_the_descriptors_as_they_were() -> None:
    """Good ones and bad ones in turn; the first of each kind make the connections that are kept."""
    ends: list[fake.Script] = [each for end in ENDS for each in (fake.succeed, end)]
    cluster = FakeCluster()
    seen = {True: 0, False: 0}

    async def one(exec_: execs.Exec, number: int) -> bool:
        cluster.script = ends[number % len(ends)]
        cluster.refuse = (500, {"message": "no"}) if number % 50 == 49 else None
        try:
            await exec_.run(PIN, ["true"], limits=QUICK, stdin=b"x" if number % 3 == 0 else None)
        except errors.ExecError:
            return False
        return True

    async with asyncio.timeout(110), serving(cluster) as (exec_, _):
        for number in range(50):
            await one(exec_, number)
        before = await settled(0)
        for number in range(500):
            seen[await one(exec_, number)] += 1
        await settled(before)
    assert min(seen.values()) > 100


async def settled(most: int) -> int:
    """Descriptors, once they are no more than that (0: once they are no longer fewer); servers close a bit later."""
    last = descriptors()
    while True:
        await asyncio.sleep(0.05)
        now = descriptors()
        if now <= most or (most == 0 and now >= last):
            return now
        last = now
