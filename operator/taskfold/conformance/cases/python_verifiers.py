"""Python verifiers: which one grades, what `verify` gets and may return, and what it costs when it goes wrong."""

from __future__ import annotations

from typing import Any

from taskfold.conformance.case import NOP, PYTHON_IMAGE, TOML, Case, Expect, Need, counted, rewarded, script, task

SEED = "seed: Python verifiers"
SHARED_CODE = "seed: Shared verifier code"
TEST_IMAGES = frozenset({Need.TEST_IMAGES})
OWN = "tests/verifier.py"
TASK = "tasks/one/"
"""Where the task is in a dataset."""


def missing(*says: str, **more: Any) -> Expect:
    """0, because the verifier left no reward."""
    return counted("harbor:missing_reward", "RewardMissing", says=says, **more)


def graded(verifier: str, *, toml: str = TOML, **more: str) -> dict[str, str]:
    """A task with this tests/verifier.py."""
    return task(toml=toml, **{OWN: verifier, **more})


def of_image(image: str) -> str:
    return TOML.replace(PYTHON_IMAGE, f"docker.io/taskfold-test/{image}:1")


def in_dataset(verifier: str, **files: str) -> dict[str, str]:
    """A dataset of one task, with this verifier.py at its root."""
    inside = {TASK + path: content for path, content in task().items()}
    return {"dataset.toml": "", "verifier.py": verifier, **inside, **files}


EXAMPLE = """import sys
from pathlib import Path

from nemo_gym.verifiers.files import read_text


def verify(workspace: Path, task_data: dict) -> float:
    assert sys.version_info[:2] == {version}, sys.version
    answer = read_text(workspace, "answer.txt")
    return float(answer is not None and answer.strip() == task_data["answer"])
"""
NEWEST, OLDEST = EXAMPLE.replace("{version}", "(3, 13)"), EXAMPLE.replace("{version}", "(3, 8)")
FIELDS = '{"answer": "42"}'
ANSWERS = script("echo 42 > answer.txt; printf 'It is 42.' > /logs/agent/response.txt")

FOUR = """from pathlib import Path


def verify(workspace, /, task_data, *, state, **others):
    assert (workspace, type(workspace)) == (Path("/app"), type(Path())), workspace
    assert task_data == {"answer": "42"}, task_data
    assert state == {"workspace": Path("/app")}, state
    assert others["response"]["output"][-1]["content"][0]["text"] == "It is 42.", others
    assert list(others) == ["response"], others
    return 1
"""

HELPERS = """from nemo_gym.verifiers import exact_match, final_text, numeric_match
from nemo_gym.verifiers.files import file_exists, read_text, text_file_equals


def verify(workspace, response):
    return {
        "reward": 1,
        "final_text": final_text(response) == "It is 42.",
        "exact_match": exact_match(response, "IT IS 42. ", ignore_case=True),
        "numeric_match": numeric_match(response, 42),
        "file_exists": file_exists(workspace, "answer.txt"),
        "read_text": read_text(workspace, "answer.txt") == "42",
        "whole": read_text(workspace, "answer.txt", strip_trailing_newline=False) == "42\\n",
        "text_file_equals": text_file_equals(workspace, "answer.txt", "42"),
        "outside": read_text(workspace, "../etc/passwd") is None and not file_exists(workspace, "/etc/passwd"),
        "by_link": read_text(workspace, "link") is None,
    }
"""
HELPED = [
    "reward", "final_text", "exact_match", "numeric_match", "file_exists", "read_text", "whole", "text_file_equals",
    "outside", "by_link",
]  # fmt: skip

