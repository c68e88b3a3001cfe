"""From a plan's `RunPhase` to the exchange with the sandbox: variables, the request, its archives.

Guarantees: secrets are read at the moment of use and go over stdin only; the same nonce always means the same phase,
so an exchange may be begun again after any break; archives come from the run's snapshot.
"""

import contextlib
from collections.abc import Awaitable, Callable

from taskfold.api.common import EnvFromSource, SourceReference
from taskfold.api.settings import Settings
from taskfold.api.status import JournalPhase
from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import environment as env_builder
from taskfold.build import phases as requests
from taskfold.build import pod as pod_builder
from taskfold.contract import environment, transcript
from taskfold.contract import folder as folders
from taskfold.contract.images import RecordedImage
from taskfold.contract.loader import Task
from taskfold.decide import status as to
from taskfold.decide.pod import PodView
from taskfold.decide.world import RunWorld, VerifierWorld
from taskfold.effects import errors, transfer
from taskfold.effects import exec as execs
from taskfold.effects.sandbox import Sandbox, Started
from taskfold.engine.activities import Activities, Exchange
from taskfold.engine.image_users import ImageUsers
from taskfold.engine.outcome import Outcome
from taskfold.engine.snapshots import Snapshots
from taskfold.engine.sources import Sources
from taskfold.protocol.phase import FileState, PhaseRequest, PhaseResult, User
from taskfold.api.taskrun import TaskRunSpec

OnStarted = Callable[[Started], Awaitable[None]]


class NotReady(errors.EffectError):
    """What the phase needs is not there yet; the exchange is begun again later."""


class Phases:
    """Makes the exchanges."""

    def __init__(
        self,
        exec_: execs.Exec,
        sources: Sources,
        snapshots: Snapshots,
        activities: Activities,
        settings: Settings,
    ) -> None:
        self._exec = exec_
        self._sources = sources
        self._snapshots = snapshots
        self._activities = activities
        self._settings = settings
