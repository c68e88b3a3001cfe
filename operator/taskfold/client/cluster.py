"""The runs of one namespace: created, and found.

Guarantee: a creation that is cancelled leaves no run and no ConfigMap behind.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from taskfold.api.common import API_VERSION
from taskfold.api.taskrun import TaskRun, TaskRunSpec
from taskfold.build import manifests
from taskfold.client import undoing
from taskfold.client.run import Run
from taskfold.effects import client as api
from taskfold.effects import credentials, errors, folders, taskruns
from taskfold.effects import exec as execs

EXTERNAL: Mapping[str, Any] = {"external": {}}
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


@contextlib.asynccontextmanager
async def connect(
    *, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None
) -> "AsyncIterator[Client]":
    """A client of the cluster that the kubeconfig names, or of the pod's own; it is to be used inside the block."""
    login = credentials.find(kubeconfig, context=context)
    current = await login.current()
    async with api.Client(login, user_agent="taskfold-client") as connection:
        yield Client(connection, login, namespace or current.namespace)


class Client:
    """Makes and finds the runs of one namespace."""

    def __init__(self, connection: api.Client, login: credentials.Source, namespace: str) -> None:
        self.namespace = namespace
        self._connection = connection
        self._login = login
        self._exec = execs.Exec(connection)

    async def create(self, spec: TaskRunSpec | Mapping[str, Any], *, name: str | None = None) -> Run:
        """A TaskRun of this spec; without a name, of one that nobody has."""
        wire = spec.wire() if isinstance(spec, TaskRunSpec) else dict(spec)
        metadata = {"name": name or unique_name("run")}
        return await self._create({"apiVersion": API_VERSION, "kind": TaskRun.KIND, "metadata": metadata, "spec": wire})

    async def create_from_folder(
        self,
        folder: str | Path,
        *,
        agent: Mapping[str, Any] = EXTERNAL,
        name: str | None = None,
        **spec: Any,
    ) -> Run:
        """A TaskRun of a task folder on this machine. `spec`: further fields, in the object's own spelling."""
        place = Path(folder)
        checked = await asyncio.to_thread(folders.load, place)
        wanted = manifests.Wanted(
            name or unique_name(checked.task.id),
            None,
            checked.task.id,
            checked.files,
            dict(agent),
            spec=spec,
            path=checked.path,
        )
        rendered = await asyncio.to_thread(manifests.build, wanted)
        return await self._create(rendered.run, rendered.config_map)

    async def get(self, name: str) -> Run:
        """A run that exists; `errors.NotFound` if there is none."""
        return self._run(TaskRun.parse(await self._connection.get(api.TASKRUNS, self.namespace, name)))

    async def _create(self, run: api.Json, config_map: api.Json | None = None) -> Run:
        creating = asyncio.ensure_future(taskruns.create(self._connection, self.namespace, run, config_map))
        try:
            created = await asyncio.shield(creating)
        except asyncio.CancelledError:
            await undoing.in_any_case(self._undo(creating))
            raise
        return self._run(created.run)

    async def _undo(self, creating: "asyncio.Future[taskruns.Created]") -> None:
        """Nobody will hear of the run that is being created."""
        await asyncio.wait([creating])
        if not creating.cancelled() and creating.exception() is None:
            with contextlib.suppress(errors.EffectError):
                await self._run(creating.result().run).delete()

    def _run(self, run: TaskRun) -> Run:
        return Run(self._connection, self._login, self._exec, run)


def unique_name(text: str) -> str:
    """A name for a run that nobody has, with this text in front."""
    return manifests.unique_name(text, "".join(secrets.choice(_SUFFIX) for _ in range(manifests.SUFFIX_LENGTH)))
