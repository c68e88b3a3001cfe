"""A phase's way through its runs, as PID 1 goes it: one after the other, checks, and what goes on in the background.

Guarantees, as `helper/course.go` gives them: a check counts its failures by when their attempts began; a background
run that fails while its own phase goes on stops that phase, and no other.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.world import clock, running
from tests.world.running import Event

if TYPE_CHECKING:
    from tests.world.journal import Init, Phase
    from tests.world.sandbox import Container


class Course:
    """One started phase on its way."""

    def __init__(self, box: "Container", init: "Init", nonce: str, name: str) -> None:
        self._box = box
        self._init = init
        self._nonce = nonce
        self._name = name
        self._end: float | None = None
        self._broken = asyncio.Event()

    async def execute(self, phase: "Phase", work: Mapping[str, Any]) -> None:
        """To the end; the result is the journal's."""
        if work.get("limitSeconds") is not None:
            self._end = clock.now() + work["limitSeconds"]
        runs: list[Event] = []
        for spec in work["runs"]:
            if self._broken.is_set():
                break
            if self._left(None) == 0.0:
                runs.append(running.late(spec))
                break
            if spec.get("background") is not None:
                await self._begin(spec)
                continue
            result = await (self._check(spec) if spec.get("check") is not None else self._run(spec))
            runs.append(result)
            if not _succeeded(result) and not spec.get("continueOnFailure", False):
                break
        found = [running.read_back(self._box.files, read["path"], read.get("maxBytes", 0)) for read in work["read"]]
        self._init.finish(phase, runs, found)

    async def _run(self, spec: Mapping[str, Any], attempt: int = 1) -> Event:
        limit = self._left(spec.get("limitSeconds"))
        return await running.run(self._box, spec, limit, nonce=self._nonce, phase=self._name, attempt=attempt)

    async def _check(self, spec: Mapping[str, Any]) -> Event:
        check, begun, failures, attempt = spec["check"], clock.now(), 0, 0
        while True:
            began, attempt = clock.now() - begun, attempt + 1
            result = {**await self._run(spec, attempt), "seconds": clock.now() - begun}
            if _succeeded(result):
                return result
            pause = check.get("startIntervalSeconds", 0.0)
            if began >= check.get("startPeriodSeconds", 0.0):
                pause, failures = check.get("intervalSeconds", 0.0), failures + 1
                if failures >= check.get("retries", 0):
                    return result
            if not await self._pause(pause):
                timed_out = result["timedOut"] or not self._broken.is_set()
                return {**result, "seconds": clock.now() - begun, "timedOut": timed_out}

    async def _begin(self, spec: Mapping[str, Any]) -> None:
        """It goes on beside the others; they wait a little for it."""
        entry = len(self._init.background)
        self._init.background.append((self._nonce, None))

        async def beside() -> None:
            box, limit = self._box, spec.get("limitSeconds")
            result = await running.run(box, spec, limit, nonce=self._nonce, phase=self._name)
            self._init.background[entry] = (self._nonce, result)
            if not _succeeded(result) and not spec.get("continueOnFailure", False):
                self._broken.set()

        task = self._box.spawn(beside(), f"beside {self._nonce[:8]}")
        settle = spec["background"].get("settleSeconds", 0.0)
        await asyncio.wait([task], timeout=self._left(settle))

    async def _pause(self, seconds: float) -> bool:
        """False: there is no time for it, or no use."""
        left = self._left(None)
        if left is not None and seconds >= left:
            return False
        try:
            await asyncio.wait_for(self._broken.wait(), seconds)
        except TimeoutError:
            return True
        return False

    def _left(self, own: float | None) -> float | None:
        """A limit, cut to what is left to the phase."""
        if self._end is None:
            return own
        left = max(0.0, self._end - clock.now())
        return left if own is None else min(own, left)


def _succeeded(result: Event) -> bool:
    return result["returnCode"] == 0 and not result["timedOut"]
