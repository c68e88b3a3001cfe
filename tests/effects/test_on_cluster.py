"""Exec, copies and API calls on a real cluster: what the fakes only claim."""

import asyncio
import contextlib
import hashlib
import os
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taskfold.contract import folder as folders
from taskfold.effects import client as api
from taskfold.effects import errors, sandbox, sinks, transfer
from taskfold.effects import exec as execs
from taskfold.protocol import phase as phases

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NAMESPACE = "taskfold-effects"
IMAGE = os.environ.get("TASKFOLD_TEST_IMAGE", "docker.io/library/debian:trixie-slim")
BOUNDS: dict[str, Any] = {"max_bytes": 1 << 34, "max_entries": 100_000}
SOAK = bool(os.environ.get("TASKFOLD_SOAK"))


def manifest(name: str) -> dict[str, Any]:
    """A pod that waits for the helper to be copied in and then becomes its `init`: no image of ours is
    needed.
    """
    wait = "trap 'exit 0' TERM; until [ -x /.taskfold/helper ]; do sleep 0.1 & wait $!; done; "
    wait += "exec /.taskfold/helper init"
    mounts = [{"name": "helper", "mountPath": "/.taskfold"}, {"name": "data", "mountPath": "/data"}]
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", wait], "volumeMounts": mounts}
    volumes: list[Any] = [{"name": name, "emptyDir": {}} for name in ("helper", "data")]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": volumes,
        },
    }


async def until(look: Callable[[], Awaitable[Any]], what: str) -> Any:
    async with asyncio.timeout(60):
        while not (found := await look()):
            await asyncio.sleep(0.1)
    assert found, what
    return found


async def start(client: api.Client, name: str) -> execs.PodPin:
    async def settled() -> bool:
        with contextlib.suppress(errors.Forbidden, errors.NotFound):
            await client.create(api.PODS, NAMESPACE, manifest(name))
            return True
        return False  # the namespace's service account comes a moment after the namespace

    async def running() -> execs.PodPin | None:
        with contextlib.suppress(errors.NotRunning):
            return execs.PodPin.of(await client.get(api.PODS, NAMESPACE, name))
        return None

    await until(settled, "created")
    pin: execs.PodPin = await until(running, "running")
    return pin


async def remove(client: api.Client, pin: execs.PodPin) -> None:
    with contextlib.suppress(errors.NotFound, errors.Conflict):
        await client.delete(api.PODS, NAMESPACE, pin.name, uid=pin.uid, grace_seconds=0)


@pytest.fixture
async def client(cluster_client: api.Client) -> api.Client:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    with contextlib.suppress(errors.AlreadyExists):
        await cluster_client.create(api.NAMESPACES, None, body)
    return cluster_client


@pytest.fixture
async def pin(client: api.Client) -> AsyncIterator[execs.PodPin]:
    found = await start(client, f"effects-{uuid.uuid4().hex[:8]}")
    yield found
    await remove(client, found)


@pytest.fixture
async def box(client: api.Client, pin: execs.PodPin, helper: Path) -> sandbox.Sandbox:
    return await installed(client, pin, helper)


async def installed(client: api.Client, pin: execs.PodPin, helper: Path) -> sandbox.Sandbox:
    """The sandbox of a pod that waits for its helper."""
    exec_ = execs.Exec(client)
    script = "cat > /.taskfold/new && chmod 755 /.taskfold/new && mv /.taskfold/new /.taskfold/helper"
    done = await exec_.run(pin, ["sh", "-c", script], stdin=helper.read_bytes())
    assert done.code == 0, done
    return sandbox.Sandbox(exec_, pin)


async def test_exec_outcomes(client: api.Client, pin: execs.PodPin) -> None:
    exec_ = execs.Exec(client)
    for code in (0, 1, 42, 255):
        done = await exec_.run(pin, ["sh", "-c", f"echo out; echo err >&2; exit {code}"])
        assert (done.code, done.stdout, done.stderr) == (code, b"out\n", b"err\n")
    assert (await exec_.run(pin, ["sh", "-c", "kill -9 $$"])).code == 137
    # stdin ends although the connection stays open
    assert (await exec_.run(pin, ["wc", "-c"], stdin=bytes(300_000))).stdout.split() == [b"300000"]
    assert (await exec_.run(pin, ["cat"], stdin=b"")).stdout == b""
    # odd arguments
    words = ["a b", "%41+&=", "ünï", "new\nline", ""]
    printed = await exec_.run(pin, ["printf", "<%s>", *words])
    assert printed.stdout.decode() == "".join(f"<{word}>" for word in words)


