"""How far a delivery of artifacts is: told of a large one, rarely, whoever is slow; of a small one nothing."""

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.effects.exporting import PLACE, declared, export
from tests.effects.local_box import boxed
from tests.world import clock

from taskfold.effects import artifacts as copies
from taskfold.effects import sandbox, transfer
from taskfold.effects import store as stores
from taskfold.protocol import artifacts, phase
from taskfold.protocol.artifacts import Status, Type

MIB = 1 << 20
CHUNK = bytes(8 * MIB)
TAKEN_PER_SECOND = MIB


class Chunks:
    """A store whose every object is so many chunks."""

    def __init__(self, chunks: int) -> None:
        self.chunks, self.size = chunks, chunks * len(CHUNK)

    where = staticmethod(lambda key: key)

    async def open(self, key: str) -> "Chunks":
        return self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self.chunks):
            yield CHUNK


def manifest(count: int, chunks: int) -> artifacts.Manifest:
    """Of so many files, each as `Chunks` has it."""
    sha256, size = hashlib.sha256(), chunks * len(CHUNK)
    for _ in range(chunks):
        sha256.update(CHUNK)
    archive = artifacts.Archive("artifacts/0-x-0.tar", size, sha256.hexdigest(), 1)
    return artifacts.Manifest(
        tuple(
            artifacts.Entry(
                f"/app/{n}", f"{n}", Status.OK, type=Type.FILE, path=f"/app/{n}", size=size, archive=archive
            )
            for n in range(count)
        )
    )


def delivered(count: int, chunks: int) -> list[tuple[float, int, int]]:
    """Seconds, bytes and bytes in all, as they were told while a slow consumer took everything."""
    told: list[tuple[float, int, int]] = []

    async def main() -> None:
        now = asyncio.get_running_loop().time
        began = now()
        store = cast("stores.Store", Chunks(chunks))
        payloads = copies.payloads(
            store, PLACE, manifest(count, chunks), lambda sent, total: told.append((now() - began, sent, total))
        )
        for payload in payloads:
            async with transfer.opened(payload) as outgoing:
                async for block in outgoing.blocks():
                    await asyncio.sleep(len(block) / TAKEN_PER_SECOND)
                outgoing.trailer  # noqa: B018 - proves the digest

    clock.run(main)
    return told


def test_a_large_delivery_tells_how_much_of_it_was_taken_rarer_and_rarer() -> None:
    told = delivered(3, 8)
    assert {total for _, _, total in told} == {192 * MIB}
    sizes = [sent for _, sent, _ in told]
    assert sizes == sorted(set(sizes)), "of all artifacts together, and never the same again"
    assert all(abs(sent / MIB - seconds) <= 3 * len(CHUNK) / MIB for seconds, sent, _ in told), told
    pauses = [after[0] - before[0] for before, after in itertools.pairwise(told)]
    assert all(pause >= copies.TOLD_SECONDS for pause in pauses)
    assert 4 <= len(told) <= 4 + 192 / copies.TOLD_LIMIT + 1, "few writes"


def test_a_small_delivery_tells_nothing_however_slow_it_is() -> None:
    assert delivered(3, 4) == []


async def test_what_a_sandbox_was_given_was_told(helper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "TOLD_BYTES", MIB)
    monkeypatch.setattr(copies, "TOLD_SECONDS", 0.0)
    store = stores.Store((tmp_path / "store").as_uri())
    (tmp_path / "one").write_bytes(bytes(4 * MIB))
    (tmp_path / "two").write_bytes(bytes(2 * MIB))
    told: list[tuple[int, int]] = []

    def seen(*progress: int) -> None:
        told.append(cast("Any", progress))

    async with boxed(helper) as box:
        found = await export(box, store, declared(tmp_path / "one", tmp_path / "two"))
        for _ in range(2):  # another try counts from the beginning
            told.clear()
            request = phase.PhaseRequest(sandbox.new_nonce(), "seed", copies.restoring(found))
            await box.run_phase(request, copies.payloads(store, PLACE, found, seen), checked=True)
            total = sum(entry.archive.size for entry in found.entries if entry.archive is not None)
            assert told[-1] == (total, total)
            assert [sent for sent, _ in told] == sorted({sent for sent, _ in told})
