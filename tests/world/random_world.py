"""Random worlds: some runs, some misfortunes, one or two operators with clocks of their own, all from one plan.

Guarantees: a plan is data, and playing it twice gives the same world; misfortunes are over when the calm begins, and
from then on every run has to end. What may come out of a run is computed from the plan alone (`ends`): the end that it
would have had, and what those misfortunes explain that can change it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from taskfold.api.phases import Phase
from tests.world import misfortunes
from tests.world.play import GONE, End
from tests.world.programs import REWARD, Behaviour, Script, rewarded
from tests.world.scenarios import HANGS
from tests.world.world import NOP, ORACLE, SCRIPT, Object

AFTER_SECONDS = 0.01
"""Timers of one moment strike in any order: what befalls a run at once comes so much later."""
BOUND_SECONDS = 5400.0
"""How long a run may take from then on: three attempts with their waits, each within its limit."""
INSTALLED: Object = {"script": {"install": "get it", "run": "work"}}

TOML = 'environment.docker_image = "python:3.12-slim"\nagent.timeout_sec = 60\nverifier.timeout_sec = 60\n'
HOOKS = 'verifier.collect = [{ command = "first" }]\n'
SEPARATE = 'verifier.environment_mode = "separate"\n'

AGENTS: Mapping[str, Object] = {"oracle": ORACLE, "nop": NOP, "script": SCRIPT, "installed": INSTALLED}


class Work(StrEnum):
    """What the agent does."""

    QUICK = "quick"
    LONG = "long"
    FAILS = "fails"
    HANGS = "hangs"
    DIES = "dies"
    EATS_MEMORY = "eats its memory"
    FILLS_DISK = "fills its disk"


WORK: Mapping[Work, Behaviour] = {
    Work.QUICK: Script(2.0),
    Work.LONG: Script(50.0),
    Work.FAILS: Script(5.0, code=1),
    Work.HANGS: HANGS,
    Work.DIES: Script(5.0, signal=9),
    Work.EATS_MEMORY: Script(20.0, exhausts_memory=True),
    Work.FILLS_DISK: Script(20.0, fills_disk=True),
}


class Grading(StrEnum):
    """What test.sh does."""

    ONE = "1"
    PART = "0.25"
    ZERO = "0"
    LATE = "0.5"
    NOTHING = "nothing"
    NONSENSE = "nonsense"
    HANGS = "hangs"
    EATS_MEMORY = "eats its memory"


TESTS: Mapping[Grading, Behaviour] = {
    Grading.ONE: rewarded("1"),
    Grading.PART: rewarded("0.25"),
    Grading.ZERO: rewarded("0"),
    Grading.LATE: rewarded("0.5", 50.0),
    Grading.NOTHING: Script(1.0, code=1),
    Grading.NONSENSE: Script(1.0, files={REWARD: b"much"}),
    Grading.HANGS: HANGS,
    Grading.EATS_MEMORY: Script(20.0, exhausts_memory=True),
}
VERDICTS: Mapping[Grading, End] = {
    **{test: End(Phase.SUCCEEDED, test.value) for test in (Grading.ONE, Grading.PART, Grading.ZERO, Grading.LATE)},
    Grading.NOTHING: End(Phase.SUCCEEDED, "0", "RewardMissing", "harbor:missing_reward"),
    Grading.NONSENSE: End(Phase.SUCCEEDED, "0", "RewardInvalid", "harbor:invalid_reward"),
    Grading.HANGS: End(Phase.SUCCEEDED, "0", "VerifierTimedOut", "harbor:verifier_timeout"),
}


@dataclass(frozen=True)
class Run:
    """One run of a plan. `at`: when it is created."""

    agent: str = "oracle"
    work: Work = Work.QUICK
    test: Grading = Grading.ONE
    at: int = 0
    hooks: bool = False
    separate: bool = False
    retries: int = 0
    zero: bool = False
    ttl: int | None = None
    suspended: bool = False


class Kind(StrEnum):
    """What can go wrong, by whose doing."""

    # The operator's: nothing of it may be seen in any result.
    KILLED = "operator killed"
    KILLED_AT_A_CALL = "operator killed at a call"
    STOPPED = "operator stopped"
    STOPPED_AT_A_CALL = "operator stopped at a call"
    REFUSED = "API server away"
    ERRORS = "API errors"
    LOST_ANSWERS = "answers lost"
    THROTTLED = "API server throttles"
    CONFLICTS = "others write"
    WATCHES_DROPPED = "watches dropped"
    WATCHES_SILENT = "watches silent"
    WATCHES_EXPIRED = "watches expired"
    FORGETFUL = "etcd compacted"
    STORE_AWAY = "store away"
    EXECS_BROKEN = "execs broken"
    EXECS_CUT = "connections cut"
    RUNTIME = "runtime restarted"
    # A loss of one run's pod.
    LOSS = "pod lost"
    NODE_AWAY = "node away"
    # A user's.
    CANCELLED = "cancelled"
    DELETED = "deleted"
    EXPIRES = "time to live set"


HARMLESS = frozenset(
    {
        Kind.KILLED,
        Kind.KILLED_AT_A_CALL,
        Kind.STOPPED,
        Kind.STOPPED_AT_A_CALL,
        Kind.REFUSED,
        Kind.ERRORS,
        Kind.LOST_ANSWERS,
        Kind.THROTTLED,
        Kind.CONFLICTS,
        Kind.WATCHES_DROPPED,
        Kind.WATCHES_SILENT,
        Kind.WATCHES_EXPIRED,
        Kind.FORGETFUL,
        Kind.STORE_AWAY,
        Kind.EXECS_BROKEN,
        Kind.EXECS_CUT,
        Kind.RUNTIME,
    }
)


@dataclass(frozen=True)
class Misfortune:
    """One thing that goes wrong at `at`, for `seconds` where it lasts. `which`: run, operator or loss, modulo."""

    kind: Kind
    at: int
    which: int = 0
    seconds: int = 20


@dataclass(frozen=True)
class Plan:
    """A world to be. `skews`: how far the clocks of the operators and of the nodes are ahead, in seconds."""

    runs: tuple[Run, ...]
    misfortunes: tuple[Misfortune, ...] = ()
    operators: int = 1
    skews: tuple[int, int] = (0, 0)
    cgroup: int = 2
    seed: int = 0

    def begins(self, each: Misfortune) -> float:
        """When it strikes. What befalls a run comes after the run."""
        created = self.runs[each.which % len(self.runs)].at
        return float(each.at) if each.kind in HARMLESS else created + max(each.at, AFTER_SECONDS)

    @property
    def calm(self) -> float:
        """When everything is created and all misfortunes are over."""
        created = max(run.at for run in self.runs)
        return 1.0 + max([created, *(self.begins(each) + each.seconds for each in self.misfortunes)])

    @property
    def late(self) -> bool:
        """Somebody may write who knows nothing of what happened meanwhile."""
        kinds = {each.kind for each in self.misfortunes}
        return self.operators > 1 or bool(kinds & {Kind.STOPPED, Kind.STOPPED_AT_A_CALL})


# -- what may come out of it ---------------------------------------------------------------------------------------


def name_of(number: int) -> str:
    return f"run-{number}"


def ends(plan: Plan, number: int) -> tuple[End, ...] | None:
    """How this run may end. None: in any way that its own misfortunes explain (see `explained`)."""
    mine = [each for each in plan.misfortunes if each.kind not in HARMLESS]
    if any(each.kind in (Kind.LOSS, Kind.NODE_AWAY) for each in mine):
        return None
    own = [each for each in mine if each.which % len(plan.runs) == number]
    natural = undisturbed(plan.runs[number], plan.cgroup)
    if plan.runs[number].ttl is not None:
        natural = (GONE,)
    if any(each.kind in (Kind.DELETED, Kind.EXPIRES) for each in own):
        return (GONE,)
    if any(each.kind is Kind.CANCELLED for each in own):
        return (*natural, End(Phase.CANCELLED, reason="Cancelled"))
    return natural


def undisturbed(run: Run, cgroup: int) -> tuple[End, ...]:
    """The end of a run that nothing from outside touches."""
    agent_works = run.agent != "nop"
    zero = run.zero and agent_works
    out_of_memory = _lost(("OOMKilled",), misfortunes.OOM, zero=zero)
    if cgroup == 2 and agent_works and run.work is Work.EATS_MEMORY:
        return out_of_memory
    # A verifier's own sandbox is not the agent's to lose.
    lost = _lost(("OOMKilled",), misfortunes.OOM, zero=zero and not run.separate)
    graded = lost if cgroup == 2 and run.test is Grading.EATS_MEMORY else (_verdict(run),)
    if agent_works and run.work is Work.FILLS_DISK:
        # The kubelet looks every ten seconds: a quick test.sh may be over by then.
        return (*graded, *_lost(misfortunes.LIMIT.reasons, misfortunes.UNAVAILABLE, zero=zero))
    return graded


def _verdict(run: Run) -> End:
    """Of a test.sh that came to its end. Killed alone at the memory limit, it has written nothing."""
    return VERDICTS[Grading.NOTHING if run.test is Grading.EATS_MEMORY else run.test]


def _lost(reasons: tuple[str, ...], kind: str, *, zero: bool) -> tuple[End, ...]:
    if zero:
        return tuple(End(Phase.SUCCEEDED, "0", reason, kind) for reason in reasons)
    return tuple(End(Phase.MASKED, None, reason, kind) for reason in reasons)


BY_AGENT = frozenset({"OOMKilled", "StorageLimitExceeded", "SandboxEnded", "Tampered", "VerifierStartFailed"})


def explained(plan: Plan, number: int, end: End) -> str | None:
    """What is wrong with an end that misfortunes may have changed; None: it is one that a run may have."""
    run = plan.runs[number]
    if end.phase is None:
        return None if _may_be_gone(plan, number) else "it is gone, and nobody deleted it"
    match end.phase:
        case Phase.SUCCEEDED if end.reason is None:
            return None if end == _verdict(run) else "a reward that nobody gave"
        case Phase.SUCCEEDED if end.reason in BY_AGENT:
            return None if run.zero and end.reward == "0" else "a loss counts as 0, and nobody asked for that"
        case Phase.SUCCEEDED:
            return None if end in undisturbed(run, plan.cgroup) else "0 without a cause in test.sh"
        case Phase.MASKED | Phase.FAILED:
            return None if end.reward is None else "a reward without a verdict"
        case Phase.CANCELLED:
            return None if _is(plan, number, Kind.CANCELLED) else "cancelled by nobody"
        case _:
            return "no end at all"


def _is(plan: Plan, number: int, *kinds: Kind) -> bool:
    return any(each.kind in kinds and each.which % len(plan.runs) == number for each in plan.misfortunes)


def _may_be_gone(plan: Plan, number: int) -> bool:
    return plan.runs[number].ttl is not None or _is(plan, number, Kind.DELETED, Kind.EXPIRES)
