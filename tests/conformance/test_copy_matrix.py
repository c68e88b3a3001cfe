"""What may lie in an artifact, out of one pod into the store and into another pod on another node: equal by digest, or
left out with a reason; never silently short.

Both pods are looked at by a program of the image's own Python, not by the helper that took the files. Bulk cases run at
a tenth of their size unless TASKFOLD_SOAK=1.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from taskfold.contract.task import Artifact
from taskfold.effects import artifacts as copies
from taskfold.effects import client as api
from taskfold.effects import credentials, errors, sandbox
from taskfold.effects import exec as execs
from taskfold.effects import store as stores
from taskfold.protocol import artifacts, phase
from taskfold.protocol.artifacts import Status
from tests.conformance import harness, sandbox_pod

pytestmark = pytest.mark.timeout(900)

SOAK = bool(os.environ.get("TASKFOLD_SOAK"))
TENTH = 1 if SOAK else 10
MIB = 1 << 20
PLACE = "cluster/namespace/uid/1/"
WORK = f"{sandbox_pod.DATA}/work"
LIMITS = copies.Limits(16 << 30, 1_000_000, 600)
BORDERS = [0, 1, 511, 512, 513, 32_767, 32_768, 32_769, 131_067, 131_072, MIB - 1, MIB, MIB + 1, 5 * MIB, 5 * MIB + 1]

LOOK = """
import hashlib, json, os, stat, sys
def seen(path):
    found = os.lstat(path)
    kind = stat.S_IFMT(found.st_mode)
    entry = [kind, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, int(found.st_mtime)]
    if kind == stat.S_IFREG:
        with open(path, "rb") as file:
            entry.append(hashlib.file_digest(file, "sha256").hexdigest())
    if kind == stat.S_IFLNK:
        entry[1] = 0
        entry.append(os.readlink(path).hex())
    print(json.dumps([path.hex(), entry]))
for name in sys.argv[1:]:
    root = os.fsencode(name)
    if not os.path.lexists(root):
        continue
    seen(root)
    for above, folders, files in os.walk(root):
        for each in folders + files:
            seen(os.path.join(above, each))
