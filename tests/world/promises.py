"""What must hold in every world, whatever happens in it.

Guarantees: `Witness` sees every change of every object and forgets nothing; `broken()` names each promise that was
broken, with the object. It knows no scenario: only what a run may and may not do.
"""

import collections
import json
from dataclasses import dataclass, field
from typing import Any

from taskfold.api.phases import FINAL
from tests.world import documents, rules
from tests.world import store as stores

Object = dict[str, Any]

TOLD_ONCE = ("reward", "verdictTime", "completionTime")
"""Fields of a status that are written once and never changed."""


@dataclass
class Life:
    """What was seen of one run or verification."""

    kind: str
    name: str
    phases: list[str] = field(default_factory=list)
    told: dict[str, list[Any]] = field(default_factory=lambda: collections.defaultdict(list))
    last: Object = field(default_factory=dict)
    gone: bool = False


@dataclass
class Witness:
    """Give `see` to the API server's subscribers."""

    lives: dict[str, Life] = field(default_factory=dict)
    """By uid."""
    pods: dict[str, list[str]] = field(default_factory=lambda: collections.defaultdict(list))
    """The uids of all pods that had a name, by their owner's uid and name."""
    problems: list[str] = field(default_factory=list)
    second_pods: list[str] = field(default_factory=list)
    """Pods that there should not have been. A creation cannot be made to depend on the run's state: an operator that
    was stopped right before it creates a pod too late. Nothing may be started in it, and it has to go.
    """
    _live: dict[str, dict[str, str]] = field(default_factory=lambda: collections.defaultdict(dict))

    def see(self, kind: str, plural: str, obj: Object) -> None:
        """One change, as a watch tells it."""
        match plural:
            case "taskruns" | "verifierruns":
                self._see_run(kind, plural, obj)
            case "pods":
                self._see_pod(kind, obj)

    def _see_run(self, kind: str, plural: str, obj: Object) -> None:
        metadata, status = obj["metadata"], obj.get("status") or {}
        life = self.lives.setdefault(metadata["uid"], Life(plural, metadata["name"]))
        life.last, life.gone = obj, kind == "DELETED"
        phase = status.get("phase")
        if phase is not None and phase != next(reversed(life.phases), None):
            if life.phases and life.phases[-1] in FINAL:
                self.problems.append(f"{plural} {life.name} left its final phase: {life.phases} → {phase}")
            life.phases.append(phase)
        for name in TOLD_ONCE:
            if name in status and status[name] not in life.told[name]:
                life.told[name].append(status[name])
            elif name not in status and life.told[name]:
                self.problems.append(f"{plural} {life.name}: {name} was taken back")
        if life.told["complete"] and not status.get("complete"):
            self.problems.append(f"{plural} {life.name}: complete was taken back")
        if status.get("complete"):
            life.told["complete"] = [True]

    def _see_pod(self, kind: str, pod: Object) -> None:
        metadata = pod["metadata"]
        run = rules.whose(pod)
        if run is None:
            return
        key = f"{run} {metadata['name']}"
        if kind == "ADDED":
            if self.pods[key]:
                self.second_pods.append(f"pod {metadata['name']} was created twice")
            others = [name for uid, name in self._live[run].items() if uid != metadata["uid"]]
            if others:
                self.second_pods.append(f"pod {metadata['name']} was created while {', '.join(others)} lived")
            self.pods[key].append(metadata["uid"])
        lives = kind != "DELETED" and "deletionTimestamp" not in metadata and not _ended(pod)
        if lives:
            self._live[run][metadata["uid"]] = metadata["name"]
        else:
            self._live[run].pop(metadata["uid"], None)

    def broken(self, bucket: stores.Bucket) -> list[str]:
        """Every promise that was broken up to now."""
        found = [*self.problems, *documents.broken(bucket.objects)]
        for uid, life in self.lives.items():
            found += [
                f"{life.kind} {life.name}: {name} was {values}" for name, values in life.told.items() if len(values) > 1
            ]
            found += _negative(life)
            if life.kind == "taskruns":
                found += _row(bucket, uid, life)
        return found


def _ended(pod: Object) -> bool:
    status = pod.get("status") or {}
    ends = [("terminated" in (each.get("state") or {})) for each in status.get("containerStatuses") or ()]
    return status.get("phase") in ("Failed", "Succeeded") or any(ends)


def _negative(life: Life) -> list[str]:
    """Clocks differ; durations are never negative all the same."""
    status = life.last.get("status") or {}
    numbers = {**(status.get("timings") or {}), "durationSeconds": status.get("durationSeconds")}
    for part in ("agent", "verifier"):
        numbers[part] = (status.get(part) or {}).get("seconds")
    return [f"{life.kind} {life.name}: {name} is {value}" for name, value in numbers.items() if (value or 0) < 0]


def _row(bucket: stores.Bucket, uid: str, life: Life) -> list[str]:
    """The row of a complete run: one, written once, and equal to the status."""
    status = life.last.get("status") or {}
    rows = [key for key in bucket.objects if f"/{uid}/" in key and key.endswith("/row.json")]
    found = [f"{key} was written {bucket.writes[key]} times" for key in rows if bucket.writes[key] != 1]
    if not status.get("complete"):
        return found
    key = f"{status.get('store')}row.json"
    if key not in rows:
        return [*found, f"taskruns {life.name} is complete without its row {key}"]
    row = json.loads(bucket.objects[key])
    told = {
        "phase": status.get("phase"),
        "reward": float(status["reward"]) if "reward" in status else None,
        "masked": status.get("masked", False),
        "reason": (status.get("failure") or {}).get("reason"),
        "kind": (status.get("failure") or {}).get("kind"),
    }
    kept = {name: row[name] for name in ("phase", "reward", "masked")}
    kept |= {name: (row["failure"] or {}).get(name) for name in ("reason", "kind")}
    if kept != told:
        found.append(f"taskruns {life.name}: the row says {kept}, the status {told}")
    return found
