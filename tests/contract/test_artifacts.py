"""What is taken out of the agent's sandbox."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.build import load, refusal, toml

from taskfold.contract import artifact_paths, artifacts, errors, steps
from taskfold.contract.artifacts import ALWAYS
from taskfold.contract.task import Artifact

IMPLICIT = Artifact(ALWAYS, "logs/artifacts")
STEPS = {"steps/a/instruction.md": "", "steps/b/instruction.md": ""}


@dataclass(frozen=True)
class Asked:
    """As spec.artifacts has them."""

    source: str
    destination: str | None = None
    exclude: tuple[str, ...] = ()


def taken(*lines: str) -> tuple[Artifact, ...]:
    return load(toml(*lines)).artifacts


@pytest.mark.parametrize(
    ("entry", "artifact"),
    [
        ('"/app"', Artifact("/app", "app")),
        ('"//app/./x//"', Artifact("/app/x", "app/x")),
        ('"report"', Artifact("report", "report")),
        ('"./a//b/"', Artifact("a/b", "a/b")),
        ('"."', Artifact(".", "workdir")),
        ('"/logs/agent"', Artifact("/logs/agent", "logs/agent")),
        ('"/testsuite"', Artifact("/testsuite", "testsuite")),
        ('{source = "/app", destination = "kept//./at/"}', Artifact("/app", "kept/at")),
        ('{source = "/app", exclude = ["*.o", "a/b"], service = "main"}', Artifact("/app", "app", ("*.o", "a/b"))),
    ],
)
def test_an_entry_is_normalised(entry, artifact):
    assert taken(f"artifacts = [{entry}]") == (IMPLICIT, artifact)


@pytest.mark.parametrize(
    ("source", "artifact"),
    [
        ("out", Artifact("/work/out", "out")),
        (".", Artifact("/work", "workdir")),
        ("/abs", Artifact("/abs", "abs")),
    ],
)
def test_a_relative_source_begins_where_the_task_says(source, artifact):
    assert taken('environment.workdir = "/work/"', f'artifacts = ["{source}"]') == (IMPLICIT, artifact)


@pytest.mark.parametrize("workdir", ["/", "/logs", "/.taskfold"])
def test_a_relative_source_that_becomes_a_protected_path_is_refused(workdir):
    source = {"/": "tests/x", "/logs": "verifier", "/.taskfold": "."}[workdir]
    error = refusal(toml(f'environment.workdir = "{workdir}"', f'artifacts = ["/a", "{source}"]'))
    assert (error.field, error.value, error.unsupported) == ("artifacts[1].source", source, False)
    assert "is not an artifact" in str(error)
    assert workdir in str(error)


@pytest.mark.parametrize(
    "source",
    ["/", "//", "/./", "/tests", "//tests/", "/tests/a", "/logs", "/logs/verifier", "/logs/./verifier/x", "/proc/1",
     "/sys", "/dev/shm", "/.taskfold/helper", "/a/../tests", "a/..", "..", ""],
)  # fmt: skip
def test_a_protected_source_is_refused(source):
    error = refusal(toml(f'artifacts = ["{source}"]'))
    assert (error.file, error.field, error.unsupported) == ("task.toml", "artifacts[0].source", False)
    assert error.remedy.endswith(".")


@pytest.mark.parametrize("destination", ["manifest.json", "./manifest.json", "manifest.json/", "manifest.json/a", ".",
                                         "a/../b", "/a", ""])  # fmt: skip
def test_a_destination_that_is_no_place_of_its_own_is_refused(destination):
    error = refusal(toml(f'artifacts = [{{source = "/a", destination = "{destination}"}}]'))
    assert error.field == "artifacts[0].destination"


@pytest.mark.parametrize("source", [ALWAYS, "/logs//artifacts/"])
def test_the_folder_of_artifacts_keeps_the_place_and_the_excludes_of_its_entry(source):
    found = taken(f'artifacts = ["/a", {{source = "{source}", exclude = ["*.o"]}}]')
    assert found == (Artifact("/a", "a"), Artifact(ALWAYS, "logs/artifacts", ("*.o",)))


def test_a_part_of_that_folder_does_not_declare_it():
    found = taken(f'artifacts = ["{ALWAYS}/x"]')
    assert found == (IMPLICIT, Artifact(f"{ALWAYS}/x", "logs/artifacts/x"))
    assert artifacts.claims(found).kept == (IMPLICIT,)


def test_a_steps_artifacts_come_after_the_tasks():
    task = load(toml('artifacts = ["/t"]', 'steps = [{name = "a", artifacts = ["/s"]}, {name = "b"}]') | STEPS)
    one, other, all_steps = Artifact("/t", "t"), Artifact("/s", "s"), task.steps
    assert task.artifacts == (IMPLICIT, one)
    assert [step.artifacts for step in all_steps] == [(IMPLICIT, one, other), (IMPLICIT, one)]
    assert steps.turn(task, 0).artifacts == (IMPLICIT, one, other)


def test_there_may_not_be_more_than_a_sandbox_can_give_away():
    many = ", ".join(f'"/a{number}"' for number in range(artifacts.MOST))
    assert len(taken(f"artifacts = [{many}]")) == artifacts.MOST + 1
    error = refusal(toml(f"artifacts = [{many}]", 'steps = [{name = "a", artifacts = ["/b"]}]') | STEPS)
    assert (error.field, error.unsupported) == ("artifacts", False)


# what a run adds


def test_a_runs_own_artifacts_come_last_after_every_step_too():
    task = load(toml('artifacts = ["/t"]', 'steps = [{name = "a", artifacts = ["/s"]}, {name = "b"}]') | STEPS)
    more = artifacts.with_further(task, [Asked("/r//x", exclude=("*.o",)), Asked("/q", "kept")])
    last = (Artifact("/r/x", "r/x", ("*.o",)), Artifact("/q", "kept"))
    assert [step.artifacts[-2:] for step in more.steps] == [last, last]
    assert more.artifacts == (*task.artifacts, *last)
    for number in range(2):
        turned = artifacts.with_further(
            steps.turn(task, number), [Asked("/r//x", exclude=("*.o",)), Asked("/q", "kept")]
        )
        assert turned == steps.turn(more, number) or turned.artifacts == steps.turn(more, number).artifacts


def test_without_any_nothing_changes():
    task = load()
    assert artifacts.with_further(task, []) is task


def test_a_run_may_declare_the_folder_that_is_always_taken():
    task = artifacts.with_further(load(), [Asked("/a"), Asked(ALWAYS, exclude=("big",))])
    assert task.artifacts == (Artifact("/a", "a"), Artifact(ALWAYS, "logs/artifacts", ("big",)))


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (Asked("/tests/x"), "spec.artifacts[1].source"),
        (Asked("/a/.."), "spec.artifacts[1].source"),
        (Asked("/a", "../b"), "spec.artifacts[1].destination"),
        (Asked("/a", "manifest.json"), "spec.artifacts[1].destination"),
        (Asked("/a", exclude=("a\0b",)), "spec.artifacts[1].exclude[0]"),
        (Asked("/a", exclude=("x" * 1025,)), "spec.artifacts[1].exclude[0]"),
        (Asked("/a", exclude=("x",) * 257), "spec.artifacts[1].exclude"),
    ],
)
def test_what_a_run_may_not_take_is_refused_as_the_runs(asked, field):
    with pytest.raises(errors.TaskError) as caught:
        artifacts.with_further(load(), [Asked("/fine"), asked, Asked("/proc")])
    error = caught.value
    assert (error.file, error.field, error.unsupported) == ("TaskRun", field, False)
    assert error.remedy.endswith(".")
    assert [other.field for other in error.others] == ["spec.artifacts[2].source"]


def test_a_runs_artifacts_count_with_the_tasks():
    with pytest.raises(errors.TaskError, match="more than 256"):
        artifacts.with_further(load(toml('artifacts = ["/t"]')), [Asked(f"/a{n}") for n in range(artifacts.MOST)])


def test_a_run_that_adds_one_makes_the_warning_that_there_is_none_untrue():
    task = load(toml('verifier.environment_mode = "separate"'))
    assert task.warnings == (artifacts.NONE_DECLARED,)
    assert artifacts.with_further(task, [Asked("/a")]).warnings == ()


@pytest.mark.parametrize(
    ("lines", "warned"),
    [
        (['verifier.environment_mode = "separate"'], True),
        (['verifier.environment_mode = "separate"', f'artifacts = ["{ALWAYS}"]'], False),
        (['verifier.environment_mode = "separate"', 'steps = [{name = "a", artifacts = ["/x"]}]'], False),
        (
            ['verifier.environment_mode = "separate"', 'steps = [{name = "a", artifacts = ["/x"]}, {name = "b"}]'],
            True,
        ),
        (['steps = [{name = "a"}, {name = "b", verifier = {environment_mode = "separate"}}]'], True),
        ([], False),
    ],
)
def test_separate_verification_without_artifacts_is_a_warning(lines, warned):
    assert load(toml(*lines) | STEPS).warnings.count(artifacts.NONE_DECLARED) == warned


# which of them are kept


@pytest.mark.parametrize(
    ("destinations", "kept"),
    [
        (("a", "b"), "ab"),
        (("a", "a"), "a_"),
        (("a", "a/b"), "a_"),
        (("a/b", "a"), "a_"),
        (("a", "ab", "a-b"), "abc"),
        (("a/b", "a/c", "a", "a/b/d"), "ab__"),
    ],
)
def test_the_first_claim_of_a_place_wins(destinations, kept):
    entries = tuple(Artifact(f"/{number}", path) for number, path in enumerate(destinations))
    claims = artifacts.claims(entries)
    assert claims.kept == tuple(each for each, mark in zip(entries, kept, strict=True) if mark != "_")
    assert all(winner in claims.kept for _, winner in claims.overlaps)


NAMES = st.lists(st.sampled_from(["a", "b", "ab", "a.b", "é", "a\nb"]), min_size=1, max_size=4).map("/".join)


@given(st.lists(NAMES.map(lambda path: Artifact(f"/{path}", path)), max_size=12))
def test_kept_places_are_disjoint_and_every_other_one_lost_to_an_earlier(entries):
    claims = artifacts.claims(entries)
    assert len(claims.kept) + len(claims.overlaps) == len(entries)
    folders = [f"{each.destination}/" for each in claims.kept]
    for index, one in enumerate(folders):
        assert not any(other.startswith(one) or one.startswith(other) for other in folders[index + 1 :])
    for skipped, winner in claims.overlaps:
        assert winner in claims.kept
        one, other = f"{skipped.destination}/", f"{winner.destination}/"
        assert one.startswith(other) or other.startswith(one)
        assert any(each is winner for each in entries[: _index(entries, skipped)])


def _index(entries, one):
    return next(index for index, entry in enumerate(entries) if entry is one)


PIECES = st.lists(
    st.sampled_from(["", ".", "..", "a", "tests", "logs", "verifier", "proc", ".taskfold", "x\0"]), max_size=6
)


@given(PIECES.map("/".join))
def test_a_normalised_path_is_plain_and_stays_as_it_is(path):
    found = artifact_paths.normalised(path)
    if found is None:
        assert not path or "\0" in path or ".." in path.split("/")
        return
    assert artifact_paths.normalised(found) == found
    assert found.startswith("/") == path.startswith("/")
    assert found in ("/", ".") or not {"", ".", ".."} & set(found.removeprefix("/").split("/"))


@given(PIECES.map(lambda parts: "/" + "/".join(parts).replace("\0", "")))
def test_no_spelling_of_a_protected_path_gets_by(path):
    parts: list[str] = []
    for part in path.split("/"):
        parts = parts[:-1] if part == ".." else [*parts, part] if part not in ("", ".") else parts
    plain = "/" + "/".join(parts)
    inside = any(f"{plain}/".startswith(f"{folder}/") for folder in artifact_paths.PROTECTED)
    above = any(f"{folder}/".startswith(plain.rstrip("/") + "/") for folder in artifact_paths.PROTECTED)
    assert (artifacts.protected(path) is not None) == (inside or above)


def test_a_path_is_no_longer_than_those_of_a_task():
    assert artifact_paths.normalised("/" + "a" * 1023) is not None
    assert artifact_paths.normalised("/" + "a" * 1024) is None
    assert artifact_paths.normalised("é" * 513) is None
