"""sandbox/test.sh: which Python it takes, and what it says when there is none."""

import sys

import pytest

from tests.sandbox import pythons
from tests.sandbox.place import FLAGS

VERIFIER = "import sys\ndef verify():\n    return sys.version_info[0] + sys.version_info[1] / 100\n"


@pytest.fixture
def filled(place):
    return place.fill({"tests/verifier.py": VERIFIER})


def programs(place, **found: str) -> str:
    """A folder for the PATH with these programs: name → the one that it runs, or the lines of a script."""
    folder = place.root / "bin"
    folder.mkdir()
    for name, program in found.items():
        lines = f'exec {program} "$@"\n' if program.startswith("/") else program
        (folder / name).write_text(f"#!/bin/bash\n{lines}")
        (folder / name).chmod(0o755)
    return str(folder)


def pretending(version: str) -> str:
    """Answers as a Python of that version would that is asked which one it is."""
    return f"echo {version}; exit 1\n"


def test_python3_comes_first(filled):
    newest = max(pythons.supported())
    path = programs(filled, python3=pythons.supported()[newest], python=pretending("3.9.1"))
    assert filled.test_sh(path).rewards == {"reward.txt": f"{newest[0] + newest[1] / 100!r}\n"}


@pytest.mark.parametrize("other", [{}, {"python3": pretending("3.7.2")}, {"python3": "exit 1\n"}], ids=str)
def test_else_python(filled, other):
    found = filled.test_sh(programs(filled, python=sys.executable, **other))
    assert (found.code, list(found.rewards)) == (0, ["reward.txt"])


def test_without_python_it_says_so(filled):
    found = filled.test_sh(programs(filled))
    assert (found.code, found.rewards, found.left) == (127, {}, ())
    assert "it needs Python 3.8 or newer, and this image has neither python3 nor python on its PATH.\n" in found.output
    assert "Use an image with a newer python3" in found.output


def test_what_was_found_is_named(filled):
    found = filled.test_sh(programs(filled, python3=pretending("3.7.16"), python="exit 3\n"))
    assert (found.code, found.rewards) == (127, {})
    assert "it needs Python 3.8 or newer, and python3 is 3.7.16; python is unusable.\n" in found.output


@pytest.mark.parametrize(
    "program", pythons.too_old().values(), ids=[pythons.name(version) for version in pythons.too_old()]
)
def test_a_python_that_is_too_old_says_which_it_is(filled, program):
    found = filled.test_sh(programs(filled, python=program))
    assert (found.code, found.rewards) == (127, {})
    version = next(version for version, each in pythons.too_old().items() if each == program)
    assert "and python is {}.{}.".format(*version) in found.output


@pytest.mark.parametrize("version", [(3, 8), max(pythons.supported())], ids=pythons.name)
def test_3_8_and_the_newest_are_taken(filled, version):
    if version not in pythons.supported():
        pytest.skip("not on this machine")
    found = filled.test_sh(programs(filled, python3=pythons.supported()[version]))
    assert (found.code, list(found.rewards)) == (0, ["reward.txt"]), found.output


def test_planted_modules_do_not_decide_which_python_it_is(filled):
    for name in ("sys", "site", "sitecustomize", "encodings"):
        (filled.workspace / f"{name}.py").write_text("raise SystemExit(1)\n")
    assert filled.test_sh(programs(filled, python3=sys.executable)).code == 0


def test_the_other_tests_start_the_runner_as_it_does(filled):
    line = next(line for line in (filled.tests / "test.sh").read_text().splitlines() if "run_verifier.py" in line)
    assert f'"$python" {" ".join(FLAGS)} "$here/.ng/run_verifier.py"' in line


def test_it_runs_by_another_path_and_from_elsewhere(filled):
    path = programs(filled, python3=sys.executable)
    (filled.root / "link").symlink_to(filled.tests)
    command = ["/bin/bash", "../link/test.sh", str(filled.rewards)]
    assert filled.command(command, path=path).code == 0
