"""Our copies against a raw exec stream that is hashed at both ends too, and `kubectl cp` beside them.

    python -m bench.copies [--mib 100] [--gib] [--pairs 7] [--sizes] [--json FILE]

Ours and raw go in turn, in pairs, because the machine drifts more than they differ; the figure is the median of the
pairs' own ratios. Every copy ends as a file on the other side, and its sha256 is compared, else the figure is not
printed. `kubectl cp` hashes nothing.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.conformance import sandbox_pod

from bench import figures
from bench.kube import Failed, Kube, kubeconfig, namespace, until
from taskfold.effects import client as api
from taskfold.effects import credentials, sandbox, sinks, transfer
from taskfold.effects import exec as execs

TARGET = 0.9
MIB = 1 << 20
BLOCK = 256 * 1024
POD = "copies"
DATA = sandbox_pod.DATA
SIZES = [1, 32_768, MIB, 16 * MIB]

Copy = Callable[[], Awaitable[None]]


class Raw:
    """One exec stream in the simplest way that still hashes both ends and ends as a file."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace

    async def upload(self, source: Path) -> None:
        digest = hashlib.sha256()
        command = ["bash", "-c", f"tee {DATA}/raw | sha256sum"]
        async with self._kube.exec(self._namespace, POD, command, stdin=True) as remote:
            with source.open("rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
                    await remote.send(block)
            await remote.end()
            answer = b"".join([bytes(part) async for part in remote.output()])
        _check(answer.split()[0].decode(), digest.hexdigest())

    async def download(self, target: Path) -> None:
        digest = hashlib.sha256()
        # The digest goes to stderr; the pipe ends before bash does, so nothing of it is lost.
        command = ["bash", "-c", f"tee >(sha256sum >&2) < {DATA}/source/file; wait $!"]
        async with self._kube.exec(self._namespace, POD, command) as remote:
            with target.open("wb") as file:
                async for part in remote.output():
                    digest.update(part)
                    file.write(part)
        _check(remote.errors.split()[0].decode(), digest.hexdigest())


class Ours:
    """The operator's client and the helper: one tar stream with a trailer."""

    def __init__(self, box: sandbox.Sandbox) -> None:
        self._box = box

    async def upload(self, source: Path) -> None:
        payload = transfer.from_file(source, "file")
        await self._box.unpack(f"{DATA}/source", payload, max_bytes=4 << 30, max_entries=10)

    async def download(self, target: Path) -> None:
        sink = sinks.ToDirectory(target, max_bytes=4 << 30, max_entries=10)
        await self._box.pack([sandbox.Root(f"{DATA}/source", ".")], sink, max_bytes=4 << 30, max_entries=10)


class Kubectl:
    """`kubectl cp`, found on the PATH or in the local cluster's folder."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        local = kubeconfig.parent / "bin/kubectl"
        self._program = shutil.which("kubectl") or str(local)
        self._options = ["--kubeconfig", str(kubeconfig), "--namespace", namespace]

    async def upload(self, source: Path) -> None:
        await self._cp(str(source), f"{POD}:{DATA}/kubectl")

    async def download(self, target: Path) -> None:
        await self._cp(f"{POD}:{DATA}/source/file", str(target))

    async def _cp(self, source: str, target: str) -> None:
        command = [self._program, *self._options, "cp", source, target]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if await process.wait():
            raise Failed(f"{command}: {process.returncode}")


class Bench:
    """One sandbox and three ways into it."""

    def __init__(self, kube: Kube, namespace: str, box: sandbox.Sandbox, folder: Path) -> None:
        self._kube = kube
        self._namespace = namespace
        self._folder = folder
        self._source = folder / "source"
        self.ours, self.raw = Ours(box), Raw(kube, namespace)
        self.kubectl = Kubectl(kubeconfig(), namespace)
        self.found: dict[str, Any] = {"machine": figures.machine()}

    async def compare(self, size: int, pairs: int) -> None:
        """Both directions at one size."""
        digest = _random_file(self._source, size)
        out = self._folder / "out"

        async def fetched(copy: Callable[[Path], Awaitable[None]], target: Path) -> float:
            _clear(out)
            seconds = await _timed(lambda: copy(target))
            _check(_sha256(out / "file"), digest)
            return seconds

        async def sent(copy: Callable[[Path], Awaitable[None]], name: str) -> float:
            seconds = await _timed(lambda: copy(self._source))
            _check((await self._remote(f"sha256sum {DATA}/{name}")).split()[0], digest)
            return seconds

        up = [
            lambda: sent(self.ours.upload, "source/file"),
            lambda: sent(self.raw.upload, "raw"),
            lambda: sent(self.kubectl.upload, "kubectl"),
        ]
        down = [
            lambda: fetched(self.ours.download, out),
            lambda: fetched(self.raw.download, out / "file"),
            lambda: fetched(self.kubectl.download, out / "file"),
        ]
        for direction, ways in (("upload", up), ("download", down)):
            await self._rounds(direction, size, pairs, ways)

    async def _rounds(self, direction: str, size: int, pairs: int, ways: list[Callable[[], Awaitable[float]]]) -> None:
        ours, raw, kubectl = ways
        await ours()  # what is only paid once: connections, page cache
        await raw()
        before = _reset_peak()
        times: list[tuple[float, float, float]] = []
        growth = 0
        for number in range(pairs):
            # Who goes first changes, so that neither always finds the other's page cache.
            first, second = (ours, raw) if number % 2 == 0 else (raw, ours)
            one, two = await first(), await second()
            mine, bare = (one, two) if number % 2 == 0 else (two, one)
            times.append((mine, bare, await kubectl()))
        growth = _memory("VmHWM") - before
        found = figures.ratio_within_pairs([(bare, mine) for mine, bare, _ in times])
        rates = [size / MIB / statistics.median(each) for each in zip(*times, strict=True)]
        print(f"{direction} of {_size(size)}, {pairs} pairs")
        if size >= MIB:
            print(f"  ours {rates[0]:.0f} MiB/s, raw exec stream {rates[1]:.0f} MiB/s, kubectl cp {rates[2]:.0f} MiB/s")
            print(f"  ours over raw: {figures.told(found)}, target at least {TARGET}; memory +{growth / MIB:.0f} MiB")
        else:
            names = ("ours", "raw exec stream", "kubectl cp")
            medians = [statistics.median(each) * 1000 for each in zip(*times, strict=True)]
            print("  " + ", ".join(f"{name} {ms:.0f} ms" for name, ms in zip(names, medians, strict=True)), flush=True)
        self.found[f"{direction} {size}"] = {"seconds": times, "ratio": found, "memory_growth": growth}

    async def _remote(self, command: str) -> str:
        return (await self._kube.run(self._namespace, POD, ["bash", "-ec", command])).decode()


@contextlib.asynccontextmanager
async def sandbox_in(kube: Kube, space: str) -> AsyncIterator[sandbox.Sandbox]:
    """A running sandbox, pinned."""
    path = f"/api/v1/namespaces/{space}/pods"
    await kube.request("POST", path, sandbox_pod.manifest(POD))

    async def pin() -> execs.PodPin | None:
        pod = await kube.request("GET", f"{path}/{POD}")
        return execs.PodPin.of(pod) if pod["status"].get("phase") == "Running" else None

    async with api.Client(credentials.from_kubeconfig(str(kubeconfig()))) as client:
        yield sandbox.Sandbox(execs.Exec(client), await until(pin))


def _random_file(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for start in range(0, size, MIB):
            block = os.urandom(min(MIB, size - start))
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(found: str, expected: str) -> None:
    if found != expected:
        raise AssertionError(f"sha256 {found}, not {expected}")


def _clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


async def _timed(copy: Copy) -> float:
    began = time.monotonic()
    await copy()
    return time.monotonic() - began


def _reset_peak() -> int:
    """Forget the peak of resident memory; returns what is resident now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(field: str) -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


def _size(size: int) -> str:
    return f"{size / MIB:g} MiB" if size >= MIB else f"{size} B"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=100, help="size of the file")
    parser.add_argument("--gib", action="store_true", help="also 1 GiB, three pairs")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--sizes", action="store_true", help="also small sizes, where the round trip decides")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taskfold-bench-") as folder:
        async with Kube(kubeconfig()) as kube, namespace(kube) as space, sandbox_in(kube, space) as box:
            bench = Bench(kube, space, box, Path(folder))
            print(bench.found["machine"])
            for size in SIZES if options.sizes else ():
                await bench.compare(size, options.pairs)
            await bench.compare(options.mib * MIB, options.pairs)
            if options.gib:
                await bench.compare(1 << 30, 3)
    if options.json is not None:
        options.json.write_text(json.dumps(bench.found, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