async def test_an_end_before_the_end_of_the_input_is_never_misread(client: api.Client, pin: execs.PodPin) -> None:
    """The server loses the status of such a command in most tries, or hangs (kubectl too): then it is
    unknown.
    """
    limits = execs.Limits(total_seconds=10, idle_seconds=3)
    for _ in range(4):
        with contextlib.suppress(errors.ConnectionLost, errors.ExecTimeout):
            done = await execs.Exec(client).run(pin, ["sh", "-c", "exit 9"], stdin=bytes(32 << 20), limits=limits)
            assert done.code == 9


async def test_what_does_not_start(client: api.Client, pin: execs.PodPin) -> None:
    exec_ = execs.Exec(client)
    with pytest.raises(errors.StartFailed, match="no-such-program"):
        await exec_.run(pin, ["no-such-program"])
    with pytest.raises(errors.NotRunning):
        await exec_.run(execs.PodPin(NAMESPACE, "no-such-pod", "x"), ["true"], checked=True)
    wrong = execs.PodPin(NAMESPACE, pin.name, pin.uid, "no-such-container", 0, pin.node)
    with pytest.raises((errors.NotRunning, errors.HandshakeRefused)):
        await exec_.run(wrong, ["true"], checked=True)


async def test_limits_on_a_real_command(client: api.Client, pin: execs.PodPin) -> None:
    exec_ = execs.Exec(client)
    with pytest.raises(errors.ExecTimeout):
        await exec_.run(pin, ["sleep", "60"], limits=execs.Limits(total_seconds=1))
    with pytest.raises(errors.OutputTooLarge):
        await exec_.run(pin, ["sh", "-c", "yes"], max_stdout=1 << 20)


async def test_a_replaced_pod_is_another_sandbox(client: api.Client, pin: execs.PodPin) -> None:
    exec_ = execs.Exec(client)
    await remove(client, pin)

    async def gone() -> bool:
        try:
            return bool((await client.get(api.PODS, NAMESPACE, pin.name))["metadata"]["uid"] != pin.uid)
        except errors.NotFound:
            return True

    await until(gone, "gone")
    with pytest.raises(errors.NotRunning):
        await exec_.run(pin, ["true"])
    new = await start(client, pin.name)
    with pytest.raises(errors.PodReplaced):
        await exec_.run(pin, ["true"])
    assert (await exec_.run(new, ["true"])).code == 0
    await remove(client, new)


async def test_a_restarted_container_is_another_sandbox(client: api.Client, pin: execs.PodPin) -> None:
    exec_ = execs.Exec(client)
    with contextlib.suppress(errors.ExecError):
        await exec_.run(pin, ["sh", "-c", "kill -TERM 1"])

    async def restarted() -> bool:
        pod = await client.get(api.PODS, NAMESPACE, pin.name)
        return bool(pod["status"]["containerStatuses"][0]["restartCount"])

    await until(restarted, "restarted")
    with pytest.raises(errors.ContainerRestarted):
        await exec_.run(pin, ["true"])


async def test_a_pod_deleted_under_a_command(client: api.Client, pin: execs.PodPin) -> None:
    """Never a success, never a guess: the pod is gone or the outcome is unknown."""
    async with execs.Exec(client).open(pin, ["sh", "-c", "echo on; sleep 60"]) as stream:
        async for _ in stream.stdout():
            break
        await remove(client, pin)
        try:
            exited = await stream.wait()
            assert exited.code == 137
        except (errors.NotRunning, errors.ConnectionLost):
            pass


async def test_a_phase(box: sandbox.Sandbox) -> None:
    run = phases.Run("main", ("sh", "-c", "id -u; cat /data/t/x; exit 4"), phases.Output("/data/log"))
    request = phases.PhaseRequest(
        sandbox.new_nonce(), "verify", [phases.Unpack("/data/t")], [run], [phases.Read("/data/log", 1000)]
    )
    payload = transfer.from_folder(folders.MemoryFolder({"x": (b"hello", False)}))
    first = await box.run_phase(request, [payload])
    assert await box.run_phase(request, [payload]) == first
    ended = first.run("main")
    assert ended is not None
    assert ended.return_code == 4
    assert first.files["/data/log"].content == b"0\nhello"


