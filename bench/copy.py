# ruff: noqa: A005  (nobody imports it, and it is what it is called)
"""Our copies against a raw exec stream that is hashed at both ends, with `kubectl cp` beside them; their memory.

    python -m bench.copy [--mib 100] [--pairs 7] [--pods] [--small N ...] [--kept] [--gzip] [--odd]
        [--json FILE]

What is compared goes in turn, because the machine drifts more than the ways differ; a figure is the median of the own
ratios of the turns. Every copy ends as a file on the other side whose sha256 is compared, else there is no figure.
`--pods`: out of one pod into another, beside the slower of a raw stream out of the one and one into the other at the
same time. `--small`: trees of so many files. `--kept`: artifacts into a store and out of it, one of 1 GiB and ten of
200 MiB at once, with the memory of this process; the store is a folder, then the S3 server versitygw. `--gzip`: a raw
stream through `gzip -1` on the far side, of random bytes and of the image's programs. `--odd`: what `kubectl cp` makes
of links, FIFOs and odd names.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from tests import s3
from tests.conformance import sandbox_pod

from bench import figures, keeping, odd
from bench.kube import Failed, Kube, kubeconfig, namespace, until
from bench.ways import DATA, Kubectl, Ours, Raw, check
from taskfold.effects import client as api
from taskfold.effects import credentials, heap, places, sandbox, store
from taskfold.effects import exec as execs

MIB = 1 << 20
PODS = ("copy-1", "copy-2")
CODE = f"tar -C /usr -cf - lib | head -c {256 * MIB} > {DATA}/code"

Copy = Callable[[], Awaitable[object]]


class Bench:
    """Two sandboxes on two nodes, and the ways into them."""

    def __init__(self, kube: Kube, space: str, boxes: list[sandbox.Sandbox], folder: Path) -> None:
        self.boxes, self._folder, self._source = boxes, folder, folder / "source"
        self._ours = [Ours(box) for box in boxes]
        self._raw = [Raw(kube, space, pod) for pod in PODS]
        self._kubectl = Kubectl(kubeconfig(), space, PODS[0])
        self.found: dict[str, Any] = {"machine": figures.machine()}

    async def stream(self, size: int, turns: int) -> None:
        """One file, both directions."""
        digest, out = _random_file(self._source, size), self._folder / "out"
        ours, raw, kubectl = self._ours[0], self._raw[0], self._kubectl

        async def sent(copy: Callable[[Path], Awaitable[object]], name: str) -> float:
            seconds = await _timed(lambda: copy(self._source))
            check((await raw.run(f"sha256sum {DATA}/{name}")).split()[0], digest)
            return seconds

        async def fetched(copy: Callable[[Path], Awaitable[object]], target: Path) -> float:
            _clear(out)
            seconds = await _timed(lambda: copy(target))
            check(_sha256(out / "file"), digest)
            return seconds

        await self._turns(
            f"into a pod, {_size(size)}",
            size,
            turns,
            {
                "ours": lambda: sent(ours.upload, "source/file"),
                "raw": lambda: sent(raw.upload, "raw"),
                "kubectl cp": lambda: sent(kubectl.upload, "kubectl"),
            },
        )
        await self._turns(
            f"out of a pod, {_size(size)}",
            size,
            turns,
            {
                "ours": lambda: fetched(ours.download, out),
                "raw": lambda: fetched(raw.download, out / "file"),
                "kubectl cp": lambda: fetched(kubectl.download, out / "file"),
            },
        )

    async def between_pods(self, size: int, turns: int) -> None:
        """Out of the first pod into the second one, and the same bytes by two raw streams at the same time."""
        digest = _random_file(self._source, size)
        await self._ours[0].upload(self._source)
        out = self._folder / "raw-out"

        async def passed() -> float:
            seconds = await _timed(lambda: self._ours[0].pass_on(self.boxes[1]))
            check((await self._raw[1].run(f"sha256sum {DATA}/passed/file")).split()[0], digest)
            return seconds

        async def both() -> float:
            legs = (self._raw[0].download(out), self._raw[1].upload(self._source))
            return max(await asyncio.gather(*(_timed(lambda leg=leg: leg) for leg in legs)))

        async def alone() -> float:
            down = await _timed(lambda: self._raw[0].download(out))
            return max(down, await _timed(lambda: self._raw[1].upload(self._source)))

        ways = {"ours": passed, "raw": both, "the slower of two raw streams alone": alone}
        await self._turns(f"from pod to pod, {_size(size)}", size, turns, ways)

    async def small(self, number: int, turns: int) -> None:
        """A tree of small files: there and back."""
        tree, out = self._folder / "tree", self._folder / "out"
        size = _tree(tree, number)
        ours, kubectl, raw = self._ours[0], self._kubectl, self._raw[0]
        listed = "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"

        async def sent(copy: Callable[[Path], Awaitable[object]], name: str) -> float:
            await raw.run(f"rm -rf {DATA}/{name}; {f'mkdir {DATA}/{name}' if name == 'tree' else ':'}")
            seconds = await _timed(lambda: copy(tree))
            check(await raw.run(f"cd {DATA}/{name}; {listed}"), await _shell(listed, tree))
            return seconds

        async def fetched(copy: Callable[[Path], Awaitable[object]]) -> float:
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            seconds = await _timed(lambda: copy(out))
            check(await _shell(listed, out), await _shell(listed, tree))
            return seconds

        name = f"{number:,} files, {_size(size)}"
        await self._turns(
            f"into a pod, {name}",
            size,
            turns,
            {
                "ours": lambda: sent(ours.send_tree, "tree"),
                "kubectl cp": lambda: sent(kubectl.send_tree, "kubectl-tree"),
            },
        )
        await self._turns(
            f"out of a pod, {name}",
            size,
            turns,
            {"ours": lambda: fetched(ours.fetch_tree), "kubectl cp": lambda: fetched(kubectl.fetch_tree)},
        )

    async def compressed(self, turns: int) -> None:
        """The same bytes as they are, and through `gzip -1` there and inflate here."""
        await self._raw[0].run(f"{CODE}; head -c {256 * MIB} /dev/urandom > {DATA}/random")
        for name in ("code", "random"):
            packed = int(await self._raw[0].run(f"gzip -1 < {DATA}/{name} | wc -c"))
            size = int(await self._raw[0].run(f"wc -c < {DATA}/{name}"))

            async def through(program: str, name: str = name) -> float:
                target = self._folder / "out-raw"
                return await _timed(lambda: self._raw[0].download(target, f"{DATA}/{name}", through=program))

            ways = {"ours": lambda: through("gzip -1"), "raw": lambda: through("cat")}
            await self._turns(f"{name}, {_size(size)}, gzip -1 makes {packed / size:.2f} of it", size, turns, ways)

    async def odd(self) -> None:
        """What `kubectl cp` makes of odd things; ours is in tests/conformance/test_copy_matrix.py."""
        found = self.found["kubectl cp"] = await odd.told(self._raw[0], self._kubectl, self._folder)
        for name, words in found.items():
            print(f"kubectl cp, {name}: {words}", flush=True)

    async def kept(self, kind: str, stored: store.Store) -> None:
        """Artifacts through a store: seconds, and what this process had resident."""
        for label, number, each in (("one of 1 GiB", 1, 1 << 30), ("ten of 200 MiB at once", 10, 200 * MIB)):
            for raw in self._raw:
                await raw.run(f"rm -rf {DATA}/*; mkdir {DATA}/kept; head -c {each} /dev/urandom > {DATA}/kept/file")
            found = await keeping.there_and_back(stored, self.boxes, f"{DATA}/kept", number)
            for way, measured in found.items():
                rate = number * each / MIB / measured.seconds
                memory = (
                    f"resident {measured.idle / MIB:.0f} MiB before, +{(measured.peak - measured.idle) / MIB:.0f} MiB"
                )
                print(f"{kind}, {label}, {way}: {rate:.0f} MiB/s; {memory}", flush=True)
                self.found[f"{kind}, {label}, {way}"] = vars(measured)

    async def _turns(self, name: str, size: int, turns: int, ways: dict[str, Callable[[], Awaitable[float]]]) -> None:
        """Each way in each turn, the first two in changing order, so that neither always finds the other's caches."""
        first, second, *others = ways
        failed: dict[str, str] = {}
        times: dict[str, list[float]] = {way: [] for way in ways}
        for way in (first, second):
            await self._once(way, ways, [], failed)  # what is only paid once: connections, page cache
        for turn in range(turns):
            order = (first, second) if turn % 2 == 0 else (second, first)
            for way in (*order, *others):
                await self._once(way, ways, times[way], failed)
        print(f"{name}, {turns} turns")
        for way, found in times.items():
            if way in failed:
                print(f"  {way}: no copy: {failed[way]}")
            else:
                median = statistics.median(found)
                print(f"  {way}: {size / MIB / median:.0f} MiB/s, {median:.2f} s")
        if not failed:
            ratio = figures.ratio_within_pairs(list(zip(times[second], times[first], strict=True)))
            print(f"  the first over the second: {figures.told(ratio)}", flush=True)
            self.found[name] = {"seconds": times, "ratio": ratio}

    async def _once(
        self, way: str, ways: dict[str, Callable[[], Awaitable[float]]], times: list[float], failed: dict[str, str]
    ) -> None:
        if way in failed:
            return
        try:
            times.append(await ways[way]())
        except (Failed, AssertionError) as error:  # of kubectl; of our own it is an end
            if way != "kubectl cp":
                raise
            failed[way] = str(error)[-200:]


