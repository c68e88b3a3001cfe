"""What no write may do to a pod."""

from collections.abc import Iterator

from tests.world.rules import Json, Memory, Write, collected, lives, place_of, rule


@rule("pods", changes=True)
def a_pod_stays_on_its_node(write: Write, memory: Memory) -> Iterator[str]:
    assert write.old is not None
    before, after = (obj["spec"].get("nodeName") for obj in (write.old, write.object))
    if before and after != before:
        yield f"node {before} became {after}"


@rule("pods", changes=True)
def an_ended_pod_stays_ended(write: Write, memory: Memory) -> Iterator[str]:
    before, after = write.was.get("phase"), write.status.get("phase")
    if before in ("Succeeded", "Failed") and after != before:
        yield f"phase {before} became {after}"


@rule("pods", changes=True)
def what_has_terminated_does_not_run_again(write: Write, memory: Memory) -> Iterator[str]:
    if write.object["spec"].get("restartPolicy") != "Never":
        return
    for old, new in _containers(write):
        if "terminated" in (old.get("state") or {}) and "terminated" not in (new.get("state") or {}):
            yield f"the container {new['name']} came back as {new.get('state')}"


@rule("pods", changes=True)
def another_container_is_a_restart(write: Write, memory: Memory) -> Iterator[str]:
    """Whatever the policy says: a kubelet that has lost a container's record starts it anew, and counts it."""
    for old, new in _containers(write):
        before, after = old.get("restartCount", 0), new.get("restartCount", 0)
        known = [each.get("containerID") for each in (old, new)]
        if after < before or (all(known) and known[0] != known[1] and after == before):
            yield f"the container {new['name']}: {known[0]} (restart {before}) became {known[1]} (restart {after})"


@rule("pods")
def a_pod_is_created_once(write: Write, memory: Memory) -> Iterator[str]:
    key = place_of(write.object)
    if key is not None and memory.pods.get(key, write.object["metadata"]["uid"]) != write.object["metadata"]["uid"]:
        yield "a second pod for the same run, attempt and try"


@rule("pods")
def one_pod_at_a_time(write: Write, memory: Memory) -> Iterator[str]:
    key = place_of(write.object)
    if key is None or write.old is not None or not lives(write.object):
        return
    others = memory.live.get(key[0], set()) - {write.object["metadata"]["uid"]}
    if others:
        listed = sorted(memory.last[uid]["metadata"]["name"] for uid in others)
        yield f"created while another pod of the run lived: {listed}"


def _containers(write: Write) -> Iterator[tuple[Json, Json]]:
    """The states of each container before and after."""
    for part in ("initContainerStatuses", "containerStatuses"):
        before = {each["name"]: each for each in write.was.get(part) or ()}
        for each in write.status.get(part) or ():
            if each["name"] in before:
                yield before[each["name"]], each


RULES = collected(globals())