async def test_an_operator_that_dies_finds_the_result(box: sandbox.Sandbox) -> None:
    run = phases.Run("main", ("sh", "-c", "sleep 2; echo x >> /data/ran"), phases.Output("/data/log"))
    request = phases.PhaseRequest(sandbox.new_nonce(), "agent", (), [run], [phases.Read("/data/ran", 100)])
    started = asyncio.Event()

    async def note(_: sandbox.Started) -> None:
        started.set()

    call = asyncio.create_task(box.run_phase(request, on_started=note))
    await started.wait()
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    result = await box.run_phase(request)
    assert result.files["/data/ran"].content == b"x\n"


@contextlib.contextmanager
def random_file(path: Path, size: int) -> Iterator[str]:
    """Incompressible, different at every offset; its sha256."""
    digest, rng = hashlib.sha256(), random.Random(size)
    with path.open("wb") as file:
        for start in range(0, size, 1 << 20):
            block = rng.randbytes(min(1 << 20, size - start))
            digest.update(block)
            file.write(block)
    yield digest.hexdigest()
    path.unlink()


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def there_and_back(box: sandbox.Sandbox, folder: Path, size: int) -> None:
    with random_file(folder / "in", size) as digest:
        await box.unpack("/data/f", transfer.from_file(folder / "in", "file"), **BOUNDS)
        seen = await box._exec.run(box.pin, ["sha256sum", "/data/f/file"])
        assert seen.stdout.split()[0].decode() == digest
        await box.pack([sandbox.Root("/data/f", "r")], sinks.ToDirectory(folder / "out", **BOUNDS), **BOUNDS)
        assert sha256(folder / "out" / "r" / "file") == digest


async def test_files_of_edge_sizes(box: sandbox.Sandbox, tmp_path: Path) -> None:
    for size in (0, 1, 32767, 32768, 32769, 2**20 - 1, 2**20, 2**20 + 1, 64 << 20):
        await there_and_back(box, tmp_path, size)


@pytest.mark.bulk
async def test_a_large_file_in_flat_memory(box: sandbox.Sandbox, tmp_path: Path) -> None:
    before = peak_kib()
    await there_and_back(box, tmp_path, 1 << 30 if SOAK else 100 << 20)
    assert peak_kib() - before < 64 << 10


def peak_kib() -> int:
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    fields = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()
    return int(fields[0])


async def test_ten_thousand_small_files(box: sandbox.Sandbox, tmp_path: Path) -> None:
    rng = random.Random(1)
    files = {f"d{index % 100}/{index}": (rng.randbytes(index % 997), index % 3 == 0) for index in range(10_000)}
    await box.unpack("/data/s", transfer.from_folder(folders.MemoryFolder(files)), **BOUNDS)
    count = "cd /data/s && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum"
    listing = "".join(
        f"{hashlib.sha256(files[name][0]).hexdigest()}  ./{name}\n" for name in sorted(files, key=str.encode)
    )
    seen = await box._exec.run(box.pin, ["sh", "-c", count])
    assert seen.stdout.split()[0].decode() == hashlib.sha256(listing.encode()).hexdigest()
    await box.pack([sandbox.Root("/data/s", ".")], sinks.ToDirectory(tmp_path, **BOUNDS), **BOUNDS)
    for name, (content, executable) in files.items():
        assert (tmp_path / name).read_bytes() == content
        assert bool((tmp_path / name).stat().st_mode & 0o100) == executable


PLANT = r"""set -eu; umask 022; mkdir -p /data/t/a/b; cd /data/t
printf 1 > "$(printf 'a/new\nline')"; printf 2 > "$(printf 'a/\377\376')"; printf 3 > "$(printf 'a/\001"\\')"
printf 4 > "$(head -c 255 /dev/zero | tr '\0' n)"; : > a/b/empty; head -c 3000000 /dev/urandom > a/random
truncate -s 500M sparse; printf end >> sparse; printf x > a/suid; chmod 6755 a/suid; chown 1234:4321 a/suid
ln a/random a/b/hard; ln -s ../random a/b/link; ln -s loop a/loop; ln -s /etc/passwd a/out; ln -s a/b "$(printf '\377')"
mkfifo a/fifo; mknod a/null c 1 3; mkdir a/closed; echo x > a/closed/f; chmod 0 a/closed a/closed/f
d=.; for i in $(seq 40); do d=$d/deep; done; mkdir -p $d; echo x > $d/f
for i in $(seq 500); do echo $i > a/b/$i; done; echo '*.pyc' > a/b/x.pyc
chmod 1777 a/b; touch -d @1000000000 a/suid a/b
"""
"""What an agent may leave behind. Links out, pipes and devices are what does not arrive; a setuid bit neither."""

