"""What no write may do to the world, rule by rule: the rules of every object, and what a rule is.

Guarantees: a rule looks at one write and at what was seen before it; it names itself and says what is impossible. What
scenarios expect of their ends is not said here.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from taskfold.api import names
from taskfold.build.gateway import reach

Json = dict[str, Any]
Check = Callable[["Write", "Memory"], Iterator[str]]
RUNS = ("taskruns", "verifierruns")


@dataclass(frozen=True)
class Write:
    """One change of one object. `old` None: created. `new` None: removed."""

    plural: str
    old: Json | None
    new: Json | None

    @property
    def object(self) -> Json:
        found = self.new if self.new is not None else self.old
        assert found is not None
        return found

    @property
    def was(self) -> Json:
        """The status before."""
        return (self.old or {}).get("status") or {}

    @property
    def status(self) -> Json:
        """The status after."""
        return (self.new or {}).get("status") or {}

    @property
    def where(self) -> str:
        metadata = self.object["metadata"]
        return f"{self.plural} {metadata.get('namespace', '')}/{metadata['name']}"


@dataclass
class Memory:
    """What was seen before this write. `skew_seconds`: how far the clocks of two operators may be apart."""

    skew_seconds: float = 0.0
    version: int = 0
    uids: set[str] = field(default_factory=set)
    last: dict[str, Json] = field(default_factory=dict)
    """The last state of every object that ever was, by uid."""
    live: dict[str, set[str]] = field(default_factory=dict)
    """Uids of pods that are neither ended nor under deletion, by the uid of whose they are."""
    pods: dict[tuple[str, str], str] = field(default_factory=dict)
    """The pod of its owner's uid and its name."""
    nonces: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Run, phase and pod of a nonce."""


@dataclass(frozen=True)
class Rule:
    """`of`: these plurals only, empty for all. `changes`: only where an object was before and is after."""

    name: str
    check: Check
    of: tuple[str, ...] = ()
    changes: bool = False

    def broken(self, write: Write, memory: Memory) -> Iterator[str]:
        """What is impossible about a write."""
        there = write.new is not None and not (self.changes and write.old is None)
        if there and (not self.of or write.plural in self.of):
            yield from self.check(write, memory)


def rule(*of: str, changes: bool = False) -> Callable[[Check], Rule]:
    """A rule, called by its function's name."""
    return lambda check: Rule(check.__name__.replace("_", "-"), check, of, changes)


def collected(module: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules that a module defines, in their order."""
    return tuple(each for each in module.values() if isinstance(each, Rule))


@rule()
def versions_rise(write: Write, memory: Memory) -> Iterator[str]:
    version = int(write.object["metadata"]["resourceVersion"])
    if version <= memory.version:
        yield f"version {version} after {memory.version}"


@rule(changes=True)
def identity_is_kept(write: Write, memory: Memory) -> Iterator[str]:
    assert write.old is not None
    for key in ("uid", "creationTimestamp"):
        before, after = write.old["metadata"].get(key), write.object["metadata"].get(key)
        if before != after:
            yield f"{key} {before} became {after} under one object"


@rule()
def a_uid_is_given_once(write: Write, memory: Memory) -> Iterator[str]:
    uid = write.object["metadata"]["uid"]
    if write.old is None and uid in memory.uids:
        yield f"the uid {uid} was another object's"


@rule(changes=True)
def deletion_is_final(write: Write, memory: Memory) -> Iterator[str]:
    assert write.old is not None
    if "deletionTimestamp" in write.old["metadata"] and "deletionTimestamp" not in write.object["metadata"]:
        yield "deletionTimestamp was taken back"


@rule(changes=True)
def generation_never_falls(write: Write, memory: Memory) -> Iterator[str]:
    assert write.old is not None
    before, after = (obj["metadata"].get("generation", 0) for obj in (write.old, write.object))
    if after < before:
        yield f"generation {after} after {before}"


@rule()
def owners_existed(write: Write, memory: Memory) -> Iterator[str]:
    for owner in write.object["metadata"].get("ownerReferences") or ():
        if owner["uid"] not in memory.uids:
            yield f"the owner {owner['kind']} {owner['name']} with uid {owner['uid']} never existed"


def remember(write: Write, memory: Memory) -> None:
    """Add a write to what was seen."""
    metadata = write.object["metadata"]
    uid = metadata["uid"]
    memory.version = max(memory.version, int(metadata["resourceVersion"]))
    memory.uids.add(uid)
    memory.last[uid] = write.object
    if write.plural in RUNS:
        for each in write.status.get("journal") or ():
            memory.nonces.setdefault(each["nonce"], bound(write, each))
    key = place_of(write.object) if write.plural == "pods" else None
    if key is not None:
        memory.pods.setdefault(key, uid)
        alive = memory.live.setdefault(key[0], set())
        (alive.add if write.new is not None and lives(write.new) else alive.discard)(uid)


def lives(pod: Json) -> bool:
    """Neither ended nor under deletion."""
    status = pod.get("status") or {}
    ends = ["terminated" in (each.get("state") or {}) for each in status.get("containerStatuses") or ()]
    ended = status.get("phase") in ("Succeeded", "Failed") or any(ends)
    return not ended and "deletionTimestamp" not in pod["metadata"]


def place_of(pod: Json) -> tuple[str, str] | None:
    """Uid of the owner, a run or a separate verification, and the pod's name; None: nobody's pod."""
    uid = whose(pod)
    return (uid, pod["metadata"]["name"]) if uid else None


def whose(pod: Json) -> str | None:
    """The uid of the run, or of the separate verification, that a pod is the sandbox of; None: nobody's."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    run = labels.get(names.RUN_UID) if labels.get(names.ROLE) != reach.ROLE else None  # no gateway's
    owners = metadata.get("ownerReferences") or ()
    return run and next((str(each["uid"]) for each in owners if each.get("kind") == "VerifierRun"), run)


def bound(write: Write, entry: Json) -> tuple[str, str, str]:
    return write.object["metadata"]["uid"], entry["phase"], entry.get("podUID") or ""


RULES = collected(globals())
