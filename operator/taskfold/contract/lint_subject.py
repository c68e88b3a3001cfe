"""The rules of the advice, and what each looks at.

Guarantee: the set is closed, and a rule's id stays: tasks silence it by that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from taskfold.contract import folder
from taskfold.contract.task import Task
from taskfold.contract.task_toml import TaskToml

MAX_SCRIPT_BYTES = 2**20
"""A larger file is data, not something to give advice about."""


class Rule(StrEnum):
    """One word for one kind of advice."""

    SHARED_VERIFIER = "shared-verifier"
    ARTIFACT_OVERLAP = "artifact-overlap"
    ARTIFACT_IN_LOGS = "artifact-in-logs"
    NO_ARTIFACTS = "no-artifacts"
    WORKSPACE_NOT_KEPT = "workspace-not-kept"
    TESTS_IN_IMAGE = "tests-in-image"
    INSTALLS_AT_RUN_TIME = "installs-at-run-time"
    DOWNLOADS_AT_RUN_TIME = "downloads-at-run-time"
    CUT_OFF = "cut-off"
    ALLOWS_THE_CLUSTER = "allows-the-cluster"
    ALLOWS_NO_NAME = "allows-no-name"
    RUN_AT_SEED = "run-at-seed"
    IMAGE_TAG = "image-tag"
    NO_REWARD_PATH = "no-reward-path"
    BROKEN_VERIFIER = "broken-verifier"
    NO_SOLUTION = "no-solution"
    EMPTY_INSTRUCTION = "empty-instruction"
    SECRET_IN_TASK = "secret-in-task"  # noqa: S105 - the name of a rule
    CRLF = "crlf"
    RESERVED_NAME = "reserved-name"
    UNKNOWN_KEY = "unknown-key"
    NO_EFFECT = "no-effect"
    HARBOR_TABLE = "harbor-table"
    UNKNOWN_RULE = "unknown-rule"

    @property
    def sentence(self) -> str:
        """When it is given, and why, for the reference."""
        return SENTENCES[self]


SENTENCES: dict[Rule, str] = {
    Rule.SHARED_VERIFIER: (
        "The tests run in the agent's sandbox, where what the agent leaves behind can reach them, and separate "
        "verification would do: the task declares artifacts, or its `[verifier].env` has templates, which are filled "
        "with secrets, or the agent is root and no file of tests/ speaks of processes or of the network."
    ),
    Rule.ARTIFACT_OVERLAP: (
        "Two artifacts have one destination, or one lies in the other. The first wins, the second is not kept."
    ),
    Rule.ARTIFACT_IN_LOGS: (
        "An artifact of separate verification lies in /logs/agent, or takes it in, where the transcript is put."
    ),
    Rule.NO_ARTIFACTS: (
        "Separate verification, and no artifact is declared: of the agent's work the tests see /logs/artifacts only."
    ),
    Rule.WORKSPACE_NOT_KEPT: (
        "The tests of a separate verification read the working directory that task.toml names, and no artifact lies in "
        "it or takes it in: it is the image's there, without the agent's work."
    ),
    Rule.TESTS_IN_IMAGE: "The Dockerfile copies tests or a solution into the image, where the agent can read them.",
    Rule.INSTALLS_AT_RUN_TIME: (
        "A test.sh installs packages: each verification needs the network then, takes longer, and may grade with "
        "other versions than the one before."
    ),
    Rule.DOWNLOADS_AT_RUN_TIME: (
        "The test.sh of a separate verification fetches something from elsewhere with curl, wget or git clone, which "
        "may be another one tomorrow, or not there."
    ),
    Rule.CUT_OFF: (
        "The test.sh of a restricted verifier installs or fetches something that its network does not allow: anything "
        "if there is none; from a host that is not in the list; or from a name in it by another way than HTTP on port "
        "80 and TLS on ports 443 and 8443."
    ),
    Rule.ALLOWS_THE_CLUSTER: (
        "A list of hosts has an address or a block that takes in private, shared, loopback or link-local addresses, as "
        "clusters have them for pods and nodes: some networks let it reach those, others never do."
    ),
    Rule.ALLOWS_NO_NAME: "A list of hosts has addresses alone: no name is found under it.",
    Rule.RUN_AT_SEED: (
        "The Dockerfile's RUN lines run at the start of every run, in its limits and under its network "
        "restriction; `security.profile: restricted` refuses them."
    ),
    Rule.IMAGE_TAG: "The image has no tag, or `latest`, and may be another one tomorrow.",
    Rule.NO_REWARD_PATH: "No file of tests/ speaks of /logs/verifier or of a reward file, so every run scores 0.",
    Rule.BROKEN_VERIFIER: "The Python verifier cannot be parsed, or defines no `verify`.",
    Rule.NO_SOLUTION: "There is no reference solution, so nothing shows that the task can be solved.",
    Rule.EMPTY_INSTRUCTION: "The agent is told nothing.",
    Rule.SECRET_IN_TASK: (
        "A variable that is named like a credential has its value written out. Write `${NAME}` instead, and give the "
        "value with `spec.secretsFrom` or `spec.environmentFrom`."
    ),
    Rule.CRLF: "A script has CR LF line ends, which bash takes for part of its words.",
    Rule.RESERVED_NAME: (
        "A file or a variable has a name that taskfold uses itself: tests/.ng/, dataset/, TASKFOLD_… variables."
    ),
    Rule.UNKNOWN_KEY: "A key of task.toml that the format does not have. It is ignored.",
    Rule.NO_EFFECT: "A file or a key that nobody will use.",
    Rule.HARBOR_TABLE: "One of Harbor's tables in dataset.toml has a wrong or an unknown key. No run depends on it.",
    Rule.UNKNOWN_RULE: "A rule that is to be ignored does not exist.",
}


@dataclass(frozen=True)
class Advice:
    """`field`: a key of task.toml, for its line; `line`: where the rule knows it."""

    rule: Rule
    file: str
    message: str
    line: int | None = None
    field: str | None = None


@dataclass(frozen=True)
class Subject:
    """A folder whose task.toml is readable. `task`: None when something else is wrong with it.

    `sizes`: the files that the contract uses, in bytes; `listed`: all that lies in the folder.
    """

    source: folder.Folder
    sizes: Mapping[str, int]
    config: TaskToml
    task: Task | None
    toml: str
    listed: Sequence[str] = ()

    def text(self, path: str) -> str | None:
        """The file as text; None when it is none, or too large to be a script."""
        if self.sizes.get(path, MAX_SCRIPT_BYTES + 1) > MAX_SCRIPT_BYTES:
            return None
        try:
            return self.source.read(path).decode()
        except UnicodeDecodeError:
            return None

    def tests(self) -> Iterator[tuple[str, str]]:
        """Path and text of every text file of tests/ and of steps' tests/."""
        for path in self.sizes:
            parts = path.split("/")
            own = parts[0] == "tests" or (parts[0] == "steps" and parts[2:3] == ["tests"])
            if (own or path == "dataset/verifier.py") and (text := self.text(path)) is not None:
                yield path, text
