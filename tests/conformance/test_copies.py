"""Copies into and out of a real sandbox by the operator's own client: equal by digest, in flat memory.

The digests on the far side are made by the image's own sha256sum, not by the helper that took the files.
"""

import asyncio
import hashlib
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubernetes.client.exceptions import ApiException

from taskfold.effects import client as api
from taskfold.effects import credentials, sandbox, sinks, transfer
from taskfold.effects import exec as execs
from tests.conformance import harness, sandbox_pod

pytestmark = pytest.mark.timeout(900)

SOAK = bool(os.environ.get("TASKFOLD_SOAK"))
BOUNDS = {"max_bytes": 4 << 30, "max_entries": 50_000}
MIB = 1 << 20
EDGES = [0, 1, 32_767, 32_768, 32_769, MIB - 1, MIB, MIB + 1, 64 * MIB]
LARGE = 1024 * MIB if SOAK else 1024 * MIB // 10
POD = "copies"


class Box:
    """The sandbox, and an independent look into it."""

    def __init__(self, exec_: execs.Exec, pin: execs.PodPin) -> None:
        self._exec = exec_
        self.sandbox = sandbox.Sandbox(exec_, pin)

    async def shell(self, command: str) -> str:
        done = await self._exec.run(self.sandbox.pin, ["bash", "-ec", command])
        assert done.code == 0, done.stderr
        return done.stdout.decode()

    async def put(self, payload: transfer.Payload, folder: str) -> sandbox.UnpackResult:
        return await self.sandbox.unpack(folder, payload, **BOUNDS)

    async def fetch(self, path: str, target: Path) -> sandbox.PackResult:
        return await self.sandbox.pack([sandbox.Root(path, "got")], sinks.ToDirectory(target, **BOUNDS), **BOUNDS)


@pytest.fixture(scope="module")
def running(cluster: harness.Cluster, own_namespace: str) -> execs.PodPin:
    """The sandbox's pod, which the tests of this module share."""

    def created() -> bool:
        try:
            cluster.core.create_namespaced_pod(own_namespace, sandbox_pod.manifest(POD))
        except ApiException as error:
            if error.status == 403:  # the namespace's service account comes a moment after the namespace
                return False
            raise
        return True

    def pin() -> execs.PodPin | None:
        pod = cluster.core.read_namespaced_pod(POD, own_namespace)
        if pod.status.phase != "Running":
            return None
        return execs.PodPin(own_namespace, POD, pod.metadata.uid, "main", 0, pod.spec.node_name)

    cluster.until(created, "the pod is created")
    found: execs.PodPin = cluster.until(pin, "the pod runs")
    return found


@pytest.fixture
async def box(cluster: harness.Cluster, running: execs.PodPin) -> AsyncIterator[Box]:
    async with api.Client(credentials.from_kubeconfig(str(cluster.kubeconfig))) as client:
        found = Box(execs.Exec(client), running)
        yield found
        await found.shell(f"rm -rf {sandbox_pod.DATA}/*")


def write_random(path: Path, size: int) -> str:
    """Incompressible, different at every offset. Returns the sha256."""
    digest, rng = hashlib.sha256(), random.Random(size)
    with path.open("wb") as file:
        for start in range(0, size, MIB):
            block = rng.randbytes(min(MIB, size - start))
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def there_and_back(box: Box, tmp_path: Path, size: int) -> None:
    digest = write_random(tmp_path / "local", size)
    sent = await box.put(transfer.from_file(tmp_path / "local", "file"), f"{sandbox_pod.DATA}/one")
    assert sent.entries == 1
    assert (await box.shell(f"sha256sum {sandbox_pod.DATA}/one/file")).split()[0] == digest
    received = await box.fetch(f"{sandbox_pod.DATA}/one", tmp_path / "back")
    assert (received.truncated, received.skipped_count, received.changed) == (False, 0, ())
    assert sha256(tmp_path / "back/got/file") == digest


@pytest.mark.parametrize("size", EDGES)
async def test_a_file_goes_there_and_back_equal_by_digest(box: Box, tmp_path: Path, size: int) -> None:
    await there_and_back(box, tmp_path, size)


@pytest.mark.bulk
async def test_a_large_file_goes_there_and_back_in_flat_memory(box: Box, tmp_path: Path) -> None:
    await there_and_back(box, tmp_path, MIB)  # buffers, threads and connections that stay
    digest = write_random(tmp_path / "local", LARGE)
    before = reset_peak()
    await box.put(transfer.from_file(tmp_path / "local", "file"), f"{sandbox_pod.DATA}/large")
    uploading = peak() - before
    assert (await box.shell(f"sha256sum {sandbox_pod.DATA}/large/file")).split()[0] == digest
    before = reset_peak()
    await box.fetch(f"{sandbox_pod.DATA}/large", tmp_path / "large")
    downloading = peak() - before
    assert sha256(tmp_path / "large/got/file") == digest
    assert (uploading < 64 * MIB, downloading < 64 * MIB) == (True, True), (uploading, downloading)


def reset_peak() -> int:
    """Forget the peak of this process's resident memory so far; returns what is resident now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def peak() -> int:
    return _memory("VmHWM")


def _memory(field: str) -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


async def test_ten_thousand_small_files_go_there_and_back(box: Box, tmp_path: Path) -> None:
    rng, expected = random.Random(1), {}
    for number in range(10_000):
        path = tmp_path / "local" / f"d{number % 100}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content := rng.randbytes(number % 4096))
        expected[f"d{number % 100}/f{number}"] = hashlib.sha256(content).hexdigest()
    target = f"{sandbox_pod.DATA}/many"
    await box.put(transfer.from_directory(tmp_path / "local"), target)
    listing = "".join(f"{digest}  ./{name}\n" for name, digest in sorted(expected.items()))
    found = await box.shell(f"cd {target}; find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum")
    assert found.split()[0] == hashlib.sha256(listing.encode()).hexdigest()
    received = await box.fetch(target, tmp_path / "back")
    assert (received.truncated, received.skipped_count, received.changed) == (False, 0, ())
    root = tmp_path / "back/got"
    assert {str(p.relative_to(root)): sha256(p) for p in root.rglob("*") if p.is_file()} == expected


async def test_copies_at_the_same_time_do_not_mix(box: Box, tmp_path: Path) -> None:
    sizes = [3 * MIB + number for number in range(6)]
    digests = [write_random(tmp_path / f"local-{size}", size) for size in sizes]
    async with asyncio.TaskGroup() as group:
        for size in sizes:
            payload = transfer.from_file(tmp_path / f"local-{size}", "file")
            group.create_task(box.put(payload, f"{sandbox_pod.DATA}/s{size}"))
    async with asyncio.TaskGroup() as group:
        for size in sizes:
            group.create_task(box.fetch(f"{sandbox_pod.DATA}/s{size}", tmp_path / f"back-{size}"))
    assert [sha256(tmp_path / f"back-{size}/got/file") for size in sizes] == digests
