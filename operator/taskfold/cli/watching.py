"""One TaskRun as it changes: a watch, and a GET whenever the watch is not to be trusted.

Guarantees: it ends only by an error (`NotFound`: the run is gone or another one has its name); a watch that breaks,
or that the account may not open, costs a GET every half second, never a change; one silent connection lasts a
minute at most; nothing is kept but the last line.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import aiohttp

from taskfold.api.taskrun import TaskRun
from taskfold.cli.cluster import Connection
from taskfold.effects import client as api
from taskfold.effects import errors

POLL_SECONDS = 0.5
WATCH_SECONDS = 50
CONTACT_SECONDS = 120.0
"""An API server that restarts is back within this time; longer silence is an error."""
MAX_EVENT = 8 << 20
"""An object has at most 1.5 MiB."""


async def changes(connection: Connection, name: str, uid: str) -> AsyncIterator[TaskRun]:
    """The run now, and then after every change, for ever. Some states may be skipped, the last never is."""
    clock = asyncio.get_running_loop().time
    heard = clock()
    while True:
        try:
            found = await connection.client.get(api.TASKRUNS, connection.namespace, name)
            heard = clock()
        except errors.Unavailable:
            if clock() - heard > CONTACT_SECONDS:
                raise
            await asyncio.sleep(POLL_SECONDS)
            continue
        if found["metadata"]["uid"] != uid:
            raise errors.NotFound("another run has its name", where=f"TaskRun {name}", details={"name": name})
        yield TaskRun.parse(found)
        async for changed in _watch(connection, name, found["metadata"]["resourceVersion"]):
            heard = clock()
            yield TaskRun.parse(changed)
        await asyncio.sleep(POLL_SECONDS)


async def _watch(connection: Connection, name: str, version: str) -> AsyncIterator[api.Json]:
    """Changed objects since `version`; ends with the connection, at a deletion, and at anything unexpected."""
    try:
        login = await connection.login.current()
        query = urlencode(
            {
                "watch": "1",
                "fieldSelector": f"metadata.name={name}",
                "resourceVersion": version,
                "timeoutSeconds": str(WATCH_SECONDS),
            }
        )
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=WATCH_SECONDS + 10)) as session,
            session.get(
                f"{login.server}{api.TASKRUNS.path(connection.namespace)}?{query}",
                headers={**login.headers, "Accept": "application/json"},
                ssl=login.ssl if login.ssl is not None else True,
                server_hostname=login.server_name,
                proxy=login.proxy,
                raise_for_status=True,
            ) as response,
        ):
            async for line in _lines(response.content):
                event = json.loads(line)
                if event.get("type") not in {"ADDED", "MODIFIED"}:
                    return
                yield event["object"]
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, errors.EffectError):
        return


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in content.iter_any():
        rest += chunk
        if len(rest) > MAX_EVENT:
            raise ValueError("an event of the watch has no end")
        *lines, last = rest.split(b"\n")
        rest = last
        for line in lines:
            if line.strip():
                yield bytes(line)