@contextlib.asynccontextmanager
async def sandboxes(kube: Kube, space: str) -> AsyncIterator[list[sandbox.Sandbox]]:
    """Running sandboxes, pinned, on as many nodes as there are."""
    path = f"/api/v1/namespaces/{space}/pods"
    nodes = sorted(node["metadata"]["name"] for node in (await kube.request("GET", "/api/v1/nodes"))["items"])

    async def pin(name: str) -> execs.PodPin | None:
        pod = await kube.request("GET", f"{path}/{name}")
        return execs.PodPin.of(pod) if pod["status"].get("phase") == "Running" else None

    async with api.Client(credentials.from_kubeconfig(str(kubeconfig()))) as client:
        exec_ = execs.Exec(client, caps=places.Caps(copies_per_node=8))
        pins = []
        for number, name in enumerate(PODS):
            manifest = sandbox_pod.manifest(name)
            manifest["spec"]["nodeName"] = nodes[number % len(nodes)]
            await kube.request("POST", path, manifest)
            pins.append(await until(lambda name=name: pin(name)))
        yield [sandbox.Sandbox(exec_, each) for each in pins]


def _random_file(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for start in range(0, size, MIB):
            block = os.urandom(min(MIB, size - start))
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


def _tree(root: Path, number: int) -> int:
    """So many files of up to 4 KiB; their bytes."""
    shutil.rmtree(root, ignore_errors=True)
    size = 0
    for index in range(number):
        path = root / f"d{index // 500}" / f"f{index}"
        path.parent.mkdir(parents=True, exist_ok=True)
        size += path.write_bytes(os.urandom(index % 4096))
    return size


async def _shell(command: str, folder: Path) -> str:
    process = await asyncio.create_subprocess_shell(command, cwd=folder, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


async def _timed(copy: Copy) -> float:
    began = time.monotonic()
    await copy()
    return time.monotonic() - began


def _size(size: int) -> str:
    return f"{size / MIB:.4g} MiB" if size >= MIB else f"{size} B"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, nargs="*", default=[100], help="sizes of the file")
    parser.add_argument("--pairs", type=int, default=7, help="turns of each comparison")
    parser.add_argument("--pods", action="store_true")
    parser.add_argument("--small", type=int, nargs="*", default=[])
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--odd", action="store_true")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


async def main() -> None:
    options = _options()
    heap.keep_small()  # as the operator does
    with tempfile.TemporaryDirectory(prefix="taskfold-bench-") as name:
        folder = Path(name)
        async with Kube(kubeconfig()) as kube, namespace(kube) as space, sandboxes(kube, space) as boxes:
            bench = Bench(kube, space, boxes, folder)
            print(bench.found["machine"])
            if options.kept:  # first: what follows leaves more behind in this process
                await bench.kept("a folder", store.Store((folder / "store").as_uri()))
                with s3.Server(folder / "s3", folder / "s3.log") as server:
                    await bench.kept("S3", store.Store(f"s3://{s3.BUCKET}/bench", options=s3.options(server.endpoint)))
            for mib in options.mib:
                await bench.stream(mib * MIB, options.pairs)
            if options.pods:
                await bench.between_pods(max(options.mib or [100]) * MIB, options.pairs)
            for number in options.small:
                await bench.small(number, options.pairs)
            if options.odd:
                await bench.odd()
            if options.gzip:
                await bench.compressed(options.pairs)
    if options.json is not None:
        options.json.write_text(json.dumps(bench.found, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
