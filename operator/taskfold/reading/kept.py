"""Where a run's files are kept, and whether they may be read yet.

Guarantees: the place follows from the object's own namespace and uid, as the API server has them; what its status says
about it is only held against that. A run that goes on has nothing to read, but its earlier attempts do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taskfold.api import names
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.effects import store as stores
from taskfold.reading import answers

RESOURCES = {each.plural: each for each in (api.TASKRUNS, api.VERIFIERRUNS)}
KINDS = {"taskruns": "TaskRun", "verifierruns": "VerifierRun"}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class Place:
    """One attempt. `prefix` ends with a slash. `step`: only what belongs to this step of it."""

    kind: str
    name: str
    namespace: str
    uid: str
    attempt: int
    prefix: str
    step: str | None = None


class Runs:
    """Looks objects up with the operator's own rights; the caller's were asked for before."""

    def __init__(self, client: api.Client, cluster: str, namespaces: list[str]) -> None:
        self._client, self._cluster, self._served = client, cluster, namespaces

    async def place(self, resource: str, namespace: str, name: str, attempt: int | None) -> Place:
        """Where the files of an attempt are; None: the last one. Refusal 404, 409, 503."""
        if self._served and namespace not in self._served:
            raise answers.Refusal(404, f"namespace {namespace} is not served by this operator")
        found = await self._get(resource, namespace, name)
        owner = _owner(found) if resource == api.VERIFIERRUNS.plural else None
        if owner is None:
            return self._own(KINDS[resource], found, attempt)
        run = await self._get(api.TASKRUNS.plural, namespace, owner[0])
        if run["metadata"]["uid"] != owner[1]:
            raise answers.Refusal(404, f"the TaskRun {owner[0]} of VerifierRun {name} is gone")
        number = int((found["metadata"].get("labels") or {}).get(names.ATTEMPT) or 1)
        if attempt not in (None, number):
            raise answers.Refusal(404, f"VerifierRun {name} belongs to attempt {number} of TaskRun {owner[0]}")
        place = self._own("TaskRun", run, number)
        step = (found.get("spec") or {}).get("step")
        return Place(**{**vars(place), "step": step})

    async def _get(self, resource: str, namespace: str, name: str) -> api.Json:
        details = {"name": name, "kind": resource}
        missing = answers.Refusal(404, f'{resource}.{RESOURCES[resource].group} "{name}" not found', details)
        try:
            return await self._client.get(RESOURCES[resource], namespace, name)
        except errors.NotFound:
            raise missing from None
        except errors.EffectError as error:
            raise answers.Refusal(503, f"the run cannot be read: {error}", retry_seconds=1) from error

    def _own(self, kind: str, found: Mapping[str, Any], attempt: int | None) -> Place:
        metadata, status = found["metadata"], found.get("status") or {}
        name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
        root = f"{self._cluster}/{namespace}/{uid}/"
        stored = str(status.get("store") or "")
        last = max((int(each.get("number", 1)) for each in status.get("attempts") or ()), default=1)
        number = last if attempt is None else attempt
        if not 1 <= number <= last:
            raise answers.Refusal(404, f"{kind} {name} has no attempt {number}, its last one is {last}")
        if number == last and not status.get("complete"):
            wait = f"kubectl --namespace {namespace} wait {kind.lower()}/{name} --for=condition=Complete"
            phase = status.get("phase") or "not admitted yet"
            raise answers.Refusal(409, f"{kind} {name} is not finished ({phase}). Wait for it: {wait}")
        if not stored and number == last:
            raise answers.Refusal(404, f"{kind} {name} left no files: it ended before there were any")
        if stored and not stored.startswith(root):
            raise answers.Refusal(404, f"the files of {kind} {name} are not in this operator's store: {stored}")
        return Place(kind, name, namespace, uid, number, stores.run_prefix(self._cluster, namespace, uid, number))


def is_name(text: str) -> bool:
    """Whether an object or a namespace can be called so: whatever else stands in a path goes no further."""
    return _NAME.fullmatch(text) is not None


def _owner(verifier: Mapping[str, Any]) -> tuple[str, str] | None:
    """Name and uid of the TaskRun that a verification belongs to; None: it stands free, its files are its own."""
    for reference in verifier["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and reference.get("kind") == "TaskRun":
            return reference["name"], reference["uid"]
    return None
