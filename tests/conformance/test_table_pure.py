"""What of the conformance table needs no cluster: its rows are well-formed, and their folders mean what they say."""

import base64
import re
from collections.abc import Mapping
from typing import Any

import pytest

from taskfold.api import taskrun
from taskfold.api.reasons import Reason
from taskfold.api.status import reward_text
from taskfold.conformance import differences, manifests, table
from taskfold.conformance.case import Case, Expect
from taskfold.contract import artifacts, dialect, effective, environment, errors, failures, folder, loader, rewards
from taskfold.contract.rewards import FileState, RewardFile
from taskfold.contract.task_toml import VerifierMode

CASES = table.all_cases()
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
REFUSED = {Reason.INVALID_TASK, Reason.UNSUPPORTED_FIELD}
LITERAL = re.compile(r"#!/bin/bash\n(cp /tests/reward\.(txt|json) /logs/verifier/\n)+")
"""A test.sh that leaves these very files as its reward."""
ONCE_IT_RUNS = {
    "oracle-without-a-solution": "the folder is whole; only this agent needs more of it",
    "harbor-reference-answer": "so it is where answer.md is no solution",
}
"""Folders that load, of runs that are refused as an invalid task all the same."""

by_case = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


def test_the_table_has_its_size() -> None:
    assert len(CASES) >= 150


def test_no_two_rows_have_the_same_id() -> None:
    ids = [case.id for case in CASES]
    assert sorted(ids) == sorted(set(ids))


@by_case
def test_a_row_is_well_formed(case: Case) -> None:
    assert LABEL.fullmatch(case.id)
    assert case.proves
    assert "\n" not in case.proves
    assert case.source
    looked_at = {name for name, value in vars(case.expect).items() if value not in (None, (), {}, False)}
    assert looked_at > {"phase"}, "a row that expects a phase alone proves little"


@by_case
def test_a_row_names_its_source_as_a_reader_can_find_it(case: Case) -> None:
    """A section of the contract's page, a decision by its number, a field or a key; no paper that is not here."""
    assert not re.search(r"research|DESIGN|CONTRACT|gym-contract", case.source)


def test_every_kind_of_failure_that_is_emitted_has_a_row() -> None:
    emitted = {kind for kind in failures.FailureKind if kind.emitted}
    assert emitted <= {case.expect.kind for case in CASES}


def test_two_rows_that_name_an_object_mean_the_same_one() -> None:
    named: dict[tuple[str, str], str] = {}
    for case in CASES:
        for body in case.objects:
            assert named.setdefault(manifests.key(body), manifests.text(body)) == manifests.text(body), case.id


@by_case
def test_a_rows_run_is_one_that_the_schema_knows(case: Case) -> None:
    made = manifests.order(case, f"{case.id}-abcde", "abcde").run
    again = taskrun.TaskRunSpec.model_validate(made["spec"]).wire()
    assert set(made["spec"]) <= set(again)


# -- folders -------------------------------------------------------------------------------------------------------


def task_of(case: Case) -> folder.Folder:
    """The effective folder, as the operator makes it of the run's source."""
    files = {
        path.removesuffix(manifests.EXECUTABLE): (
            content.encode() if isinstance(content, str) else content,
            path.endswith(manifests.EXECUTABLE),
        )
        for path, content in case.files.items()
    }
    whole = folder.MemoryFolder(files)
    source = case.spec.get("task", {})
    path = source.get("path", "").strip("/")
    own = folder.subtree(whole, path) if path else whole
    root = effective.root_of(whole, path) if path else None
    within = effective.read_root(whole, root) if root is not None else None
    return effective.compose(own, name=path.rpartition("/")[2], within=within, row=source.get("data"))


def name_of(case: Case) -> str:
    """Of the task's folder inside its source."""
    return str(case.spec.get("task", {}).get("path", "")).rpartition("/")[2]


def terms_of(case: Case) -> loader.Terms:
    """What the row's run itself says about how its folder is to be read."""
    mode = case.spec.get("verifier", {}).get("mode")
    return loader.Terms(VerifierMode(mode) if mode else None, dialect.RULES[case.spec.get("dialect", "gym")])


def problem_of(case: Case) -> errors.TaskError | None:
    """Why the operator would refuse the folder, or miss a variable of it."""
    try:
        loaded = loader.load(task_of(case), task_id="task", name=name_of(case), terms=terms_of(case))
        artifacts.with_further(loaded, further_of(case))
        host, secrets = variables(case, "environmentFrom"), variables(case, "secretsFrom")
        environment.resolve_task(loaded.config, host, secrets=secrets, solution="oracle" in case.agent)
    except errors.TaskError as error:
        return error
    return None


def further_of(case: Case) -> list[taskrun.Artifact]:
    """The artifacts that the row's run adds."""
    return [taskrun.Artifact.model_validate(each) for each in case.spec.get("artifacts", ())]


