"""What the watches have told: the last seen TaskRuns, VerifierRuns, sandbox pods and NetworkPolicies.

Guarantees: an older resourceVersion never replaces a newer one; a comparison with a list drops what the list does not
hold, so that nothing that vanished in a gap stays; what is kept of an admitted run is without its task files, and of a
finished one its version alone. Absence here is a hint: who decides upon it asks the API server.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from taskfold.api import names, taskrun, verifierrun
from taskfold.decide import pod as pods

Object = dict[str, Any]
Place = tuple[str, str]
"""Namespace and name."""


class Kind(StrEnum):
    """What a key of the work queue names."""

    TASK_RUN = "TaskRun"
    VERIFIER_RUN = "VerifierRun"


@dataclass(frozen=True, order=True)
class Key:
    """One object that is reconciled."""

    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Collection(StrEnum):
    """What the picture consists of, by its name in the API."""

    TASK_RUNS = "taskruns"
    VERIFIER_RUNS = "verifierruns"
    PODS = "pods"
    POLICIES = "networkpolicies"


@dataclass(frozen=True)
class Difference:
    """What a list knew better. `gone`: so many were held that are not there; `keys`: whom that concerns; `outdated`:
    listed, and not held in that version.
    """

    gone: int
    keys: set[Key]
    outdated: list[Place]


MAX_DEPARTED = 1000


@dataclass(frozen=True)
class Seen:
    """An object and what was computed from the whole of it before it was trimmed."""

    object: Object
    spec_digest: str = ""

    @property
    def version(self) -> int:
        text = self.object["metadata"].get("resourceVersion") or "0"
        return int(text) if text.isdigit() else 0

    @property
    def place(self) -> Place:
        return _place(self.object)

    # Each version of an object is looked at many times and parsed once; what comes out is frozen.

    @functools.cached_property
    def run(self) -> taskrun.TaskRun:
        return taskrun.TaskRun.parse(self.object)

    @functools.cached_property
    def verifier(self) -> verifierrun.VerifierRun:
        return verifierrun.VerifierRun.parse(self.object)

    @functools.cached_property
    def pod(self) -> pods.PodView:
        return pods.view(self.object)


class Watch:
    """One process's picture of the cluster."""

    def __init__(self) -> None:
        self.runs: dict[Place, Seen] = {}
        self.verifiers: dict[Place, Seen] = {}
        self.pods: dict[Place, Seen] = {}
        self.policies: dict[Place, Seen] = {}
        """Everybody's: policies add up."""
        self.departed: dict[Place, Seen] = {}
        """The last state of pods that are gone, the latest thousand: often the only place that says why."""
        self.finished: dict[Place, int] = {}
        """The versions of complete runs that were dealt with: nothing is to be done until one has another."""
        self.finished_verifiers: dict[Place, int] = {}
        """Of complete VerifierRuns that stand alone, likewise."""

    def see_run(self, obj: Object, *, gone: bool = False) -> set[Key]:
        """A TaskRun as an event, a list or a write told it. Returns who should look; nobody, if it is no news."""
        place = _place(obj)
        if not self._take(self.runs, obj, taskrun.spec_digest, _trimmed, gone=gone):
            return set()
        return {Key(Kind.TASK_RUN, *place), *self._verifiers_of(place)}

    def see_verifier(self, obj: Object, *, gone: bool = False) -> set[Key]:
        """A VerifierRun, likewise."""
        place = _place(obj)
        if not self._take(self.verifiers, obj, verifierrun.spec_digest, _without_fields, gone=gone):
            return set()
        run = (((obj.get("spec") or {}).get("source") or {}).get("runRef") or {}).get("name", "")
        return {Key(Kind.VERIFIER_RUN, *place), Key(Kind.TASK_RUN, place[0], run)}

    def see_pod(self, obj: Object, *, gone: bool = False) -> set[Key]:
        """A sandbox pod, likewise."""
        place = _place(obj)
        run = (obj["metadata"].get("labels") or {}).get(names.RUN)
        if not self._take(self.pods, obj, None, _without_fields, gone=gone) or not run:
            return set()
        if gone:
            self.departed[place] = Seen(_without_fields(obj))
            while len(self.departed) > MAX_DEPARTED:
                del self.departed[next(iter(self.departed))]
        return self._keys_of(obj)

    def see_policy(self, obj: Object, *, gone: bool = False) -> set[Key]:
        """A NetworkPolicy, likewise: whoever has a restricted sandbox in its namespace should look."""
        if not self._take(self.policies, obj, None, _without_fields, gone=gone):
            return set()
        namespace, found = _place(obj)[0], set()
        for (where, _), seen in self.pods.items():
            if where == namespace and names.NETWORK in (seen.object["metadata"].get("labels") or {}):
                found |= self._keys_of(seen.object)
        return found

    def _keys_of(self, pod: Object) -> set[Key]:
        """Whom a pod of a run concerns."""
        namespace, verifier = pod["metadata"]["namespace"], _verifier_of(pod)
        if verifier is not None:
            return {Key(Kind.VERIFIER_RUN, namespace, verifier)}
        run = (pod["metadata"].get("labels") or {}).get(names.RUN, "")
        return {Key(Kind.TASK_RUN, namespace, run), *self._verifiers_of((namespace, run))}

    def _take(
        self,
        held: dict[Place, Seen],
        obj: Object,
        digest: Callable[[Mapping[str, Any]], str] | None,
        trim: Callable[[Object], Object],
        *,
        gone: bool,
    ) -> bool:
        """Whether this is news. An object that only left the watch's selection is told as gone with the version that
        our own write gave it: that is none.
        """
        place, before = _place(obj), held.get(_place(obj))
        if before is not None and before.version >= Seen(obj).version:
            return False
        if gone:
            held.pop(place, None)
        else:
            known = before.spec_digest if before is not None and _same_spec(before.object, obj) else ""
            held[place] = Seen(trim(obj), known or (_digest(digest, obj) if digest is not None else ""))
        return True

    def see(self, what: Collection, obj: Object, *, gone: bool = False) -> set[Key]:
        """An object of this collection, as an event, a list or a write told it."""
        match what:
            case Collection.TASK_RUNS:
                return self.see_run(obj, gone=gone)
            case Collection.VERIFIER_RUNS:
                return self.see_verifier(obj, gone=gone)
            case Collection.PODS:
                return self.see_pod(obj, gone=gone)
            case Collection.POLICIES:
                return self.see_policy(obj, gone=gone)

    def compare(self, what: Collection, listed: Mapping[Place, int], since: int, namespace: str | None) -> Difference:
        """A list of a namespace (None: of all), as names and versions. What it does not hold and is not newer than the
        list itself, `since`, is gone: it is dropped here, and those who should look are told.
        """
        held = self._held(what)
        gone = [
            place
            for place, seen in held.items()
            if place not in listed and seen.version <= since and namespace in (None, place[0])
        ]
        keys: set[Key] = set()
        for lost in [held.pop(place).object for place in gone]:
            keys |= self.see(what, lost, gone=True)
        outdated = [place for place, version in listed.items() if place not in held or held[place].version < version]
        return Difference(len(gone), keys, outdated)

    def unfinished(self) -> list[Key]:
        """Every run and verification that is held, in an order that stays."""
        runs = [Key(Kind.TASK_RUN, *place) for place in self.runs]
        return sorted(runs + [Key(Kind.VERIFIER_RUN, *place) for place in self.verifiers])

    def _held(self, what: Collection) -> dict[Place, Seen]:
        match what:
            case Collection.TASK_RUNS:
                return self.runs
            case Collection.VERIFIER_RUNS:
                return self.verifiers
            case Collection.PODS:
                return self.pods
            case Collection.POLICIES:
                return self.policies

    def forget(self, run: Object) -> None:
        """A complete run: it and its VerifierRun are read from the API server should anyone ask again."""
        place, status = _place(run), run.get("status") or {}
        self.runs.pop(place, None)
        self.departed.pop((place[0], status.get("podName", "")), None)
        self.finished[place] = Seen(run).version
        name = (status.get("verifier") or {}).get("name")
        if name:
            self.verifiers.pop((place[0], name), None)

    def forget_verifier(self, verifier: Object) -> None:
        """A complete VerifierRun that stands alone, likewise."""
        place = _place(verifier)
        self.verifiers.pop(place, None)
        self.finished_verifiers[place] = Seen(verifier).version

    def holds(self, obj: Object) -> bool:
        """Whether this TaskRun or VerifierRun is in the picture. A complete one that was forgotten is not."""
        return _place(obj) in (self.runs if obj.get("kind") == "TaskRun" else self.verifiers)

    def starting(self) -> int:
        """Sandbox pods between their creation and their container's start."""
        return sum(_is_starting(seen.object) for seen in self.pods.values())

    def _verifiers_of(self, run: Place) -> set[Key]:
        status = (self.runs[run].object.get("status") or {}) if run in self.runs else {}
        name = (status.get("verifier") or {}).get("name")
        return {Key(Kind.VERIFIER_RUN, run[0], name)} if name and not status.get("complete") else set()