"""

Seen = dict[bytes, list[Any]]
REGULAR, FOLDER, LINK = 0o100000, 0o040000, 0o120000


class Box:
    """A sandbox, and an independent look into it."""

    def __init__(self, exec_: execs.Exec, pin: execs.PodPin) -> None:
        self.exec = exec_
        self.sandbox = sandbox.Sandbox(exec_, pin)

    async def shell(self, command: str) -> str:
        limits = execs.Limits(total_seconds=300, idle_seconds=None)
        done = await self.exec.run(self.sandbox.pin, ["bash", "-ec", command], max_stdout=64 * MIB, limits=limits)
        assert done.code == 0, done.stderr
        return done.stdout.decode()

    async def python(self, program: str, *arguments: str) -> str:
        limits = execs.Limits(total_seconds=300, idle_seconds=None)
        argv = ["python3", "-c", program, *arguments]
        done = await self.exec.run(self.sandbox.pin, argv, max_stdout=64 * MIB, limits=limits)
        assert done.code == 0, done.stderr
        return done.stdout.decode()

    async def look(self, *paths: str) -> Seen:
        """Everything at and below the paths: kind, mode, owner, time, and digest or target."""
        lines = (await self.python(LOOK, *paths)).splitlines()
        return {bytes.fromhex(path): entry for path, entry in map(json.loads, lines)}


@dataclass
class Pair:
    """The agent's pod, the verifier's, and the store between them."""

    agent: Box
    verifier: Box
    store: stores.Store

    async def export(self, *sources: str, limits: copies.Limits = LIMITS) -> artifacts.Manifest:
        wanted = [Artifact(source, source.lstrip("/")) for source in sources]
        nonce = sandbox.new_nonce()
        return await copies.export(
            self.agent.sandbox, self.store, PLACE, wanted, nonce=nonce, limits=limits, on_progress=lambda _: None
        )

    async def restore(self, manifest: artifacts.Manifest) -> list[Any]:
        """What each restore says."""
        request = phase.PhaseRequest(sandbox.new_nonce(), "seed", copies.restoring(manifest))
        payloads = copies.payloads(self.store, PLACE, manifest)
        result = await self.verifier.sandbox.run_phase(request, payloads, total_seconds=600)
        return list(result.prepared)

    async def compare(self, *sources: str) -> tuple[artifacts.Manifest, Seen, Seen, list[Any]]:
        """Out and in; what is in both pods then."""
        manifest = await self.export(*sources)
        said = await self.restore(manifest)
        return manifest, await self.agent.look(*sources), await self.verifier.look(*sources), said


def started(cluster: harness.Cluster, namespace: str, name: str, number: int) -> execs.PodPin:
    """A running pod; pods of other numbers are on other nodes, where there are so many."""
    nodes = sorted(node.metadata.name for node in cluster.core.list_node().items)
    manifest = sandbox_pod.manifest(name)
    manifest["spec"]["nodeName"] = nodes[number % len(nodes)]

    def created() -> bool:
        try:
            cluster.core.create_namespaced_pod(namespace, manifest)
        except ApiException as error:
            if error.status == 403:  # the namespace's service account comes a moment after the namespace
                return False
            raise
        return True

    def pin() -> execs.PodPin | None:
        pod = cluster.core.read_namespaced_pod(name, namespace)
        if pod.status.phase != "Running":
            return None
        return execs.PodPin(namespace, name, pod.metadata.uid, "main", 0, pod.spec.node_name)

    cluster.until(created, "the pod is created")
    found: execs.PodPin = cluster.until(pin, "the pod runs")
    return found


@pytest.fixture(scope="module")
def pins(cluster: harness.Cluster, own_namespace: str) -> Sequence[execs.PodPin]:
    """The two pods that the tests of this module share."""
    return [started(cluster, own_namespace, name, number) for number, name in enumerate(("agent", "verifier"))]


@pytest.fixture
async def pair(cluster: harness.Cluster, pins: Sequence[execs.PodPin], tmp_path: Path) -> AsyncIterator[Pair]:
    async with api.Client(credentials.from_kubeconfig(str(cluster.kubeconfig))) as client:
        exec_ = execs.Exec(client)
        agent, verifier = (Box(exec_, pin) for pin in pins)
        yield Pair(agent, verifier, stores.Store((tmp_path / "store").as_uri()))
        for box in (agent, verifier):
            await box.shell(f"rm -rf {WORK}")


async def test_files_of_all_sizes(pair: Pair) -> None:
    """Each an artifact of its own: block borders of tar, frames, messages, parts of the store."""
    names = [f"{WORK}/{size}" for size in BORDERS]
    made = "; ".join(f"head -c {size} /dev/urandom > {WORK}/{size}" for size in BORDERS)
    await pair.agent.shell(f"mkdir {WORK}; {made}")
    manifest, before, after, _ = await pair.compare(*names)
    assert [(entry.status, entry.size) for entry in manifest.entries] == [(Status.OK, size) for size in BORDERS]
    assert after == before
    assert [entry.sha256 for entry in manifest.entries] == [before[name.encode()][5] for name in names]


@pytest.mark.bulk
@pytest.mark.parametrize("size", [300 * MIB, 2048 * MIB])
async def test_a_large_file(pair: Pair, size: int) -> None:
    await pair.agent.shell(f"mkdir {WORK}; head -c {size // TENTH} /dev/urandom > {WORK}/large")
    manifest, before, after, _ = await pair.compare(f"{WORK}/large")
    assert manifest.entries[0].size == size // TENTH
    assert after == before


@pytest.mark.bulk
async def test_a_hundred_thousand_files(pair: Pair) -> None:
    number = 100_000 // TENTH
    await pair.agent.python(
        "import os, sys\n"
        f"for i in range({number}):\n"
        f"    folder = f'{WORK}/d{{i // 500}}'\n"
        "    os.makedirs(folder, exist_ok=True)\n"
        "    open(f'{folder}/f{i}', 'wb').write(b'%d' % i * (i % 300))\n"
    )
    manifest, before, after, _ = await pair.compare(WORK)
    entry = manifest.entries[0]
    assert entry.archive is not None
    assert entry.archive.entries == len(before) > number
    assert after == before


HOSTILE = f"""
mkdir -p {WORK}/tree/deep/er {WORK}/outside; cd {WORK}/tree
echo kept > deep/er/file; ln deep/er/file deep/hard; echo out > {WORK}/outside/file
ln -s loop loop; ln -s b a; ln -s a b; ln -s deep/er/file inside; ln -s ../.. deep/up
ln -s {WORK}/tree/deep own; ln -s ../outside/file out; ln -s /etc/passwd passwd; ln -s nowhere dangling
mkfifo fifo; mknod null c 1 3
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
truncate -s 64M sparse; echo middle | dd of=sparse bs=1 seek=33554432 conv=notrunc status=none
echo s > setuid; chmod 6755 setuid; mkdir shut; echo x > shut/x; chmod 0 shut/x shut
echo o > owned; chown 1234:5678 owned; mkdir sticky; chmod 1777 sticky
touch "$(printf 'new\\nline')" "$(printf 'n\\303\\244me')" "$(printf 'b\\377d')" ' ' -- --help '*'
touch -d '1999-12-31 23:59:59' old; touch -d '2150-01-01' future
"""
LEFT_OUT = {"fifo": "special", "null": "special", "socket": "special"}
LED_OUT = {"out", "passwd", "deep/up"}


async def test_a_hostile_tree(pair: Pair) -> None:
    """All of it is there and equal, but for what is no file, for links that lead out, and for setuid."""
    await pair.agent.shell(HOSTILE)
    manifest, before, after, said = await pair.compare(f"{WORK}/tree")
    entry = manifest.entries[0]
    assert entry.status is Status.OK
    assert {left.path.removeprefix(f"{WORK}/tree/"): left.reason for left in entry.left} == LEFT_OUT
    assert {each["path"] for each in said[0]["skipped"]} == LED_OUT
    root = f"{WORK}/tree/".encode()
    expected = {
        path: [kind, mode & 0o1777, *more]
        for path, (kind, mode, *more) in before.items()
        if path.removeprefix(root).decode(errors="replace") not in {*LEFT_OUT, *LED_OUT}
    }
    # What was left out of a folder is not there, and nothing else is.
    assert after == expected
    assert {kind for kind, *_ in after.values()} == {REGULAR, FOLDER, LINK}


async def test_what_cannot_be_taken_has_a_reason(pair: Pair) -> None:
    await pair.agent.shell(
        f"mkdir -p {WORK}/real {WORK}/empty; mkfifo {WORK}/fifo; ln -s real {WORK}/link; touch {WORK}/real/x;"
        f"ln -s real {WORK}/way; truncate -s 1T {WORK}/huge"
    )
    names = ["real", "empty", "missing", "fifo", "link", "way/x", "huge"]
    sources = [f"{WORK}/{name}" for name in names]
    manifest = await pair.export(*sources)
    await pair.restore(manifest)
    after = await pair.verifier.look(*sources)
    found = {entry.source.removeprefix(f"{WORK}/"): entry for entry in manifest.entries}
    assert {name: entry.status for name, entry in found.items()} == {
        "real": Status.OK,
        "empty": Status.EMPTY,
        "missing": Status.MISSING,
        "fifo": Status.FAILED,
        "link": Status.FAILED,
        "way/x": Status.FAILED,
        "huge": Status.SKIPPED,
    }
    assert all(entry.reason for entry in found.values() if entry.status not in (Status.OK, Status.EMPTY))
    assert "17,179,869,184 bytes" in found["huge"].reason
    assert sorted(after) == [f"{WORK}/empty".encode(), f"{WORK}/real".encode(), f"{WORK}/real/x".encode()]
    assert [entry.source for entry in manifest.lost] == [f"{WORK}/{name}" for name in ("fifo", "link", "way/x", "huge")]


async def test_a_file_that_changes_while_it_is_read(pair: Pair) -> None:
    """It is listed, and what arrives is what the manifest says."""
    await pair.agent.shell(f"mkdir {WORK}; head -c {32 * MIB} /dev/zero > {WORK}/log")
    writing = asyncio.create_task(
        pair.agent.shell(f"while [ ! -e {WORK}/stop ]; do echo more >> {WORK}/log; done"), name="the agent's"
    )
    try:
        manifest = await pair.export(f"{WORK}/log")
    finally:
        await pair.agent.shell(f"touch {WORK}/stop")
        await writing
    entry = manifest.entries[0]
    assert (entry.status, entry.changed) == (Status.OK, (f"{WORK}/log",))
    await pair.restore(manifest)
    [(_, found)] = (await pair.verifier.look(f"{WORK}/log")).items()
    assert found[5] == entry.sha256
    assert await pair.verifier.shell(f"stat -c %s {WORK}/log") == f"{entry.size}\n"


async def test_a_pod_that_goes_away_leaves_no_manifest(
    cluster: harness.Cluster, own_namespace: str, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the second artifact; the first one is settled."""
    pin = await asyncio.to_thread(started, cluster, own_namespace, "gone", 0)
    going = Pair(Box(pair.agent.exec, pin), pair.verifier, pair.store)
    await going.agent.shell(f"mkdir {WORK}; head -c {200 * MIB} /dev/urandom > {WORK}/large; echo a > {WORK}/small")
    begun, put = asyncio.Event(), pair.store.put_stream

    async def told(key: str, chunks: Any, **options: Any) -> stores.Written:
        if key.startswith(f"{PLACE}artifacts/1"):
            begun.set()
        return await put(key, chunks, **options)

    monkeypatch.setattr(pair.store, "put_stream", told)
    copy = asyncio.create_task(going.export(f"{WORK}/small", f"{WORK}/large"))
    await begun.wait()
    delete = cluster.core.delete_namespaced_pod
    await asyncio.to_thread(delete, "gone", own_namespace, grace_period_seconds=0)
    with pytest.raises((errors.NotRunning, errors.SandboxLost)):
        await copy
    kept = {each.key.removeprefix(PLACE).split("-")[0] async for each in pair.store.list(PLACE)}
    assert kept == {"artifacts/0", "artifacts/0.json"}
