"""The liveness endpoint, for the whole life of the process: standing by, starting, at work.

Guarantees: 200 while the process stands by, or works and every check passes; 503 with the reason while it starts and
when a check fails. It never waits for the work that it tells about.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from enum import StrEnum

from aiohttp import web

PATH = "/healthz"


class Role(StrEnum):
    """What the process is doing."""

    STANDING_BY = "standingBy"
    STARTING = "starting"
    AT_WORK = "atWork"


class Unhealthy(Exception):  # noqa: N818 - says what is the case
    """A check's word that this process should be started anew."""


Check = Callable[[], object]
"""Gives a figure for the answer, or raises `Unhealthy`."""


class Health:
    """What the endpoint tells."""

    def __init__(self) -> None:
        self.role = Role.STARTING
        self._checks: Mapping[str, Check] = {}

    def works(self, checks: Mapping[str, Check]) -> None:
        """The operator is at work; from now on these are asked."""
        self._checks = dict(checks)
        self.role = Role.AT_WORK

    @contextlib.asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[None]:
        """Answer on this port, on every address, for the length of the block."""
        application = web.Application()
        application.router.add_get(PATH, self._answer)
        runner = web.AppRunner(application, handle_signals=False, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104 - the kubelet asks from the node
            yield
        finally:
            await runner.cleanup()

    async def _answer(self, _: web.Request) -> web.Response:
        found: dict[str, object] = {"role": self.role.value}
        healthy = self.role is not Role.STARTING
        for name, check in self._checks.items():
            try:
                found[name] = check()
            except Unhealthy as problem:
                found[name], healthy = str(problem), False
        response = web.json_response(found, status=200 if healthy else 503)
        # kopf waits at its end for every task that began after it did: none may live as long as an idle connection.
        response.force_close()
        return response
