"""The helper's protocol against the real helper, over the fake exec server; and against what a broken one
says.
"""

import asyncio
import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.effects.fake_exec import PIN, FakeCluster, Remote, serving
from tests.effects.local_box import boxed

from taskfold.contract import folder as folders
from taskfold.effects import errors, frames, packed, sandbox, scrubbing, sinks, transfer
from taskfold.protocol import phase as phases

BOUNDS: dict[str, Any] = {"max_bytes": 1 << 32, "max_entries": 100_000}


def shell(script: str, out: Path, **more: object) -> phases.Run:
    return phases.Run("main", ("sh", "-c", script), phases.Output(str(out)), **more)  # type: ignore[arg-type]


async def test_a_phase_from_beginning_to_end(helper: Path, tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    folder = folders.MemoryFolder({"test.sh": (b"echo out; echo 1 > $OUT; exit 3", False)})
    request = phases.PhaseRequest(
        nonce=sandbox.new_nonce(),
        phase="verify",
        prepare=[phases.Tools(("sh", "no-such-tool")), phases.Reset(str(tests)), phases.Unpack(str(tests))],
        runs=[shell(f"sh {tests}/test.sh", tmp_path / "log", env={"OUT": str(tmp_path / "reward")})],
        read=[phases.Read(str(tmp_path / "reward"), 100), phases.Read(str(tmp_path / "none"), 100)],
    )
    seen: list[sandbox.Started] = []

    async def started(event: sandbox.Started) -> None:
        seen.append(event)

    async with boxed(helper) as box:
        result = await box.run_phase(request, [transfer.from_folder(folder)], on_started=started)
        again = await box.run_phase(request, [transfer.from_folder(folder)], on_started=started)
        attached = await box.run_phase(replace(request, attach_only=True))
    assert again == result == attached
    assert [event.attached for event in seen] == [False, True]
    run = result.run("main")
    assert run is not None
    assert (run.return_code, run.inline) == (3, b"out\n")
    assert result.missing_tools() == ("no-such-tool",)
    assert result.files[str(tmp_path / "reward")].content == b"1\n"
    assert result.files[str(tmp_path / "none")].state is phases.FileState.MISSING
    assert (tests / "test.sh").stat().st_mode & 0o777 == 0o755


async def test_one_exec_serves_the_phases_of_a_pod_and_the_copy(helper: Path, tmp_path: Path) -> None:
    cluster = FakeCluster()
    kept = [
        phases.PhaseRequest(
            nonce=sandbox.new_nonce(),
            phase=name,
            prepare=[phases.Unpack(str(tmp_path / name))],
            runs=[shell(f"cat {tmp_path}/{name}/word", tmp_path / f"{name}.log")],
            keep=True,
        )
        for name in ("agent", "verify")
    ]
    async with boxed(helper, cluster=cluster) as box:
        for request in kept:
            folder = folders.MemoryFolder({"word": (request.phase.encode(), False)})
            result = await box.run_phase(request, [transfer.from_folder(folder)])
            assert [run.inline for run in result.runs] == [request.phase.encode()]
        out = sinks.ToDirectory(tmp_path / "out", **BOUNDS)
        await box.pack([sandbox.Root(str(tmp_path / "agent"), "agent")], out, **BOUNDS)
        assert len(cluster.offered) == 1
        again = await box.run_phase(replace(kept[0], attach_only=True))
        assert [run.inline for run in again.runs] == [b"agent"]
        assert len(cluster.offered) == 2, "the copy was the last on its stream"
    assert (tmp_path / "out/agent/word").read_bytes() == b"agent"


async def test_one_exec_serves_copies_and_the_phase_behind_them(helper: Path, tmp_path: Path) -> None:
    cluster = FakeCluster()
    (tmp_path / "f").write_bytes(b"word")
    async with boxed(helper, cluster=cluster) as box:
        for name in ("f", "none", "f"):
            root = sandbox.Root(str(tmp_path / name), "f")
            result = await box.pack([root], sinks.ToFile(tmp_path / "x.tar"), keep=True, **BOUNDS)
            assert [each.type for each in result.roots] == ["file" if name == "f" else "missing"]
        request = phases.PhaseRequest(sandbox.new_nonce(), "agent", runs=[shell("echo end", tmp_path / "log")])
        assert [run.inline for run in (await box.run_phase(replace(request, keep=True))).runs] == [b"end\n"]
        await box.pack([root], sinks.ToFile(tmp_path / "x.tar"), **BOUNDS)
        assert len(cluster.offered) == 1


async def test_a_kept_stream_that_broke_costs_one_try(helper: Path, tmp_path: Path) -> None:
    cluster = FakeCluster()
    request = phases.PhaseRequest(sandbox.new_nonce(), "agent", runs=[shell("echo once", tmp_path / "log")], keep=True)
    async with boxed(helper, cluster=cluster) as box:
        first = await box.run_phase(request)
        for socket in list(cluster.sockets):
            await socket.close()
        with pytest.raises(errors.ExecError):
            await box.run_phase(replace(request, attach_only=True))
        assert await box.run_phase(replace(request, attach_only=True)) == first


async def test_an_unknown_phase_cannot_be_attached_to(helper: Path) -> None:
    async with boxed(helper) as box:
        with pytest.raises(errors.UnknownPhase):
            await box.run_phase(phases.PhaseRequest("0" * 32, "agent", attach_only=True))


async def test_nothing_starts_after_a_failed_preparation(helper: Path, tmp_path: Path) -> None:
    missing = phases.Tools(("no-such-tool",), required=True)
    request = phases.PhaseRequest(
        sandbox.new_nonce(), "agent", [missing], [shell(f"touch {tmp_path}/ran", tmp_path / "log")]
    )
    async with boxed(helper) as box:
        with pytest.raises(errors.PhaseFailed) as caught:
            await box.run_phase(request)
        assert (caught.value.reason, caught.value.results[0]["missing"]) == ("MissingTools", ["no-such-tool"])
        with pytest.raises(errors.PhaseFailed) as wrong:
            payload = transfer.from_folder(folders.MemoryFolder({"x": (b"x", False)}))
            unpack = phases.Unpack(str(tmp_path / "u"), digest="0" * 64)
            await box.run_phase(replace(request, prepare=[unpack]), [payload])
        assert wrong.value.reason == "Digest"
        # the nonce is free again
        assert (await box.run_phase(replace(request, prepare=[]))).run("main") is not None
    assert (tmp_path / "ran").exists()


async def test_a_lost_connection_does_not_stop_a_phase(helper: Path, tmp_path: Path) -> None:
    request = phases.PhaseRequest(
        sandbox.new_nonce(), "agent", runs=[shell(f"sleep 1; echo x >> {tmp_path}/ran", tmp_path / "log")]
    )

    class GoneError(Exception):
        pass

    async def leave(_: sandbox.Started) -> None:
        raise GoneError

    async with boxed(helper) as box:
        with pytest.raises(GoneError):
            await box.run_phase(request, on_started=leave)
        result = await box.run_phase(request)
    run = result.run("main")
    assert run is not None
    assert run.succeeded
    assert (tmp_path / "ran").read_text() == "x\n", "started once"


async def test_a_payload_that_cannot_be_read_starts_nothing(helper: Path, tmp_path: Path) -> None:
    request = phases.PhaseRequest(
        sandbox.new_nonce(),
        "agent",
        [phases.Unpack(str(tmp_path / "u"))],
        [shell(f"touch {tmp_path}/ran", tmp_path / "log")],
    )
    async with boxed(helper) as box:
        with pytest.raises(errors.SourceChanged):
            await box.run_phase(request, [transfer.from_file(tmp_path / "none", "x")])
    assert not (tmp_path / "ran").exists()


async def test_a_request_needs_its_payloads(helper: Path) -> None:
    async with boxed(helper) as box:
        with pytest.raises(ValueError, match="1 operations take an archive, 0 payloads"):
            await box.run_phase(phases.PhaseRequest("0" * 32, "x", [phases.Unpack("/x")]))


@pytest.mark.parametrize("size", [0, 1, 32767, 32768, 32769, 2**20 - 1, 2**20, 2**20 + 1, 64 << 20])
async def test_a_file_of_any_size_goes_in_and_out(helper: Path, tmp_path: Path, size: int) -> None:
    content = (hashlib.sha256(b"%d" % size).digest() * (size // 32 + 1))[:size]
    (tmp_path / "in").write_bytes(content)
    async with boxed(helper, chunk=10_007 if size < 1 << 22 else 32768) as box:
        there = await box.unpack(str(tmp_path / "there"), transfer.from_file(tmp_path / "in", "file"), **BOUNDS)
        assert there.entries == 1
        sink = sinks.ToDirectory(tmp_path / "back", **BOUNDS)
        back = await box.pack([sandbox.Root(str(tmp_path / "there"), "r")], sink, **BOUNDS)
    assert (tmp_path / "back" / "r" / "file").read_bytes() == content
    assert not back.truncated


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: creating a file takes half a millisecond on some disks."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield Path(path)


async def test_ten_thousand_small_files(helper: Path, memory_path: Path) -> None:
    tmp_path = memory_path
    files = {f"d{index % 100}/{index}": (b"%d" % index * 50, index % 3 == 0) for index in range(10_000)}
    payload = transfer.from_folder(folders.MemoryFolder(files))
    async with boxed(helper) as box:
        await box.unpack(str(tmp_path / "there"), payload, **BOUNDS)
        sink = sinks.ToDirectory(tmp_path / "back", **BOUNDS)
        await box.pack([sandbox.Root(str(tmp_path / "there"), ".")], sink, **BOUNDS)
    for name, (content, executable) in files.items():
        path = tmp_path / "back" / name
        assert path.read_bytes() == content
        assert bool(path.stat().st_mode & 0o100) == executable


async def test_what_is_not_packed_is_listed(helper: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    subprocess.run(["mkfifo", str(tmp_path / "fifo")], check=True)
    roots = [sandbox.Root(str(tmp_path), "r"), sandbox.Root("/no/such", "n")]
    async with boxed(helper) as box:
        result = await box.pack(roots, sinks.ToFile(tmp_path.with_suffix(".tar")), **BOUNDS)
    assert result.skipped_count == 2
    assert {(each.path, each.reason) for each in result.skipped} == {
        (str(tmp_path / "fifo"), "special"),
        ("/no/such", "missing"),
    }


async def test_secrets_do_not_come_out_but_where_they_may(helper: Path, tmp_path: Path) -> None:
    secret = b"hunter22\x00\xff" * 3
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "log").write_bytes(bytes(300_000) + secret + b" and " + secret[:9])
    (logs / "reward.json").write_bytes(secret)
    async with boxed(helper) as box:
        result = await box.pack(
            [sandbox.Root(str(logs), ".")],
            sinks.ToDirectory(tmp_path / "out", **BOUNDS),
            scrub=[secret, b"another one"],
            scrub_except=[str(logs / "reward.json")],
            **BOUNDS,
        )
    assert result.scrubbed == 1
    assert (tmp_path / "out" / "log").read_bytes() == bytes(300_000) + b"*" * len(secret) + b" and " + secret[:9]
    assert (tmp_path / "out" / "reward.json").read_bytes() == secret


@pytest.mark.parametrize(
    "scrub",
    [[b"hunter2"], [b"x" * 65_537], [b"12345678"] * 257, [b"x" * 65_536] * 9],
    ids=["short", "long", "many", "much"],
)
async def test_what_cannot_be_scrubbed_is_refused_before_anything_is_sent(tmp_path: Path, scrub: list[bytes]) -> None:
    async with serving(saying(code=1)) as (exec_, _):
        with pytest.raises(ValueError, match="to scrub") as refused:
            sink = sinks.ToFile(tmp_path / "x.tar")
            await sandbox.Sandbox(exec_, PIN).pack([sandbox.Root("/x", "x")], sink, scrub=scrub, **BOUNDS)
    assert "hunter" not in str(refused.value)


async def test_the_bounds_of_scrubbing_are_the_helpers(helper: Path, tmp_path: Path) -> None:
    most = [bytes([index]) * scrubbing.MAX_BYTES for index in range(8)]
    async with boxed(helper) as box:
        roots = [sandbox.Root("/no/such", "x")]
        result = await box.pack(roots, sinks.ToFile(tmp_path / "x.tar"), scrub=most, **BOUNDS)
    assert (result.scrubbed, result.skipped_count) == (0, 1)


async def test_a_working_directory_behind_the_images_link(helper: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").symlink_to("run")
    (tmp_path / "file").write_text("precious")
    follow = phases.Directory(str(tmp_path / "var" / "app"), existing="keep", links="follow")
    blocked = phases.Directory(str(tmp_path / "file"), existing="keep", links="follow")
    request = phases.PhaseRequest(sandbox.new_nonce(), "seed", [follow], [shell("true", tmp_path / "log")])
    async with boxed(helper) as box:
        result = await box.run_phase(request)
        with pytest.raises(errors.PhaseFailed, match=f"{tmp_path}/file") as failed:
            await box.run_phase(replace(request, nonce=sandbox.new_nonce(), prepare=[blocked]))
    assert result.prepared[0]["created"] is True
    assert result.runs[0].oom_kills == 0
    assert (tmp_path / "run" / "app").is_dir()
    assert (tmp_path / "var").is_symlink()
    assert (failed.value.reason, (tmp_path / "file").read_text()) == ("Prepare", "precious")


async def test_a_refused_unpack_says_why(helper: Path, tmp_path: Path) -> None:
    files = {f"{index}": (bytes(100_000), False) for index in range(100)}
    async with boxed(helper) as box:
        with pytest.raises(errors.TransferError, match="50 entries"):
            await box.unpack(
                str(tmp_path / "x"),
                transfer.from_folder(folders.MemoryFolder(files)),
                max_bytes=1 << 32,
                max_entries=50,
            )


# ------------------------------------------------------------------------------------------- a broken far end

REQUEST = phases.PhaseRequest("0" * 32, "agent")


def saying(*lines: object, code: int = 0) -> FakeCluster:
    async def script(remote: Remote) -> None:
        for line in lines:
            await remote.out(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        await remote.out(b"what stderr says", 2)
        await remote.end(code)

    return FakeCluster(script)


@pytest.mark.parametrize(
    ("cluster", "kind", "text"),
    [
        (saying(code=1), errors.HelperFailed, "what stderr says"),
        (saying(), errors.ProtocolError, "without an answer"),
        (saying(b"Segmentation fault\n"), errors.ProtocolError, "not JSON"),
        (saying({"event": "party"}), errors.ProtocolError, "unknown event"),
        (saying({"event": "done"}), errors.ProtocolError, "without its fields"),
        (saying({"event": "done", "result": {"startedAt": "2026-03-01T12:00:00Z"}}), errors.ProtocolError, "shape"),
        (saying({"event": "failed", "reason": "Busy", "message": "another client"}), errors.PhaseFailed, "another"),
    ],
)
async def test_answers_that_are_none(cluster: FakeCluster, kind: type[Exception], text: str) -> None:
    async with serving(cluster) as (exec_, _):
        with pytest.raises(kind, match=text):
            await sandbox.Sandbox(exec_, PIN).run_phase(REQUEST)


async def test_a_connection_lost_before_the_answer() -> None:
    async def script(remote: Remote) -> None:
        await remote.out(b'{"event":"started","startedAt":"2026-03-01T12:00:00Z","attached":false}\n{"event":"do')
        remote.drop()

    async with serving(FakeCluster(script)) as (exec_, _):
        with pytest.raises(errors.ConnectionLost):
            await sandbox.Sandbox(exec_, PIN).run_phase(REQUEST)


ROOT = {"path": "/x", "type": "missing", "sha256": None, "entries": 1 << 63, "size": True, "skippedCount": "1"}
"""What a sandbox says about a root, in which no count is one."""


def archived(content: bytes, *, cut: int | None = None, wrong: bool = False) -> FakeCluster:
    digest = "0" * 64 if wrong else hashlib.sha256(content).hexdigest()
    trailer = {"entries": 1, "bytes": len(content), "sha256": digest, "roots": [ROOT]}
    body = json.dumps(trailer).encode()
    return saying((frames.header(len(content)) + content + frames.END + frames.header(len(body)) + body)[:cut])


@pytest.mark.parametrize(
    ("cluster", "kind"),
    [
        (archived(b"x" * 2000, cut=1000), errors.Truncated),
        (archived(b"x" * 2000, cut=-1), errors.Truncated),
        (archived(b"x" * 2000, wrong=True), errors.DigestMismatch),
        (archived(b"x" * 900_000), errors.LimitExceeded),
        (saying(b"", code=2), errors.HelperFailed),
    ],
    ids=["cut", "cut in the trailer", "wrong digest", "more than asked for", "failed"],
)
async def test_a_copy_out_that_is_none(tmp_path: Path, cluster: FakeCluster, kind: type[Exception]) -> None:
    async with serving(cluster) as (exec_, _):
        box = sandbox.Sandbox(exec_, PIN)
        bounds = {"max_bytes": 2000, "max_entries": 1} if kind is errors.LimitExceeded else BOUNDS
        with pytest.raises(kind):
            sandbox.PACK_OVERHEAD, kept = 100, sandbox.PACK_OVERHEAD
            try:
                await box.pack([sandbox.Root("/x", "x")], sinks.ToFile(tmp_path / "x.tar"), **bounds)
            finally:
                sandbox.PACK_OVERHEAD = kept
    assert list(tmp_path.iterdir()) == []


async def test_counts_that_are_none_count_nothing(tmp_path: Path) -> None:
    trailer = {"entries": 0, "bytes": 0, "sha256": hashlib.sha256().hexdigest(), "scrubbed": "x", "skippedCount": -1}
    trailer["roots"] = [ROOT]
    body = json.dumps(trailer).encode()
    async with serving(saying(frames.END + frames.header(len(body)) + body)) as (exec_, _):
        sink = sinks.ToFile(tmp_path / "x.tar")
        result = await sandbox.Sandbox(exec_, PIN).pack([sandbox.Root("/x", "x")], sink, **BOUNDS)
    assert (result.scrubbed, result.skipped_count) == (0, 0)
    assert result.roots == (sandbox.RootResult("/x", sandbox.RootType.MISSING, 0, 0, None, 0, 0),)


@pytest.mark.parametrize(
    "roots",
    [None, [], [ROOT, ROOT], [{**ROOT, "type": "odd"}], [{**ROOT, "path": None}], [{**ROOT, "sha256": "0"}], ["x"], {}],
    ids=["none", "too few", "too many", "another type", "no path", "no digest", "no object", "no list"],
)
async def test_a_copy_whose_roots_are_not_told_of_is_none(tmp_path: Path, roots: object) -> None:
    body = json.dumps({"entries": 0, "bytes": 0, "sha256": hashlib.sha256().hexdigest(), "roots": roots}).encode()
    async with serving(saying(frames.END + frames.header(len(body)) + body)) as (exec_, _):
        with pytest.raises(errors.ProtocolError, match="root"):
            box = sandbox.Sandbox(exec_, PIN)
            await box.pack([sandbox.Root("/x", "x")], sinks.ToFile(tmp_path / "x.tar"), **BOUNDS)
    assert list(tmp_path.iterdir()) == []


async def test_texts_of_a_sandbox_can_be_written_down(tmp_path: Path) -> None:
    half = "\ud800"
    trailer = {"entries": 0, "bytes": 0, "sha256": hashlib.sha256().hexdigest(), "changed": [half] * 101}
    trailer |= {
        "roots": [{**ROOT, "path": half}],
        "skipped": [{"path": half * n, "reason": half} for n in (9000, *range(1, 101))],
    }
    body = json.dumps(trailer).encode()
    async with serving(saying(frames.END + frames.header(len(body)) + body)) as (exec_, _):
        sink = sinks.ToFile(tmp_path / "x.tar")
        result = await sandbox.Sandbox(exec_, PIN).pack([sandbox.Root("/x", "x")], sink, **BOUNDS)
    repr((result.changed, result.roots, result.skipped)).encode()
    assert (len(result.skipped), len(result.changed), result.roots[0].path) == (100, 100, "\\ud800")
    assert result.skipped[0].path == "\\ud800" * packed.MAX_TEXT


async def test_a_cancelled_copy_leaves_nothing(tmp_path: Path) -> None:
    over = asyncio.Event()

    async def script(remote: Remote) -> None:
        await remote.out(frames.header(1 << 20) + bytes(1 << 20))
        await over.wait()

    async with serving(FakeCluster(script)) as (exec_, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                box = sandbox.Sandbox(exec_, PIN)
                await box.pack([sandbox.Root("/x", "x")], sinks.ToFile(tmp_path / "x.tar"), **BOUNDS)
        over.set()
    assert list(tmp_path.iterdir()) == []
