"""What no write may do to a TaskRun or a VerifierRun."""

import itertools
import json
from collections.abc import Iterator
from datetime import datetime

from taskfold.api.phases import FINAL
from taskfold.api.status import MAX_ATTEMPTS, MAX_STATUS_BYTES
from taskfold.decide import status as to
from tests.world.rules import RUNS, Memory, Write, bound, collected, rule

MAX_TRIES = 3
"""Pods of one attempt before the agent's first instruction."""
KEPT = ("startTime", "verdictTime", "completionTime", "admitted", "reward")
"""Words of a status that stand once they are said."""


@rule(*RUNS, changes=True)
def a_final_phase_is_never_left(write: Write, memory: Memory) -> Iterator[str]:
    before, after = write.was.get("phase"), write.status.get("phase")
    if before in FINAL and after != before:
        yield f"phase {before} became {after}"


@rule(*RUNS, changes=True)
def a_word_once_said_stands(write: Write, memory: Memory) -> Iterator[str]:
    for name in KEPT:
        if name in write.was and write.status.get(name) != write.was[name]:
            yield f"{name} {write.was[name]} became {write.status.get(name)}"


@rule(*RUNS, changes=True)
def complete_is_never_taken_back(write: Write, memory: Memory) -> Iterator[str]:
    if write.was.get("complete") and not write.status.get("complete"):
        yield "complete was taken back"


@rule(*RUNS)
def complete_needs_an_ending(write: Write, memory: Memory) -> Iterator[str]:
    if write.status.get("complete") and write.status.get("phase") not in FINAL:
        yield f"complete in phase {write.status.get('phase')}"
    if write.status.get("complete") and "completionTime" not in write.status:
        yield "complete without a completionTime"


@rule(*RUNS)
def complete_is_told_in_both_places(write: Write, memory: Memory) -> Iterator[str]:
    told = {each["type"]: each["status"] for each in write.status.get("conditions") or ()}.get("Complete") == "True"
    if told != bool(write.status.get("complete")):
        yield f"complete is {write.status.get('complete')}, the condition Complete says {told}"


@rule(*RUNS)
def times_are_in_order(write: Write, memory: Memory) -> Iterator[str]:
    known = [(name, _time(write.status.get(name))) for name in ("startTime", "verdictTime", "completionTime")]
    times = [(name, moment) for name, moment in known if moment is not None]
    for (first, begin), (second, end) in itertools.pairwise(times):
        if (end - begin).total_seconds() < -memory.skew_seconds:
            yield f"{second} is {(begin - end).total_seconds():.3f} s before {first}"


@rule(*RUNS)
def durations_are_not_negative(write: Write, memory: Memory) -> Iterator[str]:
    found = {**(write.status.get("timings") or {}), "durationSeconds": write.status.get("durationSeconds")}
    found |= {part: (write.status.get(part) or {}).get("seconds") for part in ("agent", "verifier")}
    for name, seconds in found.items():
        if (seconds or 0) < 0:
            yield f"{name} took {seconds} s"


@rule(*RUNS)
def a_reward_is_a_verdict(write: Write, memory: Memory) -> Iterator[str]:
    if ("reward" in write.status) != (write.status.get("phase") == "Succeeded"):
        yield f"phase {write.status.get('phase')} with reward {write.status.get('reward')}"


@rule(*RUNS)
def masked_is_told_in_both_places(write: Write, memory: Memory) -> Iterator[str]:
    if bool(write.status.get("masked")) != (write.status.get("phase") == "Masked"):
        yield f"phase {write.status.get('phase')} with masked {write.status.get('masked')}"


@rule(*RUNS)
def no_ending_without_a_reason(write: Write, memory: Memory) -> Iterator[str]:
    phase = write.status.get("phase")
    if phase in FINAL and phase != "Succeeded" and not (write.status.get("failure") or {}).get("reason"):
        yield f"phase {phase} without a failure that says why"


