"""Artifacts out of a sandbox and back, as tests do it, and an independent look at what was kept."""

import hashlib
import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

from taskfold.contract.task import Artifact
from taskfold.effects import artifacts as copies
from taskfold.effects import sandbox
from taskfold.effects import store as stores
from taskfold.protocol import artifacts, phase

PLACE = "cluster/namespace/uid/1/"
WIDE = copies.Limits(1 << 40, 1_000_000, 600)


def declared(*sources: Path | str, exclude: tuple[str, ...] = ()) -> list[Artifact]:
    return [Artifact(str(source), str(source).lstrip("/"), exclude) for source in sources]


async def export(
    box: sandbox.Sandbox,
    store: stores.Store,
    wanted: Sequence[Artifact],
    *,
    limits: copies.Limits = WIDE,
    told: Callable[[copies.Progress], None] = lambda _: None,
) -> artifacts.Manifest:
    return await copies.export(
        box, store, PLACE, wanted, nonce=sandbox.new_nonce(), limits=limits, on_progress=told, checked=True
    )


async def restore(box: sandbox.Sandbox, store: stores.Store, manifest: artifacts.Manifest) -> phase.PhaseResult:
    """Put the delivered artifacts at their own paths."""
    request = phase.PhaseRequest(sandbox.new_nonce(), "seed", copies.restoring(manifest))
    return await box.run_phase(request, copies.payloads(store, PLACE, manifest), checked=True)


async def kept(store: stores.Store) -> set[str]:
    """Keys below the place."""
    return {each.key.removeprefix(PLACE) async for each in store.list(PLACE)}


async def members(store: stores.Store, entry: artifacts.Entry) -> dict[str, bytes | None]:
    """What an entry's archive holds, proven by its digest."""
    assert entry.archive is not None
    tar = b"".join([chunk async for chunk in await store.open(PLACE + entry.archive.key)])
    assert (len(tar), hashlib.sha256(tar).hexdigest()) == (entry.archive.size, entry.archive.sha256)
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        found = opened.getmembers()
        assert len(found) == entry.archive.entries
        return {
            each.name: content.read() if (content := opened.extractfile(each)) is not None else None for each in found
        }
