"""What each phase asks of the sandbox helper (the contract's seed, agent, collect and verify).

Guarantees: housekeeping is done by the helper as root, through paths that are never followed; what the contract runs
as a user runs as that user; the order of `prepare` is the contract's. Archives are named, not read: the effect that
sends the request streams them from the run's snapshot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from taskfold.api.taskrun import SecurityProfile, TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import handout, pod, python_verifier
from taskfold.contract import dialect, response, rewards, steps, users
from taskfold.contract.images import RecordedImage
from taskfold.contract.task import Solution, Task
from taskfold.contract.task_toml import CollectTable
from taskfold.protocol.phase import (
    CheckUser,
    Directory,
    Output,
    PhaseRequest,
    PrepareOp,
    Read,
    Remove,
    Reset,
    Run,
    Tools,
    Unpack,
    User,
    UserNamespace,
)

TOOLS = ("bash", "timeout", "tar", "gzip", "find")
"""What the contract wants of an image, checked at seed (C29)."""

LOGS_AGENT = "/logs/agent"
LOGS_VERIFIER = "/logs/verifier"
LOGS_ARTIFACTS = "/logs/artifacts"
TRAJECTORY_NAME = "trajectory.json"
RESPONSE_JSON = f"{LOGS_AGENT}/response.json"
RESPONSE_TEXT = f"{LOGS_AGENT}/response.txt"
TRAJECTORY = f"{LOGS_AGENT}/{TRAJECTORY_NAME}"
TEST_OUTPUT = f"{LOGS_VERIFIER}/test-stdout.txt"
REWARD_JSON = f"{LOGS_VERIFIER}/reward.json"
REWARD_TXT = f"{LOGS_VERIFIER}/reward.txt"
TRAJECTORY_BYTES = 4 * 1024 * 1024
"""A longer transcript of the agent's own is not taken; one is built instead."""
AGENT_FILES = (
    Read(TRAJECTORY, TRAJECTORY_BYTES),
    Read(RESPONSE_JSON, response.MAX_BYTES),
    Read(RESPONSE_TEXT, response.MAX_BYTES),
)
"""What an agent may leave for its verifier, read the moment it ends."""
ANSWER = "answer.md"


@dataclass(frozen=True)
class Sandbox:
    """What is known about the sandbox. `image_user`: who its image starts as."""

    run: TaskRun
    task: Task
    recorded: RecordedImage | None
    image_user: User
    profile: SecurityProfile = SecurityProfile.ROOT

    @property
    def workdir(self) -> str | None:
        """The working directory; None is the image's own."""
        recorded = self.recorded.config.workdir if self.recorded is not None else ""
        return self.task.config.environment.workdir or recorded or None

    @property
    def rules(self) -> dialect.Rules:
        """What the folder means in the run's dialect."""
        return dialect.RULES[self.run.spec.dialect.value]

    @property
    def agent_user(self) -> User:
        return self._user(users.agent(self.task.config, self._on_record))

    @property
    def verifier_user(self) -> User:
        return self._user(users.verifier(self.task.config, self._on_record, self.rules))

    @property
    def _on_record(self) -> str | None:
        """USER of the image on record. A restricted pod has one user, `image_user`, whatever the image says."""
        if self.recorded is None:
            return None
        return "" if self.profile is SecurityProfile.RESTRICTED else self.recorded.config.user

    def _user(self, user: users.User | None) -> User:
        return self.image_user if user is None else User(user.name, user.uid, user.gid, group=user.group)

    def timeout(self, seconds: float) -> float:
        """A limit of the task, scaled by the run."""
        return seconds * (self.run.spec.multipliers.timeout if self.run.spec.multipliers else 1.0)


def seed(sandbox: Sandbox, nonce: str) -> PhaseRequest:
    """Check the image, make the folders; nothing of the task runs. Payload for an external agent: `handout.files`."""
    everyone = (user for turn in steps.turns(sandbox.task) for user in _users(replace(sandbox, task=turn)))
    # As root a number needs no look-up; a pod of another profile may not be able to become that user.
    numbers = sandbox.profile is not SecurityProfile.ROOT
    named = (user for user in everyone if numbers or user.name is not None or user.group is not None)
    proof = (UserNamespace(),) if sandbox.profile is SecurityProfile.USERNS else ()
    prepare: list[PrepareOp] = [*proof, *_tools(sandbox.task), *dict.fromkeys(map(CheckUser, named))]
    prepare += [Directory(path, "0777") for path in (LOGS_AGENT, LOGS_VERIFIER, LOGS_ARTIFACTS)]
    if sandbox.workdir is not None:
        owner = replace(sandbox, task=steps.turn(sandbox.task, 0)).agent_user  # of several steps, the first one's
        prepare.append(Directory(sandbox.workdir, "0755", owner, existing="keep", links="follow"))
    if sandbox.run.spec.agent.external is not None:
        prepare += handout.PREPARE  # this agent has no phase in which it would get it
    return PhaseRequest(nonce, "seed", prepare)


def _tools(task: Task) -> tuple[Tools, ...]:
    """What the image must have for test.sh, unless that runs in another one."""
    return (Tools(TOOLS),) if any(turn.separate is None for turn in steps.turns(task)) else ()


