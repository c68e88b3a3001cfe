"""Runs whose verification is separate and carries much, and blows that fall while it is copied.

Guarantees: every byte that an agent leaves is known beforehand. Where its artifacts arrive in another form than it left
them, the reward is `DIFFERENT`; a blow counts the copies that are under way at its moment, on whichever node, and
no others.
"""

import contextlib
import hashlib
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tests.chaos import faults
from tests.chaos.faults import CUT_NODE, DELETIONS_PER_RUN, Fault
from tests.chaos.runs import WRONG, Case, Draft, End
from tests.chaos.scene import Absent, Scene
from tests.chaos.starts import Starts
from tests.conformance import harness
from tests.conformance.harness import DEFAULT_TOML

DIFFERENT = "0.5"
"""What a verifier gives to artifacts that are there and are not the agent's: no run may ever have it."""
BULK_BYTES = 30 * 1024 * 1024
FILES = 150
FILE_BYTES = 4096
HEAD, _, REST = DEFAULT_TOML.partition("\n")
TOML = f'{HEAD}\nartifacts = ["/app/bulk", "/app/tree"]\n{REST}[verifier]\nenvironment_mode = "separate"\n'
WORK = f"""\
import pathlib, random, sys
source = random.Random(sys.argv[1])
pathlib.Path("/app/bulk").write_bytes(source.randbytes({BULK_BYTES}))
for number in range({FILES}):
    file = pathlib.Path(f"/app/tree/d{{number % 7}}/f{{number}}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(source.randbytes(source.randrange({FILE_BYTES})))
"""
"""One file that is not soon copied, and a tree of small ones; `known` has the same."""
COPYING_SECONDS = 30.0
"""Until a blow falls although nothing is copied."""
SOON_SECONDS = 0.05
LATEST_SECONDS = 0.6
"""Of a copy's beginning; with others beside it, it takes longer."""


class Way(StrEnum):
    """Which of the two copies of a separate verification."""

    OUT = "out of the agent's pod"
    IN = "into the verifier's pod"


@dataclass(frozen=True)
class Copy:
    """One that is under way. `pod`: the one that it needs; made again in the same pod, it counts as the same copy."""

    run: str
    way: Way
    pod: str


def known(token: str) -> dict[str, str]:
    """The sha256 of everything that an agent leaves, by its path."""
    source = random.Random(token)
    found = {"/app/bulk": hashlib.sha256(source.randbytes(BULK_BYTES)).hexdigest()}
    for number in range(FILES):
        content = source.randbytes(source.randrange(FILE_BYTES))
        found[f"/app/tree/d{number % 7}/f{number}"] = hashlib.sha256(content).hexdigest()
    return found


def mix(count: int, chances: random.Random, starts: Starts, more: Mapping[str, Any]) -> list[Case]:
    """`count` runs, each with its own bytes."""
    return [case(f"copied-{number}", chances, starts, more) for number in range(count)]


def case(name: str, chances: random.Random, starts: Starts, more: Mapping[str, Any]) -> Case:
    """One of them."""
    draft = Draft(name, chances, starts, more)
    files = known(draft.token)
    agent = harness.script(
        f"python3 - {draft.token} <<'E'\n{WORK}E\n{draft.starts.lines(draft.name, 'agent')}", timeoutSeconds=120
    )
    same = f'sha256sum --status -c /tests/known && [ "$(find /app -type f | wc -l)" = {len(files)} ]'
    give = f"if {same}; then reward=1; elif [ -e /app/bulk ]; then reward={DIFFERENT}; else reward={WRONG}; fi\n"
    test = f"{draft.starts.lines(draft.name, 'test')}{give}echo $reward > /logs/verifier/reward.txt\n"
    listed = "".join(f"{digest}  {path}\n" for path, digest in files.items())
    folder = {**harness.task(test, toml=TOML), "tests/known": listed}
    return draft.case(folder, agent, End(reward="1", outcome="Succeeded"), known=files)


# -- what is under way ---------------------------------------------------------------------------------------------


def under_way(scene: Scene) -> list[Copy]:
    """The copies of this moment, as far as the API server tells."""
    try:
        verifiers = scene.verifiers().values()
    except Absent:
        return []
    pods = {
        (pod.metadata.labels["taskfold.dev/run"], owner.kind): pod.metadata.name
        for pod in scene.pods()
        for owner in pod.metadata.owner_references or ()
        if _running(pod)
    }
    found = []
    for verifier in verifiers:
        way, run = _way(verifier.get("status") or {}), verifier["spec"]["source"]["runRef"]["name"]
        pod = pods.get((run, "TaskRun" if way is Way.OUT else "VerifierRun"))
        if way is not None and pod is not None:
            found.append(Copy(run, way, pod))
    return found


def _way(status: Mapping[str, Any]) -> Way | None:
    match status.get("phase"):
        case "Closing":
            return Way.OUT
        case "Seeding" if status.get("agentStoppedTime"):
            return Way.IN
        case _:
            return None


def _running(pod: Any) -> bool:
    return any(each.name == "main" and each.state.running for each in pod.status.container_statuses or ())


def _moment(scene: Scene) -> Way:
    """Wait for a random moment of a copy, and say which way it goes; for a bounded time."""
    way = scene.random.choice(list(Way))
    deadline = time.monotonic() + COPYING_SECONDS

    def copying() -> bool:
        return any(copy.way is way for copy in under_way(scene))

    while time.monotonic() < deadline:
        if not copying():
            if scene.watch(SOON_SECONDS):
                break
            continue
        scene.watch(scene.random.uniform(0, LATEST_SECONDS))
        if copying():
            break
    return way


def meeting(
    blow: Callable[[Scene], AbstractContextManager[None]],
) -> Callable[[Scene], AbstractContextManager[None]]:
    """The same blow at a random moment of a copy; it meets all that are under way then."""

    @contextlib.contextmanager
    def met(scene: Scene) -> Iterator[None]:
        _moment(scene)
        scene.met.update(under_way(scene))
        with blow(scene):
            yield

    return met


@contextlib.contextmanager
def copying_pods_deleted(scene: Scene) -> Iterator[None]:
    """Somebody deletes pods that are copied out of, or into, with or without their grace."""
    way = _moment(scene)
    for copy in under_way(scene):
        if copy.way is way and scene.deletions[copy.run] < DELETIONS_PER_RUN and scene.random.random() < 0.5:
            scene.deletions[copy.run] += 1
            scene.met.add(copy)
            scene.delete_pod(copy.pod, grace=scene.random.choice([0, None]))
    yield


FAULTS = (
    Fault("copies: operator-killed", meeting(faults.operator_killed), pause=(0.2, 1)),
    Fault(
        "copies: leader-frozen",
        meeting(faults.leader_frozen),
        hold=(8, 11),
        pause=(0.2, 1),
        blows=8,
        operators=2,
        election=True,
    ),
    Fault("copies: pods-deleted", copying_pods_deleted, pause=(0, 0.3), losses=frozenset({"PodDeleted"})),
    Fault("copies: kubelet-killed", meeting(faults.kubelet_killed), hold=(1, 4), pause=(0.2, 1), blows=12, nodes=1),
    Fault(
        "copies: api-server-killed", meeting(faults.api_server_killed), hold=(1, 4), pause=(0.2, 1), blows=8, nodes=1
    ),
    Fault("copies: link-cut", meeting(faults.link_cut_now), hold=(3, 20), pause=(0.2, 1), blows=8, nodes=CUT_NODE),
)