SELECTION = (
    Case(
        "python-verifier",
        "a tests/verifier.py grades: verify gets the arguments it declares, and returns the reward; on Python 3.13",
        SEED,
        graded(NEWEST, **{"task_data.json": FIELDS}),
        ANSWERS,
        rewarded("1", rewards={"reward": 1}, components=()),
    ),
    Case(
        "python-3-8",
        "Python 3.8 is new enough",
        SEED,
        graded(OLDEST, toml=of_image("python3.8"), **{"task_data.json": FIELDS}),
        ANSWERS,
        rewarded("1"),
        needs=TEST_IMAGES,
    ),
    Case(
        "python-beside-test-sh",
        "tests/test.sh wins, and a verifier.py beside it is an ordinary helper",
        SEED,
        task(
            '[ ! -e /tests/.ng ] && PYTHONPATH=/tests python3 -c "import verifier; print(verifier.SCORE)"'
            " > /logs/verifier/reward.txt",
            **{OWN: "SCORE = 0.75\ndef verify():\n    return 1\n"},
        ),
        NOP,
        rewarded("0.75"),
    ),
    Case(
        "python-of-the-dataset",
        "a verifier.py at the dataset's root grades a task without tests/: only that one file is uploaded",
        f"{SEED}; {SHARED_CODE}",
        in_dataset(
            "import os\n"
            "from nemo_gym.verifiers.files import text_file_equals\n"
            "def verify(workspace):\n"
            "    assert sorted(os.listdir('/tests')) == ['.ng', 'test.sh'], os.listdir('/tests')\n"
            "    try:\n"
            "        import scoring\n"
            "    except ImportError:\n"
            "        return text_file_equals(workspace, 'answer.txt', '42')\n",
            **{"scoring.py": ""},
        ),
        ANSWERS,
        rewarded("1"),
        spec={"task": {"path": "tasks/one"}},
    ),
    Case(
        "python-of-the-task-first",
        "a task with tests/ is not graded by the dataset's verifier.py, and does not get it",
        SEED,
        in_dataset(
            "def verify():\n    return 0\n",
            **{TASK + OWN: "import os\ndef verify():\n    return not os.path.exists('/tests/.ng/verifier.py')\n"},
        ),
        NOP,
        rewarded("1"),
        spec={"task": {"path": "tasks/one"}},
    ),
    Case(
        "python-with-modules",
        "it can import other modules from its tests/ folder, but no nemo_gym and no shim of the task's own",
        SHARED_CODE,
        graded(
            "import scoring.deep\n"
            "from nemo_gym.verifiers.files import text_file_equals\n"
            "def verify(workspace):\n"
            "    return text_file_equals(workspace, 'answer.txt', scoring.deep.ANSWER)\n",
            **{
                "tests/scoring/deep.py": "ANSWER = '42'\n",
                "tests/nemo_gym/__init__.py": "raise SystemExit('not this one')\n",
                "tests/.ng/run_verifier.py": "raise SystemExit('not this one')\n",
                "tests/.ng/verifier.py": "def verify():\n    return 0\n",
            },
        ),
        ANSWERS,
        rewarded("1"),
    ),
)

ARGUMENTS = (
    Case(
        "python-arguments",
        "workspace, task_data, response and state come by position, by name, keyword-only and through **kwargs",
        SEED,
        graded(FOUR, **{"task_data.json": FIELDS}),
        ANSWERS,
        rewarded("1"),
    ),
    Case(
        "python-arguments-of-a-row",
        "task_data are the fields of the row where the folder has none; **kwargs has no response where there is none",
        SEED,
        graded("def verify(**kw):\n    return len(kw) == 3 and kw['task_data'] == {'n': [1, None]}\n"),
        NOP,
        rewarded("1"),
        spec={"task": {"data": {"n": [1, None]}}},
    ),
    Case(
        "python-argument-that-is-none",
        "a verify that requires an argument the runner does not supply writes no reward, and is told which",
        SEED,
        graded("def verify(workspace, answer):\n    return 1\n"),
        NOP,
        missing("verify requires `answer`", "workspace, task_data, response and state"),
    ),
    Case(
        "python-partial",
        "a functools.partial of a helper is a verify",
        SHARED_CODE,
        graded(
            "from functools import partial\n"
            "from nemo_gym.verifiers.files import text_file_equals\n"
            "verify = partial(text_file_equals, path='answer.txt', content='42')\n"
        ),
        ANSWERS,
        rewarded("1"),
    ),
    Case(
        "python-async",
        "an async def verify is awaited",
        SEED,
        graded("import asyncio\nasync def verify():\n    await asyncio.sleep(0)\n    return 0.5\n"),
        NOP,
        rewarded("0.5"),
    ),
    Case(
        "python-helpers",
        "the helpers are there without any package in the image; those for files read only inside the workspace",
        f"{SEED}; C21 to C23",
        graded(HELPERS),
        script("echo 42 > answer.txt; ln -s /etc/passwd link; printf 'It is 42.' > /logs/agent/response.txt"),
        rewarded("1", rewards=dict.fromkeys(HELPED, 1.0)),
    ),
)

RETURNED = (
    Case(
        "python-reward-and-metrics",
        "a dict with the key reward is a score with metrics; booleans are 1 and 0",
        f"{SEED}; C6",
        graded("def verify():\n    return {'reward': 0.5, 'tests': 7, 'style': False}\n"),
        NOP,
        rewarded("0.5", rewards={"reward": 0.5, "tests": 7, "style": 0}, components=()),
    ),
    Case(
        "python-one-key",
        "without reward, the one key of the dict is the score",
        SEED,
        graded("def verify():\n    return {'accuracy': 0.75}\n"),
        NOP,
        rewarded("0.75", rewards={"accuracy": 0.75}),
    ),
    Case(
        "python-several-keys",
        "several keys without reward are not summed: there is no reward",
        SEED,
        graded("def verify():\n    return {'style': 0.5, 'tests': 0.5}\n"),
        NOP,
        missing("without `reward`", "'style', 'tests'"),
    ),
    Case(
        "python-returns-no-number",
        "a verify that returns anything else writes no reward, even if it has written one itself",
        f"{SEED}; C6",
        graded("def verify():\n    open('/logs/verifier/reward.txt', 'w').write('1')\n    return '1'\n"),
        NOP,
        missing("'1', which is of type str"),
    ),
    Case(
        "python-returns-nan",
        "a number that is not finite is no reward",
        SEED,
        graded("def verify():\n    return float('nan')\n"),
        NOP,
        missing("verify returned nan"),
    ),
)