def _users(sandbox: Sandbox) -> tuple[User, ...]:
    """Who works in this turn, in the agent's sandbox."""
    hooks = (_hook_user(sandbox, hook.user) for hook in _hooks(sandbox))
    verifier = (sandbox.verifier_user,) if sandbox.task.separate is None else ()
    return (worker(sandbox), *verifier, *hooks)


def agent(sandbox: Sandbox, nonce: str, env: Mapping[str, str], install_seconds: float) -> PhaseRequest:
    """The agent's phase. Archives of payload: for the oracle the folder `solution`, then `handout.files`."""
    if sandbox.run.spec.agent.oracle is not None:
        return _oracle(sandbox, nonce, env)
    script = sandbox.run.spec.agent.script
    if script is None:
        raise ValueError("this agent has no phase of its own")
    runs = []
    if script.install:
        runs.append(
            Run(
                "install",
                ("bash", "-c", script.install),
                Output(f"{LOGS_AGENT}/install-stdout.txt"),
                env,
                sandbox.workdir,
                User(uid=0),
                install_seconds,
                continue_on_failure=False,
            )
        )
    limit = script.timeout_seconds or sandbox.task.config.agent.timeout_sec
    command = ("bash", "-c", script.run)
    output = Output(f"{LOGS_AGENT}/stdout.txt")
    runs.append(Run("agent", command, output, env, sandbox.workdir, worker(sandbox), sandbox.timeout(limit)))
    return PhaseRequest(nonce, "agent", handout.PREPARE, runs, AGENT_FILES)


def worker(sandbox: Sandbox) -> User:
    """Who the agent works as: the run's word, else the task's, else the image's user."""
    script = sandbox.run.spec.agent.script
    if script is None or script.user is None:
        return sandbox.agent_user
    return User(uid=script.user) if isinstance(script.user, int) else User(name=script.user)


def _oracle(sandbox: Sandbox, nonce: str, env: Mapping[str, str]) -> PhaseRequest:
    # The helper copies an answer as the agent's user would: what the image has, or lacks, does not matter (C29).
    copy = (pod.HELPER, "put", f"/solution/{ANSWER}", ANSWER)
    run = Run(
        "agent",
        copy if sandbox.task.solution is Solution.ANSWER else ("bash", "/solution/solve.sh"),
        Output(f"{LOGS_AGENT}/oracle.txt"),
        env,
        sandbox.workdir,
        sandbox.agent_user,
        sandbox.timeout(sandbox.task.config.agent.timeout_sec),
    )
    prepare = (Reset("/solution"), Unpack("/solution"), *handout.PREPARE)
    return PhaseRequest(nonce, "agent", prepare, (run,), AGENT_FILES)


def answer(task: Task) -> str:
    """Path of the reference answer in the task's folder, or in that of a turn."""
    return f"steps/{task.step.name}/{Solution.ANSWER}" if task.step is not None else Solution.ANSWER


def hooks(sandbox: Sandbox, nonce: str, env: Mapping[str, str]) -> PhaseRequest:
    """[[verifier.collect]], one after the other, before anything of the verifier is put in place."""
    runs = [
        Run(
            f"hook {number}",
            ("bash", "-c", hook.command),
            Output(None),
            env,
            sandbox.workdir,
            _hook_user(sandbox, hook.user),
            hook.timeout_sec,
        )
        for number, hook in enumerate(_hooks(sandbox), start=1)
    ]
    return PhaseRequest(nonce, "hooks", (), runs)


def verify(sandbox: Sandbox, verifier: VerifierRun, nonce: str, env: Mapping[str, str]) -> PhaseRequest:
    """Reset, tests/, transcript, test.sh. Archives of payload: those of `python_verifier.parts`, the transcript."""
    own = verifier.spec.timeout_seconds
    limit = own if own is not None else sandbox.timeout(sandbox.task.config.verifier.timeout_sec)
    prepare: tuple[PrepareOp, ...] = (
        *_emptied(sandbox),
        *(Unpack("/tests") for _ in python_verifier.parts(sandbox.task)),
        Directory(LOGS_VERIFIER, "0755", sandbox.verifier_user),
        Unpack(LOGS_AGENT),
    )
    command = ("bash", "/tests/test.sh") if sandbox.rules.through_bash else ("bash", "-c", "/tests/test.sh")
    test = Run("test", command, Output(TEST_OUTPUT), env, sandbox.workdir, sandbox.verifier_user, limit)
    read = (Read(REWARD_JSON, rewards.JSON_LIMIT), Read(REWARD_TXT, rewards.TXT_LIMIT))
    return PhaseRequest(nonce, "verify", prepare, (test,), read)


def _emptied(sandbox: Sandbox) -> tuple[PrepareOp, ...]:
    """What must not be there when test.sh begins (seed "How the verifier runs")."""
    if not sandbox.rules.empties_tests and not sandbox.task.steps:
        return (Remove(REWARD_JSON), Remove(REWARD_TXT))
    return (Reset("/tests"), Reset(LOGS_VERIFIER, keep=sandbox.task.inputs))


def _hooks(sandbox: Sandbox) -> tuple[CollectTable, ...]:
    return tuple(sandbox.task.config.verifier.collect)


def _hook_user(sandbox: Sandbox, user: int | str | None) -> User:
    parsed = users.parse(user)
    return sandbox.image_user if parsed is None else User(parsed.name, parsed.uid)
