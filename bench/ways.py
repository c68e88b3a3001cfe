"""Ways to copy between here and a pod: ours, a raw exec stream that is hashed at both ends, and `kubectl cp`.

Every way ends as a file on the other side. The raw one is the simplest that still hashes: one thread, which hashes and
sends; `kubectl cp` hashes nothing.
"""

import asyncio
import hashlib
import shutil
import subprocess
import zlib
from collections.abc import AsyncIterable
from pathlib import Path

from tests.conformance import sandbox_pod

from bench.kube import Failed, Kube
from taskfold.effects import frames, relays, sandbox, sinks, transfer

DATA = sandbox_pod.DATA
BLOCK = 256 * 1024
BOUNDS = {"max_bytes": 4 << 30, "max_entries": 400_000}


class Raw:
    """One exec stream in the simplest way."""

    def __init__(self, kube: Kube, namespace: str, pod: str) -> None:
        self._kube, self._namespace, self._pod = kube, namespace, pod

    async def upload(self, source: Path) -> None:
        digest = hashlib.sha256()
        command = ["bash", "-c", f"tee {DATA}/raw | sha256sum"]
        async with self._kube.exec(self._namespace, self._pod, command, stdin=True) as remote:
            with source.open("rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
                    await remote.send(block)
            await remote.end()
            answer = b"".join([bytes(part) async for part in remote.output()])
        check(answer.split()[0].decode(), digest.hexdigest())

    async def download(self, target: Path, path: str = f"{DATA}/source/file", *, through: str = "cat") -> None:
        """`through`: what the bytes go through on the far side, cat or gzip; here they are taken apart again."""
        digest, inflate = hashlib.sha256(), zlib.decompressobj(31)
        # The digest goes to stderr; the pipe ends before bash does, so nothing of it is lost.
        command = ["bash", "-c", f"tee >(sha256sum >&2) < {path} | {through}; wait $!"]
        async with self._kube.exec(self._namespace, self._pod, command) as remote:
            with target.open("wb") as file:
                async for part in remote.output():
                    content = part if through == "cat" else await asyncio.to_thread(inflate.decompress, part)
                    digest.update(content)
                    file.write(content)
        check(remote.errors.split()[0].decode(), digest.hexdigest())

    async def run(self, command: str) -> str:
        return (await self._kube.run(self._namespace, self._pod, ["bash", "-ec", command])).decode(errors="replace")


class Ours:
    """The operator's client and the helper: one tar stream with a trailer."""

    def __init__(self, box: sandbox.Sandbox) -> None:
        self.box = box

    async def upload(self, source: Path) -> None:
        await self.box.unpack(f"{DATA}/source", transfer.from_file(source, "file"), **BOUNDS)

    async def download(self, target: Path) -> None:
        await self.box.pack([sandbox.Root(f"{DATA}/source", ".")], sinks.ToDirectory(target, **BOUNDS), **BOUNDS)

    async def send_tree(self, source: Path) -> None:
        await self.box.unpack(f"{DATA}/tree", transfer.from_directory(source), **BOUNDS)

    async def fetch_tree(self, target: Path) -> None:
        await self.box.pack([sandbox.Root(f"{DATA}/tree", ".")], sinks.ToDirectory(target, **BOUNDS), **BOUNDS)

    async def pass_on(self, other: sandbox.Sandbox) -> None:
        """Out of this pod into the other one, with nothing on disk here."""

        def trailer() -> frames.Trailer:
            if sink.trailer is None:
                raise AssertionError("the archive has ended, and has no trailer")
            return sink.trailer

        async def into(chunks: AsyncIterable[bytes]) -> sandbox.UnpackResult:
            return await other.unpack(f"{DATA}/passed", relays.Relay(lambda: chunks, trailer), **BOUNDS)

        sink = sinks.ToConsumer(into)
        await self.box.pack([sandbox.Root(f"{DATA}/source", ".")], sink, **BOUNDS)


class Kubectl:
    """`kubectl cp`, found on the PATH or in the local cluster's folder."""

    def __init__(self, kubeconfig: Path, namespace: str, pod: str) -> None:
        local = kubeconfig.parent / "bin/kubectl"
        self._program = shutil.which("kubectl") or str(local)
        self._options = ["--kubeconfig", str(kubeconfig), "--namespace", namespace]
        self.pod = pod

    async def upload(self, source: Path) -> None:
        await self.cp(str(source), f"{self.pod}:{DATA}/kubectl")

    async def download(self, target: Path) -> None:
        await self.cp(f"{self.pod}:{DATA}/source/file", str(target))

    async def send_tree(self, source: Path) -> None:
        await self.cp(str(source), f"{self.pod}:{DATA}/kubectl-tree")

    async def fetch_tree(self, target: Path) -> None:
        await self.cp(f"{self.pod}:{DATA}/tree", str(target))

    async def cp(self, source: str, target: str) -> str:
        """What it said."""
        command = [self._program, *self._options, "cp", source, target]
        pipe = subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=pipe)
        _, said = await process.communicate()
        if process.returncode:
            raise Failed(f"{command}: {process.returncode}: {said.decode(errors='replace')[:300]}")
        return said.decode(errors="replace")


def check(found: str, expected: str) -> None:
    """AssertionError: a copy that is not equal is no copy, and has no figure."""
    if found != expected:
        raise AssertionError(f"sha256 {found}, not {expected}")
