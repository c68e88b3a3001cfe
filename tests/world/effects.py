"""Which effect of a plan is at work: makes each effect a call of its process, beside the calls that it makes.

Guarantees: the engine does what it does without this; an effect without any I/O is a crash point all the same.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from unittest import mock

from taskfold.engine import apply
from tests.world import border as borders
from tests.world.processes import PROCESS

Apply = Callable[[Any, Any, Any], Awaitable[None]]


@contextlib.contextmanager
def told() -> Iterator[None]:
    """For the length of the block every effect of every operator is a call named `effect <Class>`."""
    with (
        mock.patch.object(apply.Applier, "run", _telling(apply.Applier.run)),
        mock.patch.object(apply.Applier, "verifier", _telling(apply.Applier.verifier)),
    ):
        yield


def _telling(applied: Apply) -> Apply:
    async def run(applier: Any, effect: Any, world: Any) -> None:
        process = PROCESS.get()
        if process is None or process.border is None:
            raise RuntimeError("an effect outside of any operator")
        border, name = process.border, type(effect).__name__
        token = borders.EFFECT.set(name)
        try:
            async with border.crossing(f"effect {name}", ""):
                await applied(applier, effect, world)
        finally:
            borders.EFFECT.reset(token)

    return run
