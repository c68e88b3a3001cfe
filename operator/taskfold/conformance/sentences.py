"""Every sentence of the contract's page "Task Folder Verifiers", in our words, and what proves it.

Guarantees: a sentence names rows of the table, or tests of this repository where no row can say it (what a store, an
event or a log holds; the command line), or what it waits for. The tests check that all of them exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Later(Enum):
    """What has to be there first. Nothing else excuses a sentence."""

    COMPOSE = "Compose tasks"
    DATASETS = "datasets: validate, publish and result rows"


@dataclass(frozen=True)
class Sentence:
    """One sentence, or one claim of a sentence. `cases`: ids of rows. `tests`: path::function, in this repository.
    `later`: such a sentence is not proven yet.
    """

    section: str
    says: str
    cases: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    later: Later | None = None


TEXT = """
# How the verifier runs
A task folder carries its own verifier in tests/, unless the dataset's verifier.py grades it
= test-sh-by-bash python-of-the-dataset folder-without-tests
It runs in a sandbox after the agent's end, and the reward that it writes is read
= reward-txt order-of-verification
First the collect hooks run
= order-of-verification hooks-in-order
Then /tests and /logs/verifier are emptied: no planted reward, helper or report survives
= order-of-verification reset-of-planted-files reset-leaves-no-reward
Helpers belong into tests/: those in the image's /tests are gone
= reset-of-the-images-tests
Then tests/ is uploaded to /tests, and test.sh made executable
= order-of-verification upload-of-tests upload-of-an-archive
Then the transcript stands in /logs/agent/trajectory.json, as ATIF v1.7
= order-of-verification transcript-of-nop transcript-of-the-agent
Then `bash /tests/test.sh` runs from the working directory
= test-sh-by-bash test-sh-in-workdir test-sh-in-the-images-workdir
It runs under a limit
= verifier-timeout verifier-timeout-kills-the-group
Its output is in /logs/verifier/test-stdout.txt
= test-stdout
= tests/conformance/test_kept_files.py::test_an_archive_has_the_logs_of_agent_and_verifier_and_the_index_its_digest
Verification needs no Dockerfile of its own: it runs in the task's own image
= shared-sandbox
The image has bash, timeout, tar, gzip and find, or test.sh never starts and the sample is masked
= image-no-bash image-no-timeout image-no-tar image-no-shell
It is masked as verifier_error without bash or timeout
= image-no-bash image-no-timeout
It is masked as provider_unavailable without tar, gzip or find
= image-no-tar image-no-shell

# Reward files
test.sh writes reward.txt or reward.json
= reward-txt reward-json-metrics
Its exit code does not affect the score
= exit-code-of-a-pass killed-by-a-signal
reward.txt holds one number, which is the reward
= reward-txt reward-txt-as-float-reads-it reward-txt-two-numbers
reward.json holds a non-empty object of numbers
= reward-json-metrics reward-json-empty-object reward-json-number reward-json-list reward-json-null
= reward-json-text-value
Booleans count as numbers
= reward-json-booleans
A key `reward` is the score; the others are metrics, kept with the row
= reward-json-metrics
Without it every key is a component: the score is their sum, and the result names them
= reward-json-components reward-json-many-components
reward.json wins whenever it exists, also malformed
= reward-json-wins reward-json-wins-malformed
Two tasks may write different keys; none is padded or renamed
= reward-json-other-keys reward-json-components
No reward file: 0, harbor:missing_reward
= no-reward-file no-reward-folder
An empty or malformed file: 0, harbor:invalid_reward
= reward-txt-empty reward-txt-word reward-json-empty-file reward-json-wins-malformed
A value that is no finite number: 0, harbor:invalid_reward
= reward-txt-nan reward-txt-too-large-a-number reward-json-infinite-metric reward-json-huge-integer
Components without a finite sum: 0, harbor:invalid_reward
= reward-json-no-finite-sum
Over the limit without a reward: 0, harbor:verifier_timeout
= verifier-timeout
The limit is multiplied by the dataset's timeout_multiplier
= dataset-timeout-multiplier verifier-timeout-scaled
These rows count, and a reward written before a timeout stands
= reward-before-a-timeout no-reward-file
Other failures mask the sample: it is kept, and left out of the score
= image-no-tar deleted-bash-masked over-its-memory-masked

