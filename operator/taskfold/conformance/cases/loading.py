"""What a folder and the dataset around it mean before anything runs: dataset.toml, task_data.json, old spellings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taskfold.conformance.case import NOP, PYTHON_IMAGE, TOML, Case, facts, holds, refused, rewarded, task
from taskfold.conformance.cases.sandbox import CGROUP

ONE = "echo 1 > /logs/verifier/reward.txt\n"
DATASETS = "dataset.toml"
VERIFIER = "from pathlib import Path\n\n\ndef verify(workspace: Path, task_data: dict) -> float:\n    return {}\n"


def below(path: str, dataset: str | None, own: Mapping[str, str | bytes], **beside: str) -> dict[str, str | bytes]:
    """A source with this task folder at `path` and a dataset.toml at its top."""
    toml = {} if dataset is None else {"dataset.toml": dataset}
    return {**{f"{path}/{name}": content for name, content in own.items()}, **toml, **beside}


def at(path: str, **more: Any) -> dict[str, Any]:
    """The spec of a run of that task."""
    return {"task": {"path": path, **more}}


def graded(verifier: str, **files: str) -> dict[str, Any]:
    """A task folder with a Python verifier."""
    return task(None, **{"tests/verifier.py": verifier, **files})


OVERRIDES = """
[gym.tasks."fix.it".environment]
workdir = "/other"
memory_mb = 200
cpus = 1
env = { B = "dataset", C = "more" }
[gym.tasks.another.environment]
workdir = "/wrong"
[gym.defaults]
resource_multiplier = 1.5
"""

DATASET = (
    Case(
        "dataset-overrides-then-multipliers",
        "env adds to the task's, every other key replaces it; then the multiplier scales, rounding up",
        DATASETS,
        below(
            "tasks/fix.it",
            OVERRIDES,
            task(
                facts(
                    workdir='[ "$PWD" = /other ]',
                    env='[ "$A $B $C" = "task dataset more" ]',
                    limits=CGROUP % (300, 200_000),
                ),
                toml=TOML + 'memory_mb = 64\n[environment.env]\nA = "task"\nB = "task"\n',
            ),
        ),
        NOP,
        holds(),
        at("tasks/fix.it"),
    ),
    Case(
        "dataset-timeout-multiplier",
        "timeout_sec of the verifier counts times the dataset's timeout_multiplier",
        "seed: Reward files",
        below(
            "slow",
            "[gym.defaults]\ntimeout_multiplier = 600\n",
            task("sleep 1\n" + ONE, toml=TOML + "[verifier]\ntimeout_sec = 0.1\n"),
        ),
        NOP,
        rewarded(),
        at("slow"),
    ),
    Case(
        "dataset-nearest",
        "the nearest dataset.toml above the task counts",
        DATASETS,
        below(
            "inner/one",
            '[gym.tasks.one.environment]\nworkdir = "/far"\n',
            task(facts(workdir='[ "$PWD" = /near ]')),
            **{"inner/dataset.toml": '[gym.tasks.one.environment]\nworkdir = "/near"\n'},
        ),
        NOP,
        holds(),
        at("inner/one"),
    ),
    Case(
        "dataset-unknown-key",
        "a key of [gym] that is not known is an error that names file, key and the near one",
        DATASETS,
        below("one", "[gym.defaults]\ntimeout_multiplyer = 2\n", task(ONE)),
        NOP,
        refused(
            "InvalidTask",
            "dataset.toml: gym.defaults.timeout_multiplyer",
            "timeout_multiplier",
            stage="admission",
            absent=("podName",),
        ),
        at("one"),
    ),
    Case(
        "dataset-unknown-task",
        "a table for a task that is not there is no error of another task's run",
        DATASETS,
        below("one", "[gym.tasks.gone.environment]\ncpus = 64\n", task(ONE)),
        NOP,
        rewarded(),
        at("one"),
    ),
    Case(
        "dataset-restricts-the-network",
        "a network restriction in an override is refused like one in the task's own table",
        "seed: Shared and separate verification",
        below("one", '[gym.tasks.one.environment]\nnetwork_mode = "no-network"\n', task(ONE)),
        NOP,
        refused("InvalidTask", "dataset.toml: gym.tasks.one.environment.network_mode", absent=("podName",)),
        at("one"),
    ),
    Case(
        "dataset-harbors-tables",
        "what Harbor's own tables say is no concern of a run",
        DATASETS,
        below("one", '[dataset]\nname = "no name"\n[[tasks]]\ndigest = 1\n[gym]\nverified = true\n', task(ONE)),
        NOP,
        rewarded(),
        at("one"),
    ),
    Case(
        "dataset-inputs-no-grader-output",
        "an input is no grader output such as reward.json",
        "seed: Sidecar inputs",
        below("one", '[gym.tasks.one.verifier]\ninputs = ["reward.json"]\n', task(ONE)),
        NOP,
        refused("InvalidTask", "gym.tasks.one.verifier.inputs[0]", "reward.json", absent=("podName",)),
        at("one"),
    ),
    Case(
        "dataset-inputs-plain-names",
        "an input is a plain top-level name: no separator, no pattern",
        "seed: Sidecar inputs",
        below("one", '[gym.tasks.one.verifier]\ninputs = ["a/b", "*.jsonl"]\n', task(ONE)),
        NOP,
        refused("InvalidTask", "inputs[0]", "path separator", absent=("podName",)),
        at("one"),
    ),
    Case(
        "dataset-inputs-separate",
        "inputs with separate verification are refused",
        "seed: Sidecar inputs",
        below(
            "one",
            '[gym.tasks.one.verifier]\ninputs = ["actions.jsonl"]\n',
            task(ONE, toml=TOML + '[verifier]\nenvironment_mode = "separate"\n'),
        ),
        NOP,
        refused("InvalidTask", "gym.tasks.one.verifier.inputs", "shared", absent=("podName",)),
        at("one"),
    ),
    Case(
        "dataset-folder-of-the-task",
        "what a task's own folder has under dataset/ grades nothing and sets nothing",
        "C25",
        task(
            None,
            **{
                "dataset/verifier.py": VERIFIER.format(1),
                "dataset/settings.json": '{"environment": {"workdir": "/x"}}',
            },
        ),
        NOP,
        refused("InvalidTask", "tests/", absent=("podName",)),
    ),
)

FIELDS = '{"answer": "42", "n": [1.0, {"deep": null}], "é": true}'

DATA = (
    Case(
        "row-equals-task-data",
        "a row that says the same as task_data.json is taken, in whatever order, and as whatever kind of number",
        "C35",
        graded(VERIFIER.format("task_data['n'][0] == 1 and task_data['é'] is True"), **{"task_data.json": FIELDS}),
        NOP,
        rewarded(),
        {"task": {"data": {"é": True, "n": [1, {"deep": None}], "answer": "42"}}},
    ),
    Case(
        "row-differs-from-task-data",
        "a row whose fields differ from task_data.json is refused, and not retried",
        "seed: Typed task fields; C35",
        graded(VERIFIER.format(1), **{"task_data.json": FIELDS}),
        NOP,
        refused("InvalidTask", "spec.task.data", '"more", "n"', absent=("podName",)),
        {"task": {"data": {"é": True, "n": [2, {"deep": None}], "answer": "42", "more": 1}}},
    ),
    Case(
        "row-with-a-reserved-field",
        "fields that begin with _ng_ are reserved",
        "seed: Typed task fields",
        graded(VERIFIER.format(1)),
        NOP,
        refused("InvalidTask", "_ng_digest", "reserved", absent=("podName",)),
        {"task": {"data": {"_ng_digest": "x"}}},
    ),
    Case(
        "task-data-no-object",
        "task_data.json is a JSON object",
        "seed: Typed task fields",
        graded(VERIFIER.format(1), **{"task_data.json": "[1]"}),
        NOP,
        refused("InvalidTask", "task_data.json", "JSON object", absent=("podName",)),
    ),
    Case(
        "task-data-not-finite",
        "a number of task_data.json is finite",
        "task_data.json",
        graded(VERIFIER.format(1), **{"task_data.json": '{"a": [NaN]}'}),
        NOP,
        refused("InvalidTask", "task_data.json", "not finite", absent=("podName",)),
    ),
    Case(
        "task-data-twice",
        "a field that stands twice is a warning, and the last one counts",
        "task_data.json",
        graded(VERIFIER.format("task_data['a']"), **{"task_data.json": '{"a": 0, "a": 1}'}),
        NOP,
        rewarded(warns=('"a" stands twice',)),
    ),
)

OLD = f"""
version = "1.0"
multi_step_reward_mode = "mean"
[environment]
docker_image = "{PYTHON_IMAGE}"
workdir = "/app"
cpus = 1.5
memory = "0.5G"
allow_internet = true
"""

SPELLINGS = (
    Case(
        "mode-of-the-run-wins",
        "spec.verifier.mode wins over the task's, and is decided before anything is refused",
        "spec.verifier; the effective mode",
        task(ONE, toml=TOML + '[verifier]\nenvironment_mode = "separate"\n'),
        NOP,
        rewarded(status={"verifier.mode": "shared"}),
        {"verifier": {"mode": "shared"}},
    ),
    Case(
        "toml-old-spellings",
        "deprecated spellings are read as today's, without a warning",
        "task.toml: keys",
        task(facts(limits=CGROUP % (512, 150_000)), toml=OLD),
        NOP,
        holds(absent=("warnings",)),
    ),
    Case(
        "toml-old-contradicts-new",
        "an old spelling that contradicts the new one beside it is refused",
        "task.toml: keys",
        task(ONE, toml=TOML + 'memory = "1G"\nmemory_mb = 512\n'),
        NOP,
        refused("InvalidTask", "environment.memory", "contradicts memory_mb", absent=("podName",)),
    ),
    Case(
        "toml-every-problem-at-once",
        "a load error names file, key, value and remedy, and how many others there are",
        "task folder: load errors",
        task(ONE, toml=TOML + "[verifier]\ntimeout_sec = -1\n[agent]\nuser = true\n"),
        NOP,
        refused("InvalidTask", "agent.user = true", "Write a name", absent=("podName",)),
    ),
    Case(
        "toml-multi-step-without-instruction",
        "a step needs an instruction.md and a test.sh of its own or of the task",
        "multi-step tasks: folder",
        task(None, toml=TOML + '[[steps]]\nname = "one"\n', **{"steps/one/workdir/x": ""}),
        NOP,
        refused("InvalidTask", "steps/one/", "is missing", absent=("podName",)),
    ),
    Case(
        "toml-multi-step-python",
        "no Python verifier grades a step",
        "seed: Python verifiers",
        task(
            None,
            toml=TOML + '[[steps]]\nname = "one"\n',
            **{"steps/one/instruction.md": "Do it.\n", "tests/verifier.py": VERIFIER.format(1)},
        ),
        NOP,
        refused("InvalidTask", "tests/verifier.py", "single-step tasks only", absent=("podName",)),
    ),
    Case(
        "toml-step-name",
        "a step has the name of a folder of letters, digits, dot, dash and underscore",
        "multi-step tasks: names",
        task(ONE, toml=TOML + '[[steps]]\nname = "../one"\n'),
        NOP,
        refused("InvalidTask", "steps[0].name", absent=("podName",)),
    ),
)

CASES: tuple[Case, ...] = (*DATASET, *DATA, *SPELLINGS)
