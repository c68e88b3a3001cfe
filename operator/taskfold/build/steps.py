"""What a turn of a multi-step task adds to the agent's phase: a sandbox without the last turn's grading files, the
step's own files, its setup.sh and its healthcheck.

Guarantees: before anything of the turn runs, nothing of an earlier verification is left where the agent could read it
but what the dataset declares as input: logs are renamed into a folder that is root's alone, /tests is emptied. What is
merged into the working directory is the agent's; it never lands behind a link that the agent has made (C39).
"""

from collections.abc import Mapping
from dataclasses import replace

from taskfold.build import checks, phases
from taskfold.contract import health
from taskfold.contract import steps as contract
from taskfold.contract.task import Step, Task
from taskfold.protocol.phase import Directory, Move, Output, PhaseRequest, PrepareOp, Reset, Run, Unpack

LOGS = "/logs/steps"
"""Where the logs of turns that are over wait for being collected."""
VARIABLE = "TASKFOLD_STEP"
"""The step's name, for setup.sh, the healthcheck and the agent."""


def variables(task: Task) -> dict[str, str]:
    """What commands of the turn get beside the sandbox's variables; nothing in a single-step task."""
    return {VARIABLE: task.step.name} if task.step is not None else {}


def folders(task: Task) -> tuple[str, ...]:
    """Folders of the snapshot that a turn's phase needs before the agent's own, one archive each."""
    return (contract.folder(task.step, "workdir"),) if task.step is not None and task.step.workdir else ()


def reward_files(task: Task | None) -> tuple[str, ...]:
    """Every place in the sandbox where a verification's rewards may lie at its end."""
    own = (phases.REWARD_JSON, phases.REWARD_TXT)
    moved = (f"{LOGS}/{step.name}/verifier" for step in (task.steps if task is not None else ()))
    return (*own, *(path.replace(phases.LOGS_VERIFIER, folder) for folder in moved for path in own))


def opened(sandbox: phases.Sandbox, agent: PhaseRequest, env: Mapping[str, str], setup_seconds: float) -> PhaseRequest:
    """The agent's phase of a turn; `agent` is the part of the agent itself, without programs if nobody works.

    `env`: of every command in the sandbox. Archives: those of `folders`, then those of `agent`.
    """
    task, step = sandbox.task, sandbox.task.step
    if step is None:
        return agent
    first = task.steps.index(step) == 0
    prepare = [] if first else _cleared(task, step)
    if step.workdir:
        prepare.append(Unpack(sandbox.workdir or "", user=phases.worker(sandbox), links="follow"))
    programs = (
        *_before(sandbox, step, env, setup_seconds),
        *(run for run in agent.runs if first or run.name != "install"),
    )
    return replace(agent, prepare=(*prepare, *agent.prepare), runs=programs, limit_seconds=_limit(step, programs))


def _cleared(task: Task, step: Step) -> list[PrepareOp]:
    """What the turn before left for its verification, out of the agent's sight; its logs are kept."""
    before = task.steps[task.steps.index(step) - 1]
    logs = f"{LOGS}/{before.name}"
    return [
        Move(phases.LOGS_VERIFIER, f"{logs}/verifier", keep=task.inputs),
        Move(phases.LOGS_AGENT, f"{logs}/agent"),
        Reset("/tests"),
        Reset(phases.LOGS_VERIFIER, keep=task.inputs),
        Directory(phases.LOGS_VERIFIER, "0777"),
        Reset(phases.LOGS_AGENT),
        Directory(phases.LOGS_AGENT, "0777"),
    ]


def _before(sandbox: phases.Sandbox, step: Step, env: Mapping[str, str], setup_seconds: float) -> list[Run]:
    """The programs before the agent: the agent is started only if they succeed."""
    found = []
    if step.setup:
        output = Output(f"{phases.LOGS_AGENT}/setup-stdout.txt")
        user, cwd = phases.worker(sandbox), sandbox.workdir
        setup = Run("setup", ("bash", "setup.sh"), output, env, cwd, user, setup_seconds, continue_on_failure=False)
        found.append(setup)
    table = step.config.healthcheck
    if table is not None:
        user, cwd = sandbox.image_user, sandbox.workdir
        found.append(checks.of_task(table, name="healthcheck", env=env, cwd=cwd, user=user))
    return found


def _limit(step: Step, programs: tuple[Run, ...]) -> float | None:
    """A check needs a limit of its phase: what all programs may take. Without a check they have their own."""
    table = step.config.healthcheck
    if table is None:
        return None
    return health.of_table(table).longest + sum(run.limit_seconds or 0.0 for run in programs if run.check is None)
