"""Secrets of a verifier that shares its sandbox with the agent: who else could read them (docs/security.md).

Guarantees: nothing is weakened or hidden in silence. Where an agent's surviving process may read the verifier's
variables the run says so; where the operator's settings refuse the combination nothing of the run starts.
"""

from taskfold.api.settings import Settings
from taskfold.api.taskrun import SecurityProfile, TaskRun
from taskfold.contract import dialect, steps, users
from taskfold.contract.images import RecordedImage
from taskfold.contract.task import Task
from taskfold.decide import profile

REFUSED = (
    "gives Secrets to a verifier that works in the agent's sandbox, which this operator refuses "
    "(settings.secrets.refuseWithSharedVerification): what the agent left there could read them. Leave the "
    "Secrets out, or verify separately."
)
WARNED = (
    "shared verification with Secrets: a process that the agent leaves behind may read them from the environment of "
    "test.sh, because {why}. Verify separately, give the verifier no Secret that the agent must not have, or set "
    "[agent].user and [verifier].user to different users that are not root."
)


def refusal(run: TaskRun, task: Task, settings: Settings) -> str | None:
    """Why a run with Secrets for its verifier is not admitted; None if it is."""
    field = _field(run)
    if field is None or not _shared(task) or not settings.secrets.refuse_with_shared_verification:
        return None
    return f"{field} {REFUSED}"


def warnings(run: TaskRun, task: Task, recorded: RecordedImage | None, settings: Settings) -> list[str]:
    """What the run says about Secrets that its agent may read."""
    if _field(run) is None or not _shared(task):
        return []
    why = _why(run, task, recorded, settings)
    return [WARNED.format(why=why)] if why is not None else []


def _shared(task: Task) -> bool:
    """Whether any verification of the task is done in the agent's sandbox."""
    return any(turn.separate is None for turn in steps.turns(task))


def _field(run: TaskRun) -> str | None:
    """The field that gives a Secret to the verifier."""
    spec = run.spec
    if spec.secrets_from:
        return "spec.secretsFrom"
    own = spec.verifier.env if spec.verifier is not None else ()
    secret = any(entry.value_from is not None and entry.value_from.secret_key_ref is not None for entry in own)
    return "spec.verifier.env" if secret else None


def _why(run: TaskRun, task: Task, recorded: RecordedImage | None, settings: Settings) -> str | None:
    """Why the agent may read the verifier's environment; None: it is another user, and not root."""
    agent, script = run.spec.agent, run.spec.agent.script
    if agent.nop is not None:
        return None
    if profile.of(run, task, settings, recorded).profile is SecurityProfile.RESTRICTED:
        return "the profile restricted has one user for both"
    if agent.external is not None:
        return "whoever drives the sandbox by exec is root there"
    if script is not None and script.install:
        return "its installation runs as root"
    image = recorded.config.user if recorded is not None else None
    turns = tuple(steps.turns(task))
    shared = ((number, turn) for number, turn in enumerate(turns) if turn.separate is None)
    met = ((before, turn) for number, turn in shared for before in turns[: number + 1])
    return next(filter(None, (_same(run, before, turn, image) for before, turn in met)), None)


def _same(run: TaskRun, before: Task, turn: Task, image: str | None) -> str | None:
    """Why what the agent of the turn `before` left may read the verifier of `turn`, which is the same or a later one.

    `image`: USER of the image's configuration on record.
    """
    script = run.spec.agent.script
    chosen = users.parse(script.user) if script is not None else None
    agent = chosen or users.agent(before.config, image)
    verifier = users.verifier(turn.config, image, dialect.RULES[run.spec.dialect.value])
    if agent is None and image is None:
        return "both are the image's user" if verifier is None else "it is the image's user, which may be root"
    if agent is None or agent.uid == 0 or agent.name == "root":
        return "it is root"
    return "both are the same user" if agent == verifier else None
