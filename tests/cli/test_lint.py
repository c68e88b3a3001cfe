"""`taskfold lint`: folders and datasets, formats, exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from taskfold.contract.lint_subject import Rule

from .conftest import ROOT, Cli

NEAT = {
    "task.toml": 'environment.docker_image = "python:3.12-slim"\nagent.user = "app"\n',
    "tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
}


def documents(cli: Cli, *words: Any) -> dict[str, Any]:
    return dict(json.loads(cli("lint", *words, "--format", "json").stdout))


def test_a_task_that_is_well_made(cli: Cli, write: Any) -> None:
    result = cli("lint", write("hello", NEAT), "--strict")
    assert result.exit_code == 0
    assert result.stdout == "1 task: 0 errors, advice: 0\n"


def test_advice_does_not_fail_unless_it_is_to(cli: Cli, write: Any) -> None:
    folder = write("hello", NEAT | {"solution/solve.sh": None})
    result = cli("lint", folder)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{folder}/task.toml: advice: there is no reference solution")
    assert "[no-solution]\n" in result.stdout
    assert cli("lint", folder, "--strict").exit_code == 1
    assert cli("lint", folder, "--strict", "--ignore", "no-solution").exit_code == 0


def test_every_error_is_printed_and_fails(cli: Cli, write: Any) -> None:
    text = NEAT["task.toml"] + "agent.timeout_sec = 0\n"
    folder = write("hello", NEAT | {"task.toml": text, "instruction.md": None})
    result = cli("lint", folder)
    assert result.exit_code == 1
    assert f"{folder}/task.toml:3: error: agent.timeout_sec = 0: must be greater than 0." in result.stdout
    assert f"{folder}/instruction.md: error: is missing." in result.stdout
    assert result.stdout.endswith("1 task: 2 errors, advice: 0\n")


def test_a_dataset_is_searched_and_its_settings_count(cli: Cli, write: Any) -> None:
    root = write("one", NEAT).parent
    write("group/two", NEAT | {"tests/test.sh": None})
    write("one/deeper", NEAT)
    write(".hidden/three", {"task.toml": "["})
    (root / "link").symlink_to(root / "one")
    (root / "verifier.py").write_text("def verify(): return 1\n")
    (root / "dataset.toml").write_text(
        '[gym.tasks.two.environment]\nos = "windows"\n[gym.tasks.gone]\n[gym.tasks.one.environment]\ncpus = 1\n'
    )
    found = documents(cli, root)
    assert (found["tasks"], found["errors"]) == (2, 2)
    assert [(each["rule"], each["task"], Path(each["file"]).name, each["line"]) for each in found["findings"]] == [
        ("unknown-task", None, "dataset.toml", 3),
        ("invalid", "two", "dataset.toml", None),
    ]


def test_settings_that_are_wrong_are_said_for_a_task_alone_too(cli: Cli, write: Any) -> None:
    folder = write("hello", NEAT)
    (folder.parent / "dataset.toml").write_text("[gym]\nlicence = 1\n")
    result = cli("lint", folder)
    assert result.exit_code == 1
    assert f"{folder.parent}/dataset.toml: error: gym.licence: is not a key of [gym]. Write license" in result.stdout


def test_two_folders_of_one_name(cli: Cli, write: Any) -> None:
    root = write("a/same", NEAT).parents[1]
    write("b/same", NEAT)
    assert [each["rule"] for each in documents(cli, root)["findings"]] == ["duplicate-task"]


def test_no_task_at_all(cli: Cli, tmp_path: Path) -> None:
    result = cli("lint", tmp_path)
    assert result.exit_code == 1
    assert "[no-task]" in result.stdout


def test_what_is_no_folder_is_a_usage_error(cli: Cli, tmp_path: Path) -> None:
    assert cli("lint", tmp_path / "nothing").exit_code == 64
    assert cli("lint", tmp_path, "--ignore", "nonsense").exit_code == 64


def test_a_link_in_a_task_is_an_error(cli: Cli, write: Any) -> None:
    folder = write("hello", NEAT)
    (folder / "tests/link").symlink_to("test.sh")
    result = cli("lint", folder)
    assert result.exit_code == 1
    assert "tests/link: error: is a symbolic link" in result.stdout


def test_advice_that_repeats_is_printed_once(cli: Cli, write: Any) -> None:
    folders = [write(f"t{number}", NEAT | {"solution/solve.sh": None}) for number in range(5)]
    lines = cli("lint", folders[0].parent).stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("[no-solution] In 5 tasks: t0, t1, t2 and 2 more")


def test_annotations_for_github(cli: Cli, write: Any) -> None:
    folder = write("a,b", NEAT | {"tests/test.sh": "#!/bin/bash\n# /logs/verifier 100%\napt-get install -y x\n"})
    (line,) = cli("lint", folder, "--format", "github").stdout.splitlines()
    head, _, message = line.removeprefix("::").partition("::")
    assert head == (
        f"warning file={str(folder).replace(',', '%2C')}/tests/test.sh,line=3,title=taskfold%3A installs-at-run-time"
    )
    assert message.startswith("`apt-get install -y x`" if "-y x`" in message else "`apt-get install`")


def test_the_examples_have_no_errors(cli: Cli) -> None:
    for folder in sorted((ROOT / "environments").iterdir()):
        if folder.is_dir():
            assert documents(cli, folder)["errors"] == 0, folder


@pytest.mark.parametrize("rule", list(Rule))
def test_every_rule_is_in_the_reference(rule: Rule) -> None:
    assert f"| `{rule}` |" in (ROOT / "docs/reference/lint.md").read_text()