def variables(case: Case, field: str) -> dict[str, str]:
    """What the row's own objects give."""
    objects = {manifests.key(body): body for body in case.objects}
    found: dict[str, str] = {}
    for source in case.spec.get(field, ()):
        reference = source.get("configMapRef") or source.get("secretRef") or source
        kind = "ConfigMap" if "configMapRef" in source else "Secret"
        body = objects.get((kind, reference["name"]), {})
        data = {**body.get("data", {}), **body.get("stringData", {})}
        found |= {source.get("prefix", "") + name: str(value) for name, value in data.items()}
    return found


@by_case
def test_a_folder_loads_or_is_refused_as_the_row_says(case: Case) -> None:
    problem = problem_of(case)
    reason = case.expect.reason
    refused = reason in REFUSED | {Reason.MISSING_VARIABLE} and case.id not in ONCE_IT_RUNS
    if not refused:
        assert problem is None, str(problem)
        return
    assert problem is not None
    message = " ".join(str(each) for each in (problem, *problem.others))
    assert [text for text in case.expect.says if text not in message] == []


def test_what_is_refused_once_it_runs_are_rows_of_the_table() -> None:
    assert set(ONCE_IT_RUNS) <= {case.id for case in CASES}


# -- reward files --------------------------------------------------------------------------------------------------


def judged(case: Case) -> Mapping[str, Any]:
    """The part of a status that the reward files of a literal test.sh alone decide."""

    def file(end: str) -> RewardFile:
        content = case.files.get(f"tests/reward.{end}")
        if content is None:
            return RewardFile(FileState.MISSING)
        data = content.encode() if isinstance(content, str) else content
        too_large = len(data) > {"json": rewards.JSON_LIMIT, "txt": rewards.TXT_LIMIT}[end]
        return RewardFile(FileState.TOO_LARGE if too_large else FileState.REGULAR, data)

    verdict = rewards.judge(file("json"), file("txt"), timed_out=False)
    status = {
        "phase": "Succeeded",
        "reward": reward_text(verdict.reward or 0),
        "rewards": verdict.rewards,
        "rewardComponents": list(verdict.components),
    }
    if verdict.kind is None:
        return status
    return status | {"failure": {"kind": verdict.kind, "message": verdict.message}}


LITERALS = [case for case in CASES if LITERAL.fullmatch(str(case.files.get("tests/test.sh", "")))]


def test_there_are_rows_with_literal_reward_files() -> None:
    assert len(LITERALS) >= 25


@pytest.mark.parametrize("case", LITERALS, ids=[case.id for case in LITERALS])
def test_a_literal_reward_file_is_judged_as_the_row_says(case: Case) -> None:
    expect = case.expect
    of_the_files = Expect(
        expect.phase,
        expect.reward,
        expect.kind,
        says=expect.says,
        rewards=expect.rewards,
        components=expect.components,
    )
    assert differences.differences(of_the_files, judged(case)) == ()


# -- manifests -----------------------------------------------------------------------------------------------------


def test_an_executable_file_travels_in_an_archive_and_other_folders_inline() -> None:
    case = next(case for case in CASES if any(path.endswith(manifests.EXECUTABLE) for path in case.files))
    order = manifests.order(case, "name", "abcde")
    (archive,) = [body for body in order.objects if "binaryData" in body]
    assert order.run["spec"]["task"]["configMap"] == {"name": archive["metadata"]["name"]}
    assert base64.b64decode(archive["binaryData"]["task.tar.gz"])[:2] == b"\x1f\x8b"
    assert "inline" in manifests.order(LITERALS[0], "name", "abcde").run["spec"]["task"]


def test_images_of_another_place_are_replaced_in_files_spec_and_expectation() -> None:
    place = manifests.Place((("python:3.13-slim", "mirror/python:1"),), "userns")
    case = Case(
        "a",
        "b",
        "c",
        {"task.toml": 'docker_image = "python:3.13-slim"', "data": b"python:3.13-slim"},
        {"script": {"run": "echo python:3.13-slim"}},
        Expect("Failed", says=("python:3.13-slim is absent",)),
    )
    made, placed = manifests.order(case, "name", "abcde", place), manifests.placed(case, place)
    assert "mirror/python:1" in made.run["spec"]["task"]["inline"]["files"]["task.toml"]
    assert made.run["spec"]["agent"]["script"]["run"] == "echo mirror/python:1"
    assert made.run["spec"]["security"] == {"profile": "userns"}
    assert placed.expect.says == ("mirror/python:1 is absent",)
    assert placed.files["data"] == b"python:3.13-slim"


def test_a_row_that_names_a_profile_keeps_it() -> None:
    case = Case("a", "b", "c", {}, {"nop": {}}, Expect("Failed"), {"security": {"profile": "root"}})
    made = manifests.order(case, "name", "abcde", manifests.Place(profile="userns"))
    assert made.run["spec"]["security"] == {"profile": "root"}
