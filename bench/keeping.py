"""Artifacts of sandboxes into a store and back, several at once, with the time and the memory of this process."""

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench import memory
from taskfold.contract.task import Artifact
from taskfold.effects import artifacts, sandbox, store
from taskfold.protocol import artifacts as manifests
from taskfold.protocol import phase

LIMITS = artifacts.Limits(1 << 40, 1_000_000, 3600)


@dataclass
class Measured:
    """Seconds for all; bytes that were resident before, and at most meanwhile."""

    seconds: float
    idle: int
    peak: int


async def there_and_back(
    stored: store.Store, boxes: Sequence[sandbox.Sandbox], path: str, number: int
) -> dict[str, Measured]:
    """The artifact `path`, so many times at once, from the sandboxes in turn; then into each of them once."""
    place = f"bench/copies/{secrets.token_hex(4)}/"
    places = [f"{place}{index}/" for index in range(number)]

    async def keep(index: int) -> manifests.Manifest:
        box, wanted = boxes[index % len(boxes)], [Artifact(path, "kept")]
        return await artifacts.export(
            box, stored, places[index], wanted, nonce=sandbox.new_nonce(), limits=LIMITS, on_progress=lambda _: None
        )

    async def restore(index: int, manifest: manifests.Manifest) -> None:
        request = phase.PhaseRequest(sandbox.new_nonce(), "seed", artifacts.restoring(manifest))
        await boxes[index].run_phase(request, artifacts.payloads(stored, places[index], manifest))

    began, idle = time.monotonic(), memory.forget_peak()
    kept = await asyncio.gather(*(keep(index) for index in range(number)))
    out = Measured(time.monotonic() - began, idle, memory.peak())
    began, idle = time.monotonic(), memory.forget_peak()
    back = min(number, len(boxes))
    await asyncio.gather(*(restore(index, kept[index]) for index in range(back)))
    into = Measured((time.monotonic() - began) * number / back, idle, memory.peak())
    await stored.delete(place)
    return {"out of the pods": out, "into the pods": into}