# Python verifiers
A single-step task may grade with tests/verifier.py instead of test.sh
= python-verifier
tests/test.sh wins, and a verifier.py beside it is an ordinary helper
= python-beside-test-sh
A verifier.py at the dataset's root grades every single-step task without tests/
= python-of-the-dataset python-of-the-task-first
verify declares the arguments it reads, and returns the reward
= python-verifier
The runner passes only what is declared, and everything there is to **kwargs
= python-arguments python-arguments-of-a-row
workspace is the working directory as a Path; state holds the same
= python-arguments
task_data are the fields of task_data.json or of the row
= python-arguments python-arguments-of-a-row
response is the agent's final response as a dict
= response-of-a-script response-as-text answer-is-the-response
verify returns a finite number or a dict of them; `reward` is the score, the rest metrics
= python-reward-and-metrics python-returns-nan
Without `reward` the dict holds exactly one key; several are not summed
= python-one-key python-several-keys
An async def verify is awaited
= python-async
One that raises writes no reward: harbor:missing_reward, the error in test-stdout.txt
= python-raises python-exits
So does one that requires what the runner does not supply
= python-argument-that-is-none response-of-nop
So does one that returns anything else
= python-returns-no-number python-returns-nan
The helpers use the standard library only, and are there without a package in the image
= python-helpers
The helpers for files read only inside the workspace; read_text drops one trailing newline
= python-helpers tests/sandbox/test_files.py::test_one_newline_at_the_end_is_dropped
= tests/sandbox/test_files.py::test_what_leaves_the_workspace_or_is_no_file_reads_as_absent
Nothing of a verifier runs on the host
= python-verifier python-planted-modules
The shim brings a test.sh, a runner, the helpers, the task's fields and the response
= python-of-the-dataset python-with-modules
It runs python3, else python, and needs 3.8 or newer
= python-3-8
Without one: 0, harbor:missing_reward, not masked
= python-none-in-the-image
The shim runs like any test.sh: same limit, user and mode
= python-over-its-limit python-user python-variables
In separate mode a verifier that reads the workspace needs it in artifacts
= separate-python separate-python-without-artifacts
publish refuses a Python verifier in separate mode, or one that declares response
= later: DATASETS

# Reference answers
A task that is graded by its answer can ship solution/answer.md instead of solve.sh
= answer-is-copied-byte-for-byte answer-beside-a-solution
The oracle copies it byte for byte to answer.md in the working directory, as the task's user
= answer-is-copied-byte-for-byte answer-that-cannot-be-written
Its text is submitted as the response
= answer-is-the-response
publish turns it into a solve.sh
= later: DATASETS

# Sidecar inputs
A file in /logs/verifier survives the reset when dataset.toml declares it
= inputs-outlive-the-reset
An entry is a plain name of a file, without separator or pattern, and no grader output
= dataset-inputs-plain-names dataset-inputs-no-grader-output
In shared mode only
= dataset-inputs-separate
A declared file survives only as a regular file
= inputs-outlive-the-reset
In a multi-step task it survives the reset before every turn
= inputs-outlive-every-reset
It is written by a Compose sidecar
= later: COMPOSE

# Shared and separate verification
Shared is the default: test.sh runs in the agent's sandbox
= shared-sandbox
Processes that the agent started keep running beside it
= shared-sandbox shared-agent-that-prints-on agent-end-signals-nothing
Separate mode gives the verifier a fresh sandbox
= separate-by-mode separate-nothing-else-crosses separate-no-process-crosses separate-tools-are-its-own
environment_mode or a [verifier.environment] table sets it
= separate-by-mode separate-by-table separate-by-the-run separate-not-by-the-run
The collect hooks run, then /logs/artifacts and the task's artifacts are copied out of the agent's sandbox
= separate-hooks-first artifacts-logs-artifacts-always artifacts-file-and-folder artifacts-of-a-relative-path
Then the agent's sandbox is stopped
= separate-no-process-crosses separate-no-network-of-the-agent
= tests/decide/test_separate.py::test_nothing_is_delivered_without_the_proof
= tests/conformance/test_separate_order.py::test_no_exec_into_a_verifiers_pod_before_its_agents_containers_have_ended
The verifier's takes env and workdir from [verifier.environment]
= separate-env-and-workdir
Or from [environment] without one
= separate-env-and-workdir-of-the-task
It receives the artifacts at their own paths
= artifacts-file-and-folder artifacts-target-is-emptied artifacts-odd-names
It receives tests/, unless its image ships /tests/test.sh
= separate-by-mode separate-tests-of-the-image
It receives the transcript
= separate-transcript
A verifier that reads the agent's files needs them in artifacts
= separate-by-mode separate-nothing-else-crosses
An entry of artifacts is a path, or a table with source, destination and exclude
= artifacts-file-and-folder artifacts-table-with-destination artifacts-exclude-as-tar
An entry may name the Compose service that it is taken from
= later: COMPOSE
A source of /, or under /tests or /logs/verifier, is refused
= artifacts-refused-root artifacts-refused-tests artifacts-refused-verifier-logs artifacts-refused-of-the-run
With a docker_image in [verifier.environment] the verifier runs in that
= separate-image-of-its-own
Without a [verifier.environment] it runs in the task's own
= separate-image-of-the-task
Where no image is named, one is built from tests/Dockerfile: refused for now
= separate-image-to-build
A separate task with none of these is refused
= separate-image-none
With its configuration on record its ENTRYPOINT and HEALTHCHECK run before test.sh
= separate-image-on-record separate-entrypoint-dies
tests/docker-compose.yaml may hold only service main, with image, build and pull_policy
= separate-compose-refused tests/contract/test_separate_compose.py::test_what_it_may_not_say_is_refused_by_name
Tasks that declare artifacts can all be verified separately, by an option
= tests/conformance/test_separate.py::test_an_operator_may_verify_everything_with_artifacts_separately
A restriction of the network on any table but [verifier] is refused at load
= folder-restricts-the-wrong-table restricted-agent restricted-verifier-environment restricted-by-the-old-spelling
= restricted-agent-of-a-step
Under shared verification one on [verifier] is refused at load
= folder-restricts-a-shared-verifier restricted-step-that-is-shared restricted-verifier-of-a-shared-run
A separate verifier's network is restricted, or the episode fails at seed
= tests/conformance/test_network.py::test_a_separate_verifier_without_network_reaches_nobody
= tests/conformance/test_network.py::test_a_separate_verifier_with_an_allowlist_reaches_its_judge_alone
= tests/conformance/test_network.py::test_without_a_canary_nothing_is_started