LOOK = r"""cd $1 && find . ! -type p ! -type c ! -path ./a/out ! -name '*.pyc' -printf '%p %y %m %U:%G %Ts %l %s\0' |
    sed -z 's/\(a.suid f\) 6755/\1 755/; s/\( d [0-9: ]*\) [0-9]*$/\1/' | LC_ALL=C sort -z | sha256sum
find . -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum
find . | wc -l; du -sk sparse | cut -f1
"""
"""Names, types, modes, owners, times, targets, sizes (but those of folders), and contents, each as one number."""


async def test_a_hostile_tree_from_one_pod_to_another(
    client: api.Client, box: sandbox.Sandbox, helper: Path, tmp_path: Path
) -> None:
    planted = await box._exec.run(box.pin, ["sh", "-c", PLANT])
    assert planted.code == 0, planted
    root = sandbox.Root("/data/t", ".", exclude=("*.pyc",))
    there = await box.pack([root], sinks.ToFile(tmp_path / "t.tar"), **BOUNDS)
    assert {(each.path, each.reason) for each in there.skipped} == {
        ("/data/t/a/fifo", "special"),
        ("/data/t/a/null", "special"),
    }
    other = await start(client, f"effects-{uuid.uuid4().hex[:8]}")
    try:
        second = await installed(client, other, helper)
        restore = phases.Restore("/data/new/t", "directory", there.sha256, BOUNDS["max_bytes"], BOUNDS["max_entries"])
        request = phases.PhaseRequest(sandbox.new_nonce(), "verify", [restore])
        done = await second.run_phase(request, [transfer.from_archive(tmp_path / "t.tar")])
        assert [each["path"] for each in done.prepared[0]["skipped"]] == ["a/out"]
        assert done.prepared[0]["entries"] == there.entries
        seen = [
            (await one._exec.run(one.pin, ["sh", "-c", LOOK, "sh", folder])).stdout.decode().split()
            for one, folder in ((box, "/data/t"), (second, "/data/new/t"))
        ]
    finally:
        await remove(client, other)
    (names, _, contents, _, many, _), (names_there, _, contents_there, _, many_there, blocks) = seen
    assert (names, contents, int(many) - 4) == (names_there, contents_there, int(many_there))
    assert int(blocks) < 1024, "a sparse file stays sparse"


async def test_a_refused_copy_says_why(box: sandbox.Sandbox) -> None:
    """The helper finds out while most of the payload is still to come."""
    files = {f"{index:03}": (bytes(1 << 20), False) for index in range(64)}
    payload = transfer.from_folder(folders.MemoryFolder(files))
    with pytest.raises(errors.TransferError, match="2 entries"):
        await box.unpack("/data/x", payload, max_bytes=1 << 32, max_entries=2)


async def test_the_api(client: api.Client) -> None:
    """Every verb once, with the errors that only a real server knows."""
    name = f"effects-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}}
    made = await client.create(api.CONFIGMAPS, NAMESPACE, body)
    with pytest.raises(errors.AlreadyExists):
        await client.create(api.CONFIGMAPS, NAMESPACE, body)
    with pytest.raises(errors.Invalid):
        await client.create(api.CONFIGMAPS, NAMESPACE, {**body, "metadata": {"name": "UPPER"}})
    version = made["metadata"]["resourceVersion"]
    patch = {"data": {"a": "2"}}
    await client.patch(api.CONFIGMAPS, NAMESPACE, name, patch, resource_version=version)
    with pytest.raises(errors.Conflict):
        await client.patch(api.CONFIGMAPS, NAMESPACE, name, patch, resource_version=version)
    applied = await client.apply(api.CONFIGMAPS, NAMESPACE, {**body, "data": {"b": "3"}})
    again = await client.apply(api.CONFIGMAPS, NAMESPACE, {**body, "data": {"b": "3"}})
    assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]
    names = await client.list(api.CONFIGMAPS, NAMESPACE, page=1, project=lambda item: item["metadata"]["name"])
    assert name in names.items
    assert names.resource_version
    with pytest.raises(errors.Conflict):
        await client.delete(api.CONFIGMAPS, NAMESPACE, name, uid="00000000-0000-0000-0000-000000000000")
    await client.delete(api.CONFIGMAPS, NAMESPACE, name, uid=made["metadata"]["uid"])
    with pytest.raises(errors.NotFound, match=name):
        await client.get(api.CONFIGMAPS, NAMESPACE, name)
    assert (await client.version())["gitVersion"].startswith("v1.")
