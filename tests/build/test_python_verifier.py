"""build/python_verifier.py: what goes to /tests, in which order."""

import json
from dataclasses import replace

import pytest
from tests.decide import worlds

from taskfold import sandbox
from taskfold.build import phases, python_verifier
from taskfold.contract.folder import MemoryFolder
from taskfold.contract.task import Grader
from taskfold.protocol.phase import Reset, Unpack, User

FILES = {
    "task.toml": "x",
    "tests/test.sh": "theirs",
    "tests/verifier.py": "verify = 1",
    "tests/scoring.py": "s",
    "tests/inner/.ng": "i",
    "dataset/verifier.py": "verify = 2",
    "dataset/settings.json": "{}",
}
SHIM = set(sandbox.FILES) | {".ng/task_data.json"}


def unpacked(grader: Grader, files=FILES, *, data=None, response=None) -> list[dict[str, bytes]]:
    """The archives, in order."""
    task = replace(worlds.TASK, grader=grader, data=data)
    snapshot = MemoryFolder({path: (text.encode(), False) for path, text in files.items()})
    found = [part(snapshot) for part in python_verifier.parts(task, response)]
    return [{entry.path: folder.read(entry.path) for entry in folder.entries()} for folder in found]


def test_a_task_with_a_test_sh_gets_its_tests_and_no_shim():
    files = {path.removeprefix("tests/"): text.encode() for path, text in FILES.items() if path.startswith("tests/")}
    assert unpacked(Grader.TEST_SH) == [files]


def test_a_python_verifier_gets_the_shim_over_its_tests():
    tests, shim = unpacked(Grader.PYTHON)
    assert set(tests) == {"verifier.py", "scoring.py", "inner/.ng"}
    assert set(shim) == SHIM
    assert shim["test.sh"] == sandbox.FILES["test.sh"]


@pytest.mark.parametrize("path", ["tests/.ng/verifier.py", "tests/.ng/response.json", "tests/.ng", "tests/test.sh/x"])
def test_nothing_of_the_task_is_where_the_shim_goes(path):
    tests, shim = unpacked(Grader.PYTHON, {"tests/verifier.py": "v", path: "theirs"})
    assert set(tests) == {"verifier.py"}
    assert set(shim) == SHIM


def test_of_a_dataset_its_verifier_goes_along_and_nothing_beside_it():
    (shim,) = unpacked(Grader.DATASET)
    assert set(shim) == SHIM | {".ng/verifier.py"}
    assert shim[".ng/verifier.py"] == b"verify = 2"


@pytest.mark.parametrize("grader", [Grader.PYTHON, Grader.DATASET])
@pytest.mark.parametrize(("data", "written"), [(None, {}), ({"a": "ß", "n": None}, {"a": "ß", "n": None})], ids=str)
def test_the_tasks_fields_go_along(grader, data, written):
    assert json.loads(unpacked(grader, data=data)[-1][".ng/task_data.json"]) == written


@pytest.mark.parametrize("grader", [Grader.PYTHON, Grader.DATASET])
def test_the_response_goes_along_when_there_is_one(grader):
    response = {"output": ["\ud800"]}
    assert json.loads(unpacked(grader, response=response)[-1][".ng/response.json"]) == response
    assert ".ng/response.json" not in unpacked(grader)[-1]


@pytest.mark.parametrize("grader", list(Grader))
def test_verify_unpacks_each_archive_after_the_reset_and_before_the_transcript(grader):
    task = replace(worlds.TASK, grader=grader)
    found = phases.Sandbox(worlds.run(worlds.running()), task, None, User(uid=1000))
    prepare = list(phases.verify(found, worlds.verifier(), "1" * 32, {}).prepare)
    unpacks = [op.path for op in prepare if isinstance(op, Unpack)]
    assert unpacks == ["/tests"] * len(python_verifier.parts(task)) + ["/logs/agent"]
    assert prepare[0] == Reset("/tests")


def test_the_files_of_the_sandbox_are_those_of_the_package():
    assert sandbox.FILES["test.sh"].startswith(b"#!/bin/bash\n")
    assert set(sandbox.FILES) == {
        "test.sh",
        ".ng/run_verifier.py",
        ".ng/nemo_gym/__init__.py",
        ".ng/nemo_gym/verifiers/__init__.py",
        ".ng/nemo_gym/verifiers/files.py",
    }