# Environment variables and secrets
A whole value ${VAR} or ${VAR:-default} in [environment].env is read from the host environment
= env-of-the-sandbox env-literals
So is one in [verifier].env
= env-of-the-verifier
So is one in [verifier.environment].env
= separate-env-and-workdir
A missing required value fails the episode before any sandbox starts
= env-missing-for-the-sandbox env-missing-for-the-verifier env-missing-for-the-oracle secrets-missing-all-named
= separate-env-missing
test.sh sees its sandbox's environment plus [verifier].env
= env-test-sh-sees env-the-agent-sees
Secrets fill templates of [verifier].env and [steps.verifier].env only
= env-secrets-win env-secret-for-the-sandbox secrets-only-where-named
They win over the host environment
= env-secrets-win
A sandbox with a CPU limit gets CPU-count hints
= cpu-hints cpu-hints-none cpu-hints-scaled
A variable that the task sets wins over a hint
= cpu-hints
So does one of the image, when its configuration is on record
= cpu-hints-of-an-image-on-record cpu-hints-of-a-prebuilt-image

# Users
test.sh runs as [verifier].user
= users-two-names users-number-without-an-entry users-number-with-an-entry users-record-and-verifier-user
Unset, it runs as the user that the verifier's image starts with
= users-unset-root users-image-of-a-number users-image-of-a-name test-sh-in-the-images-workdir
Never as [agent].user
= users-never-the-agents users-record-is-the-images
Without a record of that user, and with [agent].user set, it runs as root
= users-never-the-agents users-no-record-is-root
A numeric USER of the image runs test.sh as that uid
= users-image-of-a-number image-on-record-env-and-workdir
[verifier].user is used as written: a number is an integer, not a text
= users-number-as-text users-number-without-an-entry users-unknown
A user with a group is refused
= users-name-and-group

# Image entrypoint
With the image's configuration on record the seed starts its ENTRYPOINT with a CMD that sleeps, beside the sandbox
= image-entrypoint-runs image-entrypoint-user-and-place
Then it waits for the image's HEALTHCHECK
= image-checks-in-order image-checks-image-waits image-checks-image-fails
And, as at every seed, for [environment.healthcheck]
= image-checks-in-order image-checks-third-attempt image-checks-retries-spent image-checks-retries-0
= image-checks-start-period
An entrypoint that exits non-zero fails the seed
= image-entrypoint-fails-at-seed image-entrypoint-killed-at-seed image-entrypoint-cannot-start
One that dies during the rollout masks the sample with harbor:entrypoint_failed
= image-entrypoint-dies-beside-agent image-entrypoint-dies-beside-test image-entrypoint-dies-beside-hook
Its output is kept as entrypoint-stdout.txt
= image-entrypoint-runs
A separate verifier's is kept as verifier-entrypoint-stdout.txt
= tests/conformance/test_separate.py::test_both_sandboxes_keep_their_logs_and_the_output_of_their_entrypoints
ENTRYPOINT [] turns it off
= image-entrypoint-turned-off
A prebuilt docker_image has no record: its ENTRYPOINT and HEALTHCHECK do not run
= image-entrypoint-not-of-prebuilt
They do when a pull-mode Dockerfile FROM that image sits beside it
= image-entrypoint-beside-docker-image
The main of a Compose task runs both, from the record of every service image
= later: COMPOSE
"""
"""`#`: a section. Then sentences, each followed by `=` and what proves it: ids of rows and path::function, or `later:`
and what it waits for. Both may go over several lines.
"""

LATER = "later:"


def _read(text: str) -> Iterator[Sentence]:
    section = ""
    said: list[str] = []
    proofs: list[str] = []
    for line in [*text.strip().splitlines(), "#"]:
        if proofs and not line.startswith("="):
            yield _sentence(section, " ".join(said), proofs)
            said, proofs = [], []
        match line[:2]:
            case "# " | "#":
                section = line[2:]
            case "= ":
                proofs += line[2:].split()
            case _ if line:
                said.append(line)


def _sentence(section: str, says: str, proofs: list[str]) -> Sentence:
    if proofs[0] == LATER:
        return Sentence(section, says, later=Later[proofs[1]])
    tests = tuple(each for each in proofs if "::" in each)
    return Sentence(section, says, tuple(each for each in proofs if "::" not in each), tests)


SENTENCES: tuple[Sentence, ...] = tuple(_read(TEXT))