ENDS = (
    Case(
        "python-raises",
        "a verify that raises writes no reward; the error is told with a traceback that starts in the verifier",
        SEED,
        graded("def verify():\n    raise ValueError('the answer is missing')\n"),
        NOP,
        missing('File "/tests/verifier.py", line 2, in verify', "ValueError: the answer is missing"),
    ),
    Case(
        "python-exits",
        "sys.exit is no reward either, whatever the code",
        SEED,
        graded("import sys\ndef verify():\n    sys.exit(0)\n"),
        NOP,
        missing("called sys.exit(0)", status={"verifier.returnCode": 1}),
    ),
    Case(
        "python-without-verify",
        "a verifier.py without verify is named, with what it should hold",
        SEED,
        graded("def check():\n    return 1\n"),
        NOP,
        missing("/tests/verifier.py defines no verify"),
    ),
    Case(
        "python-none-in-the-image",
        "without python3 or python the run scores 0, is not masked, and says what was looked for",
        SEED,
        graded("def verify():\n    return 1\n", toml=of_image("no-python")),
        NOP,
        missing("needs Python 3.8 or newer", "neither python3 nor python", status={"verifier.returnCode": 127}),
        needs=TEST_IMAGES,
    ),
    Case(
        "python-over-its-limit",
        "it runs under the same timeout as a test.sh",
        SEED,
        graded(
            "import threading\ndef verify():\n    threading.Event().wait()\n",
            toml=TOML + "[verifier]\ntimeout_sec = 4\n",
        ),
        NOP,
        counted("harbor:verifier_timeout", "VerifierTimedOut", status={"verifier.timedOut": True}),
    ),
    Case(
        "python-that-leaves-things-behind",
        "threads, children and a closed stdout hold nothing up: the reward is there when verify returns",
        SEED,
        graded(
            "import subprocess, sys, threading\n"
            "def verify():\n"
            "    threading.Thread(target=threading.Event().wait).start()\n"
            "    subprocess.Popen(['sleep', '600'])\n"
            "    sys.stdout.close()\n"
            "    return 1\n"
        ),
        NOP,
        rewarded("1", status={"verifier.returnCode": 0}),
    ),
)

SURROUNDINGS = (
    Case(
        "python-user",
        "it runs as [verifier].user, one without a name or a home included, and writes nothing beside its reward",
        SEED,
        graded(
            "import os\n"
            "from nemo_gym.verifiers.files import read_text\n"
            "import scoring\n"
            "def verify(workspace):\n"
            "    assert os.getuid() == 54321 and not os.access('/tests', os.W_OK)\n"
            "    return {'reward': 1, 'found': len(os.listdir('/tests'))}\n",
            toml=TOML + "[verifier]\nuser = 54321\n",
            **{"tests/scoring.py": ""},
        ),
        NOP,
        rewarded("1", rewards={"reward": 1, "found": 4}),
        needs=frozenset({Need.ROOT}),
    ),
    Case(
        "python-variables",
        "it sees [verifier].env; PYTHONPATH adds modules, and stands in for none",
        "seed: Environment variables and secrets",
        graded(
            "import colorsys, os, agents_own\n"
            "def verify(workspace):\n"
            "    assert not hasattr(colorsys, 'PLANTED') and str(workspace) == os.environ['PYTHONPATH']\n"
            "    return agents_own.PLANTED\n",
            toml=TOML + '[verifier]\nenv = { PYTHONPATH = "/app" }\n',
        ),
        script("echo PLANTED = 1 | tee colorsys.py > agents_own.py"),
        rewarded("1"),
    ),
    Case(
        "python-planted-modules",
        "what an agent plants in the working directory, in /tests and in the home folder neither runs nor is imported",
        f"{SEED}; C19",
        graded(
            "import colorsys, os, sys\n"
            "import nemo_gym.verifiers\n"
            "def verify(workspace, response=None):\n"
            "    assert str(workspace) not in sys.path and '' not in sys.path, sys.path\n"
            "    assert colorsys.__file__.startswith(sys.base_prefix) and response is None\n"
            "    assert nemo_gym.verifiers.__file__.startswith('/tests/.ng/')\n"
            "    return not os.path.exists('/tmp/planted')\n"
        ),
        script(
            'echo \'open("/tmp/planted", "w")\' > planted.py\n'
            "home=$HOME/.local/lib/python3.13/site-packages\n"
            "mkdir -p $home /tests/.ng\n"
            "cp planted.py $home/usercustomize.py\n"
            'echo \'import os; open("/tmp/planted", "w")\' > $home/planted.pth\n'
            "for name in colorsys os pathlib nemo_gym sitecustomize; do cp planted.py $name.py; done\n"
            "cp planted.py /tests/nemo_gym.py; cp planted.py /tests/.ng/verifier.py\n"
            "echo '{}' > /tests/.ng/response.json\n"
        ),
        rewarded("1"),
    ),
)

CASES = SELECTION + ARGUMENTS + RETURNED + ENDS + SURROUNDINGS
