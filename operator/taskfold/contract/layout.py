"""Which files of a task folder do what: the grader, the reference solution, the steps.

Guarantees: a file that nobody will use is a warning, never passed over in silence; nothing is read here but
instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from taskfold.contract import dialect, folder
from taskfold.contract.errors import TaskError
from taskfold.contract.instruction import without_canary
from taskfold.contract.task import Grader, Solution, Step
from taskfold.contract.task_toml import AgentTable, StepAgentTable, StepTable, TaskToml, VerifierMode, VerifierTable

INSTRUCTION = "instruction.md"
MAX_INSTRUCTION_BYTES = 2**20
"""It is sent as one message, and stored with every transcript."""
COMPOSE = "environment/docker-compose.yaml"
SETUP = "workdir/setup.sh"
NETWORK = ("network_mode", "allowed_hosts")
"""Keys that say one thing together."""


def instruction(source: folder.Folder, paths: Sequence[str], path: str = INSTRUCTION) -> str:
    """The instruction in this file, without its canary lines. Raises TaskError."""
    if path not in paths:
        raise TaskError("is missing", file=path, remedy="Write what the agent is to do into it.")
    content = source.read(path, MAX_INSTRUCTION_BYTES)
    try:
        return without_canary(content.decode())
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text (at byte {error.start})"
        raise TaskError(problem, file=path, remedy="Save the file as UTF-8.") from None


def grader(paths: Sequence[str], rules: dialect.Rules = dialect.GYM) -> Grader:
    """What grades a single-step task (seed "Python verifiers"). Raises TaskError when nothing does."""
    with_tests = any(path.startswith("tests/") for path in paths)
    known = [each for each in Grader if rules.gym_extras or not each.python]
    found = next((each for each in known if each in paths and not (each is Grader.DATASET and with_tests)), None)
    if found is not None:
        return found
    python = f" or {Grader.PYTHON}" if rules.gym_extras else ""
    if with_tests:
        remedy = f"Write it{python}; it grades the task and leaves its reward in /logs/verifier."
        raise TaskError("is missing", file=Grader.TEST_SH, remedy=remedy)
    datasets = " A dataset's own verifier.py does, too." if rules.gym_extras else ""
    remedy = f"Write {Grader.TEST_SH}{python}; it grades the task.{datasets}"
    raise TaskError("is missing", file="tests/", remedy=remedy)


def solution(paths: Sequence[str], below: str = "", rules: dialect.Rules = dialect.GYM) -> Solution | None:
    """What the oracle has in the folder, or in the step's folder `below` (C16)."""
    known = [each for each in Solution if rules.gym_extras or each is not Solution.ANSWER]
    return next((each for each in known if below + each in paths), None)


def steps(
    config: TaskToml, source: folder.Folder, paths: Sequence[str], rules: dialect.Rules = dialect.GYM
) -> tuple[Step, ...]:
    """The turns of a multi-step task. Raises TaskError for the first thing that is missing, the rest in `others`."""
    found: list[Step] = []
    problems: list[TaskError] = []
    for table in config.steps or ():
        below = f"steps/{table.name}/"
        problems.extend(_without_test(paths, below))
        try:
            text = instruction(source, paths, below + INSTRUCTION)
        except TaskError as error:
            problems.append(error)
            continue
        found.append(
            Step(
                name=table.name,
                instruction=text,
                config=with_fallbacks(table, config),
                workdir=any(path.startswith(f"{below}workdir/") for path in paths),
                setup=below + SETUP in paths,
                tests=any(path.startswith(f"{below}tests/") for path in paths),
                solution=solution(paths, below, rules),
            )
        )
    if problems:
        first, *others = problems
        first.others = tuple(others)
        raise first
    return tuple(found)


def with_fallbacks(step: StepTable, config: TaskToml) -> StepTable:
    """The step's tables, completed from the task's.

    [agent] fills every key that the step leaves unset. [verifier] fills `user`, the mode, its environment, its network,
    and the variables that the step does not set itself; never its limit, whose default is a step's own. A step's mode
    wins over the environment that it has or inherits: with shared verification there is none. A network is filled as a
    whole: the hosts of one table are never those of another's mode.
    """
    verifier = _verifier(step.verifier, config.verifier)
    return step.model_copy(update={"agent": _agent(step.agent, config.agent), "verifier": verifier})


def unused(paths: Sequence[str], config: TaskToml | None) -> Iterator[str]:
    """What stands in the folder and has no effect, each a warning."""
    if "trajectory.json" in paths:
        yield "trajectory.json: an agent's earlier work is not continued; the file has no effect"
    several = config is not None and bool(config.steps)
    found = [path for path in paths if path.startswith("solution/")]
    if found and several:
        yield "solution/: a multi-step task has its solutions in steps/<name>/solution/; it has no effect"
    elif found and not set(Solution) & set(found):
        yield "solution/: has neither solve.sh nor answer.md, so the task counts as one without a reference solution"
    if config is None:
        return
    named = {step.name for step in config.steps or ()}
    there = {path.split("/")[1] for path in paths if path.startswith("steps/") and path.count("/") > 1}
    for name in sorted(there - named):
        yield f"steps/{name}/: no [[steps]] of task.toml names it; it has no effect"
    yield from _unused_keys(config, several=several)


def _unused_keys(config: TaskToml, *, several: bool) -> Iterator[str]:
    """Keys that one kind of task has no use for."""
    if not several and config.multi_step_reward_strategy is not None:
        yield "task.toml: multi_step_reward_strategy has no effect without [[steps]]"
    for key in ("timeout_sec", "collect") if several else ():
        if key in config.verifier.model_fields_set:
            yield f"task.toml: verifier.{key} has no effect with [[steps]]; write it in [steps.verifier]"


def refused(paths: Sequence[str]) -> Iterator[TaskError]:
    """Layouts that a later release will run."""
    if COMPOSE in paths:
        remedy = "remove the file and name one image"
        yield TaskError("a task of several containers", file=COMPOSE, remedy=remedy, unsupported=True)


def _without_test(paths: Sequence[str], below: str) -> Iterator[TaskError]:
    if Grader.TEST_SH in paths or below + Grader.TEST_SH in paths:
        return
    for python in (below + Grader.PYTHON, Grader.PYTHON):
        if python in paths:
            yield TaskError(
                "cannot grade a step: Python verifiers grade single-step tasks only",
                file=python,
                remedy=f"Write {below}{Grader.TEST_SH}, which may call it.",
            )
            return
    remedy = f"Write one, or a {Grader.TEST_SH} for all steps; it grades the step."
    yield TaskError("is missing", file=below + Grader.TEST_SH, remedy=remedy)


def _agent(step: StepAgentTable, task: AgentTable) -> StepAgentTable:
    unset = [name for name in AgentTable.model_fields if getattr(step, name) is None and name not in NETWORK]
    return step.model_copy(update={name: getattr(task, name) for name in unset} | _network(step, task))


def _verifier(step: VerifierTable, task: VerifierTable) -> VerifierTable:
    update: dict[str, object] = {"env": {**task.env, **step.env}}
    if step.user is None:
        update["user"] = task.user
    if step.environment_mode is None and step.environment is None:
        update["environment_mode"] = task.environment_mode
    if step.environment is None and step.environment_mode is not VerifierMode.SHARED:
        update["environment"] = task.environment
    return step.model_copy(update=update | _network(step, task))


def _network(step: AgentTable | VerifierTable, task: AgentTable | VerifierTable) -> dict[str, object]:
    """What the task forbids no step allows by silence, not a shared one's verifier either."""
    return {name: getattr(task, name) for name in NETWORK} if step.network_mode is None else {}
