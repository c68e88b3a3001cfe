"""What each phase asks of the sandbox helper (the contract's seed, agent, collect and verify).

Guarantees: housekeeping is done by the helper as root, through paths that are never followed; what the contract runs
as a user runs as that user; the order of `prepare` is the contract's. Archives are named, not read: the effect that
sends the request streams them from the run's snapshot.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.contract import dialect, rewards, users
from taskfold.contract.images import RecordedImage
from taskfold.contract.task import Task
from taskfold.contract.task_toml import CollectTable
from taskfold.protocol.phase import (
    CheckUser,
    Directory,
    Output,
    PhaseRequest,
    PrepareOp,
    Read,
    Reset,
    Run,
    Tools,
    Unpack,
    User,
)

TOOLS = ("bash", "timeout", "tar", "gzip", "find")
"""What the contract wants of an image, checked at seed (C29)."""

LOGS_AGENT = "/logs/agent"
LOGS_VERIFIER = "/logs/verifier"
LOGS_ARTIFACTS = "/logs/artifacts"
TRAJECTORY_NAME = "trajectory.json"
TRAJECTORY = f"{LOGS_AGENT}/{TRAJECTORY_NAME}"
TEST_OUTPUT = f"{LOGS_VERIFIER}/test-stdout.txt"
REWARD_JSON = f"{LOGS_VERIFIER}/reward.json"
REWARD_TXT = f"{LOGS_VERIFIER}/reward.txt"
TRAJECTORY_BYTES = 4 * 1024 * 1024
"""A longer transcript of the agent's own is not taken; one is built instead."""


@dataclass(frozen=True)
class Sandbox:
    """What is known about the sandbox. `image_user`: who its image starts as."""

    run: TaskRun
    task: Task
    recorded: RecordedImage | None
    image_user: User

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
        recorded = self.recorded.config.user if self.recorded is not None else None
        return self._user(users.agent(self.task.config, recorded))

    @property
    def verifier_user(self) -> User:
        recorded = self.recorded.config.user if self.recorded is not None else None
        return self._user(users.verifier(self.task.config, recorded, self.rules))

    def _user(self, user: users.User | None) -> User:
        return self.image_user if user is None else User(user.name, user.uid, user.gid, group=user.group)

    def timeout(self, seconds: float) -> float:
        """A limit of the task, scaled by the run."""
        return seconds * (self.run.spec.multipliers.timeout if self.run.spec.multipliers else 1.0)


def seed(sandbox: Sandbox, nonce: str) -> PhaseRequest:
    """Check the image, make the folders; nothing of the task runs."""
    hooks = (_hook_user(sandbox, hook.user) for hook in _hooks(sandbox))
    everyone = (_worker(sandbox), sandbox.verifier_user, *hooks)
    checks = dict.fromkeys(CheckUser(user) for user in everyone if user.name is not None or user.group is not None)
    prepare: list[PrepareOp] = [Tools(TOOLS), *checks]
    prepare += [Directory(path, "0777") for path in (LOGS_AGENT, LOGS_VERIFIER, LOGS_ARTIFACTS)]
    if sandbox.workdir is not None:
        prepare.append(Directory(sandbox.workdir, "0755", sandbox.agent_user, existing="keep", links="follow"))
    return PhaseRequest(nonce, "seed", prepare)


def agent(sandbox: Sandbox, nonce: str, env: Mapping[str, str], install_seconds: float) -> PhaseRequest:
    """The agent's phase. One archive of payload for the oracle: the folder `solution`."""
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
    runs.append(Run("agent", command, output, env, sandbox.workdir, _worker(sandbox), sandbox.timeout(limit)))
    return PhaseRequest(nonce, "agent", (), runs, (Read(TRAJECTORY, TRAJECTORY_BYTES),))


def _worker(sandbox: Sandbox) -> User:
    """Who the agent works as: the run's word, else the task's, else the image's user."""
    script = sandbox.run.spec.agent.script
    if script is None or script.user is None:
        return sandbox.agent_user
    return User(uid=script.user) if isinstance(script.user, int) else User(name=script.user)


def _oracle(sandbox: Sandbox, nonce: str, env: Mapping[str, str]) -> PhaseRequest:
    run = Run(
        "agent",
        ("bash", "/solution/solve.sh"),
        Output(f"{LOGS_AGENT}/oracle.txt"),
        env,
        sandbox.workdir,
        sandbox.agent_user,
        sandbox.timeout(sandbox.task.config.agent.timeout_sec),
    )
    return PhaseRequest(nonce, "agent", (Reset("/solution"), Unpack("/solution")), (run,))


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
    """Reset, tests/, transcript, test.sh. Two archives of payload: the folder `tests`, the transcript."""
    own = verifier.spec.timeout_seconds
    limit = own if own is not None else sandbox.timeout(sandbox.task.config.verifier.timeout_sec)
    prepare = (
        Reset("/tests"),
        Reset(LOGS_VERIFIER),
        Unpack("/tests"),
        Directory(LOGS_VERIFIER, "0755", sandbox.verifier_user),
        Unpack(LOGS_AGENT),
    )
    command = ("bash", "/tests/test.sh")
    test = Run("test", command, Output(TEST_OUTPUT), env, sandbox.workdir, sandbox.verifier_user, limit)
    read = (Read(REWARD_JSON, rewards.JSON_LIMIT), Read(REWARD_TXT, rewards.TXT_LIMIT))
    return PhaseRequest(nonce, "verify", prepare, (test,), read)


def _hooks(sandbox: Sandbox) -> tuple[CollectTable, ...]:
    return tuple(sandbox.task.config.verifier.collect)


def _hook_user(sandbox: Sandbox, user: int | str | None) -> User:
    parsed = users.parse(user)
    return sandbox.image_user if parsed is None else User(parsed.name, parsed.uid)