def _place(obj: Mapping[str, Any]) -> Place:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _verifier_of(pod: Mapping[str, Any]) -> str | None:
    """The VerifierRun whose own sandbox this pod is; None: it is an agent's."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((o["name"] for o in owners if o.get("controller") and o.get("kind") == Kind.VERIFIER_RUN), None)


def _same_spec(before: Object, obj: Object) -> bool:
    """The API server counts changes of the spec in `generation`."""
    old, new = before["metadata"], obj["metadata"]
    generation = new.get("generation")
    return generation is not None and (old["uid"], old.get("generation")) == (new["uid"], generation)


def _digest(of_spec: Callable[[Mapping[str, Any]], str], obj: Object) -> str:
    """The spec's digest; "" for an object that was made under another CRD: its own reconcile tells."""
    try:
        return of_spec(obj.get("spec") or {})
    except ValidationError:
        return ""


def _without_fields(obj: Object) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def _trimmed(obj: Object) -> Object:
    """Once a run is admitted its snapshot is what counts: the files need not be held."""
    slim = _without_fields(obj)
    admitted = ((obj.get("status") or {}).get("admitted") or {}).get("taskDigest")
    task = (obj.get("spec") or {}).get("task") or {}
    if admitted and "inline" in task:
        slim["spec"] = {**obj["spec"], "task": {**task, "inline": {}}}
    annotations = slim["metadata"].get("annotations")
    if annotations:
        kept = {k: v for k, v in annotations.items() if k != "kubectl.kubernetes.io/last-applied-configuration"}
        slim["metadata"] = {**slim["metadata"], "annotations": kept}
    return slim


def _is_starting(pod: Object) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    status = pod.get("status") or {}
    if status.get("phase", "Pending") != "Pending":
        return False
    # A pod that the scheduler has refused costs no node anything and may wait long: it holds no slot.
    conditions = status.get("conditions") or ()
    return not any(c.get("type") == "PodScheduled" and c.get("status") == "False" for c in conditions)