@rule(*RUNS)
def a_status_fits(write: Write, memory: Memory) -> Iterator[str]:
    size = len(json.dumps(write.status, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_STATUS_BYTES:
        yield f"{size} bytes of status"


@rule(*RUNS)
def generations_are_observed_in_order(write: Write, memory: Memory) -> Iterator[str]:
    before, after = write.was.get("observedGeneration", 0), write.status.get("observedGeneration", 0)
    if after > write.object["metadata"].get("generation", 0):
        yield f"generation {after} was observed before it was there"
    if after < before:
        yield f"generation {after} was observed after {before}"


@rule(*RUNS)
def attempts_only_grow(write: Write, memory: Memory) -> Iterator[str]:
    before, after = write.was.get("attempts") or [], write.status.get("attempts") or []
    numbers = [each["number"] for each in after]
    if numbers != list(range(1, len(after) + 1)) or len(after) > MAX_ATTEMPTS:
        yield f"attempts {numbers}"
    if len(after) < len(before):
        yield f"{len(after)} attempts after {len(before)}"
    for old, new in zip(before, after, strict=False):
        if "endTime" in old and new != old:
            yield f"attempt {old['number']} changed after its end"


@rule("taskruns", changes=True)
def steps_only_grow(write: Write, memory: Memory) -> Iterator[str]:
    """Within an attempt, one at a time, and what is said of a step stands."""
    if len(write.was.get("attempts") or []) != len(write.status.get("attempts") or []):
        return
    before, after = write.was.get("steps") or [], write.status.get("steps") or []
    if after[: len(before)] != before or len(after) > len(before) + 1:
        yield f"steps {before} became {after}"


@rule(*RUNS)
def tries_are_bounded(write: Write, memory: Memory) -> Iterator[str]:
    before = {each["number"]: each.get("tries", 1) for each in write.was.get("attempts") or ()}
    for each in write.status.get("attempts") or ():
        tries = each.get("tries", 1)
        if tries > MAX_TRIES or tries < before.get(each["number"], 0):
            yield f"attempt {each['number']} has {tries} tries after {before.get(each['number'])}"


@rule(*RUNS)
def a_nonce_is_one_phase_in_one_pod(write: Write, memory: Memory) -> Iterator[str]:
    entries = write.status.get("journal") or []
    nonces = [each["nonce"] for each in entries]
    if len(set(nonces)) < len(nonces):
        yield "a nonce stands in the journal twice"
    for each in entries:
        now = bound(write, each)
        if memory.nonces.get(each["nonce"], now) != now:
            yield f"the nonce {each['nonce']} of {memory.nonces[each['nonce']]} was used for {now}"


@rule(*RUNS, changes=True)
def a_journals_times_stand(write: Write, memory: Memory) -> Iterator[str]:
    before = {each["nonce"]: each for each in write.was.get("journal") or ()}
    for each in write.status.get("journal") or ():
        for name in ("startedAt", "endedAt"):
            said = before.get(each["nonce"], {}).get(name)
            if said is not None and each.get(name) != said:
                yield f"{name} of {each['phase']} {said} became {each.get(name)}"


@rule(*RUNS)
def a_journals_pods_existed(write: Write, memory: Memory) -> Iterator[str]:
    for each in write.status.get("journal") or ():
        if each.get("podUID") and each["podUID"] not in memory.uids:
            yield f"{each['phase']} was begun in a pod that never existed: {each['podUID']}"


@rule("verifierruns")
def what_is_graded_existed(write: Write, memory: Memory) -> Iterator[str]:
    named = write.object["spec"]["source"]["runRef"].get("uid")
    uid = named or write.status.get("runUID") or "none"
    if named is None and write.status.get("admitted") and "runUID" not in write.status:
        yield "it was admitted before it was known which run is meant"
    owners = {owner["uid"] for owner in write.object["metadata"].get("ownerReferences") or ()}
    if owners and uid not in owners:
        yield f"it grades {uid} and belongs to {sorted(owners)}"
    if write.status.get("phase") == "Succeeded" and uid not in memory.uids:
        yield f"a verdict about a run that never existed: {uid}"


@rule("taskruns")
def a_run_has_its_verifications_reward(write: Write, memory: Memory) -> Iterator[str]:
    """A reward of 0 may also be what the contract gives without a verdict. Of several steps the last one counts."""
    verifier = memory.last.get((write.status.get("verifier") or {}).get("uid") or "")
    if verifier is None or write.status.get("reward") is None:
        return
    steps = write.status.get("steps") or [write.status]
    reward = steps[-1].get("reward")
    given = (verifier.get("status") or {}).get("reward")
    if reward not in (given, "0", None):
        yield f"reward {reward}, its verification said {given}"


def _time(text: str | None) -> datetime | None:
    return to.parse(text) if text else None


RULES = collected(globals())
