"""Everything a decision may look at, frozen at one moment.

Guarantees: a world holds facts only: objects as the API server has them, what the sandbox's journal said, what the
store holds, and the clock. Random nonces and the time are part of it, so that `decide` stays a function.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from taskfold.api.settings import Settings
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.contract import steps
from taskfold.contract.images import RecordedImage
from taskfold.contract.network import Network
from taskfold.contract.task import Task
from taskfold.decide.pod import PodView
from taskfold.protocol.artifacts import Manifest
from taskfold.protocol.phase import PhaseResult, User


@dataclass(frozen=True)
class PhaseActive:
    """Someone in this process is busy with the phase.

    `started_at`: when it started in the sandbox, once known. `asked`: seconds since this process first asked for it.
    `progress`: of a large delivery before the start, in words; "" until there is something to tell.
    """

    started_at: str | None = None
    asked: float = 0.0
    progress: str = ""


class Signal(StrEnum):
    """What the pod's status says about the end of a phase. It is a hint to look, never the end itself."""

    NONE = "None"
    """Nothing will tell."""
    AWAITED = "Awaited"
    """A container of the pod waits for the end, and runs."""
    GIVEN = "Given"
    """That container has ended, for whatever reason."""


@dataclass(frozen=True)
class PhaseWaiting:
    """The phase goes on, and nobody is connected to it.

    `look_in`: seconds until the next look. `signal`: what the last look knew. `signalled`: False if the cluster does
    not let a container wait for it. `since`: seconds since the last look. `asked`: since this process first asked.
    """

    started_at: str
    look_in: float
    signal: Signal = Signal.NONE
    signalled: bool = True
    since: float = 0.0
    asked: float = 0.0


@dataclass(frozen=True)
class PhaseDone:
    """The phase ended, once and for all."""

    result: PhaseResult


@dataclass(frozen=True)
class PhaseRefused:
    """The helper started nothing. `missing` and `reason` say why; the same nonce may be tried again."""

    reason: str
    message: str


@dataclass(frozen=True)
class PhaseUnreached:
    """The sandbox could not be reached, or the answer was lost. Whether it started is not known.

    `retry_in`: seconds until the next try. `asked`: seconds since this process first asked. `killed`: how many helpers
    were killed in the sandbox since one came to its end.
    """

    message: str
    failures: int
    retry_in: float
    asked: float = 0.0
    killed: int = 0


PhaseReport = PhaseActive | PhaseWaiting | PhaseDone | PhaseRefused | PhaseUnreached


@dataclass(frozen=True)
class CopyActive:
    """Someone in this process copies. `progress`: of a large one, in words; "" until there is something to tell."""

    progress: str = ""


@dataclass(frozen=True)
class CopyFailed:
    """The copy broke and is begun again: what is whole by then stays. `reason`: of the closed enum.

    `retry_in`: seconds until then. `asked`: since this process first asked for it.
    """

    reason: str
    message: str
    retry_in: float
    asked: float


CopyReport = CopyActive | CopyFailed
"""What is known of a copy that is not done; that it is done the store says."""


@dataclass(frozen=True)
class Admission:
    """A task folder that loads, as its source has it now."""

    digest: str
    task: Task
    recorded: RecordedImage | None = None


@dataclass(frozen=True)
class Refusal:
    """Why a run cannot be admitted. `terminal`: waiting would not help."""

    reason: str
    message: str
    terminal: bool = True


@dataclass(frozen=True)
class NetworkWorld:
    """What the network restriction of a sandbox rests on, as it is now.

    `canaries`: the uids of those that are ready. `wider`: NetworkPolicies of others that allow the pod something.
    `intact`: its own policy is there, as it was made; None: it is not to be there yet. `gateway`: its pod of
    the current number, while there is one. `kept`: what was kept of the gateway's words, once they were.
    """

    restriction: Network
    canaries: frozenset[str] = frozenset()
    wider: tuple[str, ...] = ()
    intact: bool | None = None
    gateway: PodView | None = None
    kept: Mapping[str, object] | None = None
    exists: bool = False
    """Anything of it is there that is to be removed at the end."""


@dataclass(frozen=True)
class RunWorld:
    """A TaskRun and all that belongs to it."""

    run: TaskRun
    spec_digest: str
    now: datetime
    nonces: tuple[str, ...]
    settings: Settings
    admission: Admission | Refusal | None = None
    task: Task | None = None
    pod: PodView | None = None
    departed: PodView | None = None
    network: NetworkWorld | None = None
    """Of the agent's sandbox, if it is to be restricted."""
    phases: Mapping[str, PhaseReport] = field(default_factory=dict)
    recorded: RecordedImage | None = None
    image_user: User | None = None
    verifier: VerifierRun | None = None
    store_prefix: str | None = None
    collected: Mapping[str, object] | None = None
    row_stored: bool = False
    step_rewards: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """All rewards of the steps that have a verdict, the one that is to be copied included, by number from 0."""
    copy: CopyReport | None = None
    """Of the collection of files at the end."""
    response: str | Refusal | None = None
    """What `finish.responseFrom` names, as it is now, or why it cannot be read; None: nothing is to be read."""

    @property
    def turn(self) -> Task | None:
        """The task as the turn at work has it; the task itself, if it has a single one or all are over."""
        return steps.turn(self.task, len(self.run.status.steps)) if self.task is not None else None


@dataclass(frozen=True)
class OwnSandbox:
    """The sandbox that a separate verifier has for itself.

    `name`: of the pod of the current try. `task`: as this sandbox has it (`contract.separate.sandbox`).
    """

    name: str
    task: Task
    pod: PodView | None = None
    departed: PodView | None = None
    recorded: RecordedImage | None = None
    image_user: User | None = None
    network: NetworkWorld | None = None
    """If it is to be restricted."""


@dataclass(frozen=True)
class VerifierWorld:
    """A VerifierRun and the sandboxes that it has to do with. `pod`: the agent's."""

    verifier: VerifierRun
    spec_digest: str
    now: datetime
    nonces: tuple[str, ...]
    settings: Settings
    run: TaskRun | None = None
    task: Task | None = None
    pod: PodView | None = None
    departed: PodView | None = None
    network: NetworkWorld | None = None
    """Of the agent's sandbox, while it is there and restricted."""
    phases: Mapping[str, PhaseReport] = field(default_factory=dict)
    recorded: RecordedImage | None = None
    image_user: User | None = None
    own: OwnSandbox | None = None
    """In mode separate."""
    place: str | None = None
    """Where in the store this verification keeps what it leaves."""
    manifest: Manifest | None = None
    """The artifacts that are kept, once they all are."""
    regraded: Admission | Refusal | None = None
    """The task that a VerifierRun of its own is about to grade, with the tests that it names."""
    kept: Mapping[str, object] | None = None
    """What was kept of the verifier's own sandbox, once it was."""
    copy: CopyReport | None = None
    """Of the artifacts until there is a verdict, of the own sandbox's logs after."""

    @property
    def last(self) -> bool:
        """Whether nobody needs the agent's sandbox after this verification: it is not that of an earlier step."""
        if self.run is None or self.task is None or self.task.step is None:
            return True
        return self.task.steps[-1].name == self.task.step.name
