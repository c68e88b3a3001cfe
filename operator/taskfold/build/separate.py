"""The sandbox that a separate verifier has for itself: the run as it sees it, and what its phases ask of the helper.

Guarantees: the order is the contract's: artifacts at their own paths, tests/ unless the image ships /tests/test.sh, an
empty /logs/verifier, the transcript, then entrypoint and health checks, then test.sh. What an artifact put under
/logs/verifier is gone before that (C31).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from taskfold.api.agent import Agent, NopAgent
from taskfold.api.taskrun import SecurityProfile, TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import phases, python_verifier, seeding
from taskfold.contract.task import Grader
from taskfold.protocol.phase import (
    CheckUser,
    Directory,
    PhaseRequest,
    PrepareOp,
    Reset,
    Restore,
    Tools,
    Unpack,
    UserNamespace,
)

TEST_SH = "/tests/test.sh"


def run_of(run: TaskRun, verifier: VerifierRun) -> TaskRun:
    """The run as this verification's own sandbox has it: nobody works there, and its pod is the VerifierRun's."""
    spec = run.spec.model_copy(
        update={
            "agent": Agent(nop=NopAgent()),
            "pod": verifier.spec.pod,
            "security": verifier.spec.security,
            "environment_from": verifier.spec.environment_from,
        }
    )
    graded = verifier.status.admitted or run.status.admitted  # the tests may be others than the run's
    return run.model_copy(update={"spec": spec, "status": run.status.model_copy(update={"admitted": graded})})


def seed(
    sandbox: phases.Sandbox, nonce: str, env: Mapping[str, str], restored: Sequence[Restore], *, own_tests: bool = False
) -> PhaseRequest:
    """Everything that the verifier gets. Archives of payload: one for each artifact, those of `python_verifier.parts`,
    the transcript. `own_tests`: the tests are not the task's, and are given whatever the image ships.
    """
    user = sandbox.verifier_user
    proof = (UserNamespace(),) if sandbox.profile is SecurityProfile.USERNS else ()
    named = user.name is not None or user.group is not None or sandbox.profile is not SecurityProfile.ROOT
    prepare: list[PrepareOp] = [*proof, Tools(phases.TOOLS), *((CheckUser(user),) if named else ())]
    prepare += [Directory(path, "0777") for path in (phases.LOGS_AGENT, phases.LOGS_VERIFIER, phases.LOGS_ARTIFACTS)]
    if sandbox.workdir is not None:
        prepare.append(Directory(sandbox.workdir, "0755", user, existing="keep", links="follow"))
    shipped = None if own_tests or sandbox.task.grader is not Grader.TEST_SH else TEST_SH
    prepare += [
        *restored,
        Reset("/tests", unless=shipped),
        *(Unpack("/tests", unless=shipped) for _ in python_verifier.parts(sandbox.task)),
        Reset(phases.LOGS_VERIFIER),
        Directory(phases.LOGS_VERIFIER, "0755", user),
        Unpack(phases.LOGS_AGENT),
    ]
    request = PhaseRequest(nonce, "seed", prepare, keep=True)
    return seeding.started(sandbox, request, env)


def verify(sandbox: phases.Sandbox, verifier: VerifierRun, nonce: str, env: Mapping[str, str]) -> PhaseRequest:
    """test.sh, and the reward that it leaves."""
    return replace(phases.verify(sandbox, verifier, nonce, env), prepare=())
