"""TaskRuns, and the VerifierRuns that grade them again, for whoever makes them: created whole or not at all, and
followed as they change.

Guarantees: a ConfigMap made for a run belongs to it, and is taken away if the run is not created. Following ends only
by an error (`NotFound`: the run is gone or another one has its name); a watch that breaks, or that the account may not
open, costs a GET every half second, never a change; one silent connection lasts a minute at most; nothing is kept but
the last line.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

import aiohttp

from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import pod
from taskfold.effects import client as api
from taskfold.effects import credentials, errors

R = TypeVar("R", TaskRun, VerifierRun)

POLL_SECONDS = 0.5
WATCH_SECONDS = 50
CONTACT_SECONDS = 120.0
"""An API server that restarts is back within this time; longer silence is an error."""
MAX_EVENT = 8 << 20
"""An object has at most 1.5 MiB."""


@dataclass(frozen=True)
class Created:
    """A run that was created. `unowned`: why its ConfigMap will not go with it, "" if it will."""

    run: TaskRun
    unowned: str = ""


async def create(client: api.Client, namespace: str, run: api.Json, config_map: api.Json | None = None) -> Created:
    """The run, with the ConfigMap that holds its files."""
    if config_map is None:
        return Created(await create_one(client, TaskRun, namespace, run))
    files = await client.create(api.CONFIGMAPS, namespace, config_map)
    name = files["metadata"]["name"]
    try:
        created = await create_one(client, TaskRun, namespace, run)
    except BaseException:
        with contextlib.suppress(errors.EffectError):
            await client.delete(api.CONFIGMAPS, namespace, name, uid=files["metadata"]["uid"])
        raise
    try:
        owners = {"metadata": {"ownerReferences": [pod.owner(created)]}}
        await client.patch(api.CONFIGMAPS, namespace, name, owners)
    except errors.EffectError as error:
        return Created(created, f"ConfigMap {name} will not go with the run, delete it yourself: {error}")
    return Created(created)


async def create_one(client: api.Client, kind: type[R], namespace: str, manifest: api.Json) -> R:
    """The object alone. One whose answer was lost is looked up."""
    resource = _resource(kind)
    try:
        created = await client.create(resource, namespace, manifest)
    except errors.Unavailable as error:
        if not error.sent:
            raise
        try:  # it may have been created all the same
            created = await client.get(resource, namespace, manifest["metadata"]["name"])
        except errors.EffectError:
            raise error from None
    return kind.parse(created)


async def changes(client: api.Client, login: credentials.Source, run: R) -> AsyncGenerator[R, None]:
    """The run now, and then after every change, for ever. Some states may be skipped, the last never is."""
    clock = asyncio.get_running_loop().time
    heard = clock()
    kind, metadata = type(run), run.metadata
    resource = _resource(kind)
    while True:
        try:
            found = await client.get(resource, metadata.namespace, metadata.name)
            heard = clock()
        except errors.Unavailable:
            if clock() - heard > CONTACT_SECONDS:
                raise
            await asyncio.sleep(POLL_SECONDS)
            continue
        if found["metadata"]["uid"] != metadata.uid:
            name = metadata.name
            raise errors.NotFound("another run has its name", where=f"{kind.KIND} {name}", details={"name": name})
        yield kind.parse(found)
        path = resource.path(metadata.namespace)
        async with contextlib.aclosing(
            _watch(login, path, metadata.name, found["metadata"]["resourceVersion"])
        ) as watch:
            async for changed in watch:
                heard = clock()
                yield kind.parse(changed)
        await asyncio.sleep(POLL_SECONDS)


def _resource(kind: type[TaskRun] | type[VerifierRun]) -> api.Resource:
    return api.TASKRUNS if kind is TaskRun else api.VERIFIERRUNS


async def _watch(login: credentials.Source, path: str, name: str, version: str) -> AsyncGenerator[api.Json, None]:
    """Changed objects since `version`; ends with the connection, at a deletion, and at anything unexpected."""
    try:
        current = await login.current()
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
                f"{current.server}{path}?{query}",
                headers={**current.headers, "Accept": "application/json"},
                ssl=current.ssl if current.ssl is not None else True,
                server_hostname=current.server_name,
                proxy=current.proxy,
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
