"""What an agent, an image or a task puts in the way of a Python verifier, and what still reaches it."""

import shutil
import subprocess
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox import place as places
from tests.sandbox import pythons

VERIFIER = "tests/verifier.py"
PYTHONS = pythons.thorough()
FAKE = "raise SystemExit('a module that was planted')\n"
LATE = "colorsys"
"""A module of the standard library that the runner has not imported itself."""
OURS = "import nemo_gym.verifiers, nemo_gym.verifiers.files\n"
"""Fails if anything but the shim's nemo_gym is found."""

every_python = pytest.mark.parametrize("python", PYTHONS.values(), ids=map(pythons.name, PYTHONS))


def asserting(condition: str, first: str = "") -> str:
    return f"import sys\n{first}def verify(workspace):\n    return {condition}\n"


ACCEPTED = {"reward.txt": "1.0\n"}


@every_python
def test_the_working_directory_is_no_place_for_modules(place, python):
    planted = {f"{LATE}.py": FAKE, "nemo_gym.py": FAKE, "sitecustomize.py": FAKE, "pathlib.py": FAKE, "answer.py": FAKE}
    found = "str(workspace) not in sys.path and '' not in sys.path"
    place.fill({VERIFIER: asserting(found, f"import {LATE}, pathlib\n" + OURS)}, workspace=planted)
    assert place.run(python).rewards == ACCEPTED


@every_python
@pytest.mark.parametrize("variable", ["PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHONBREAKPOINT"])
def test_variables_that_run_code_do_nothing(place, python, variable):
    placed = replace(place, env={variable: str(place.workspace / "json.py")})
    placed.fill({VERIFIER: asserting("1")}, workspace={"json.py": FAKE})
    assert placed.run(python).rewards == ACCEPTED


@every_python
def test_nothing_of_the_home_folder_runs_before_the_verifier(place, python):
    home = place.root / "home"
    placed = replace(place, env={"HOME": str(home)})
    placed.fill({VERIFIER: asserting("1", f"import {LATE}\n" + OURS)})
    site = _user_site(python, home)
    for name in ("usercustomize.py", "sitecustomize.py", f"{LATE}.py", "nemo_gym.py"):
        places.write(site / name, FAKE.encode())
    places.write(site / "run.pth", b"import os; os._exit(9)\n")
    assert placed.run(python).rewards == ACCEPTED


@every_python
def test_modules_that_the_image_installed_for_its_user_are_there(place, python):
    home = place.root / "home"
    placed = replace(place, env={"HOME": str(home)})
    placed.fill({VERIFIER: asserting("scoring.ONE", "import scoring\n")})
    places.write(_user_site(python, home) / "scoring.py", b"ONE = 1\n")
    assert placed.run(python).rewards == ACCEPTED


@every_python
def test_pythonpath_adds_modules_and_replaces_none(place, python):
    library = place.root / "library"
    placed = replace(place, env={"PYTHONPATH": f"relative::{library}"})
    placed.fill(
        {VERIFIER: asserting("scoring.ONE", f"import {LATE}, scoring\n" + OURS)}, workspace={"relative/x.py": ""}
    )
    for name in (f"{LATE}.py", "nemo_gym.py", "nemo_gym/__init__.py", "sitecustomize.py"):
        places.write(library / name, FAKE.encode())
    places.write(library / "scoring.py", b"ONE = 1\n")
    assert placed.run(python).rewards == ACCEPTED


@every_python
def test_a_task_has_modules_of_its_own_but_no_nemo_gym(place, python):
    files = {
        VERIFIER: asserting("scoring.ONE * inner.deep.ONE", "import scoring, inner.deep\n" + OURS),
        "tests/scoring.py": "import nemo_gym.verifiers.files\nONE = 1\n",
        "tests/inner/deep.py": "ONE = 1\n",
        "tests/nemo_gym/__init__.py": FAKE,
        "tests/nemo_gym.py": FAKE,
    }
    assert place.fill(files).run(python).rewards == ACCEPTED


@every_python
def test_a_nemo_gym_of_the_image_is_not_used(place, python):
    """Neither one in site-packages, nor one that was imported at the start, nor one behind a finder of its own."""
    folder = place.root / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    inside = folder / "bin" / "python"
    inside.unlink()
    inside.symlink_to(_real(python))
    site = Path(_output(str(inside), "import sysconfig; print(sysconfig.get_path('purelib'))"))
    assert site.is_relative_to(folder)
    eager = (
        "import sys, types, importlib.abc\n"
        "for name in ('nemo_gym', 'nemo_gym.verifiers', 'nemo_gym.other'):\n"
        "    sys.modules[name] = types.ModuleType(name)\n"
        "class Finder(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('nemo_gym'): raise SystemExit('an installed one')\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    places.write(site / "installed.py", b"ONE = 1\n")
    places.write(site / "eager.py", eager.encode())
    places.write(site / "eager.pth", b"import eager\n")
    places.write(site / "nemo_gym/__init__.py", FAKE.encode())
    imports = OURS + "from nemo_gym.verifiers.files import read_text\nimport eager, installed\n"
    place.fill({VERIFIER: asserting("installed.ONE and 'nemo_gym.other' not in sys.modules", imports)})
    done = place.run(str(inside))
    assert done.rewards == ACCEPTED, done.output


@every_python
def test_nothing_is_written_beside_the_verifier(place, python):
    place.fill({VERIFIER: asserting("1", "import scoring\n" + OURS), "tests/scoring.py": ""})
    before = sorted(place.tests.rglob("*"))
    assert place.run(python).rewards == ACCEPTED
    assert sorted(place.tests.rglob("*")) == before


@every_python
@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_text_is_utf_8_whatever_the_locale(place, python, locale):
    if locale != "C":
        if shutil.which("localedef") is None:
            pytest.skip("no localedef to make this locale with")
        # Exit code 1 with warnings only, as about a character set that its C library finds odd.
        subprocess.run(["localedef", "-c", "-f", "ISO-8859-1", "-i", "en_US", place.root / locale], check=False)
    placed = replace(place, env={"LC_ALL": locale, "LOCPATH": str(place.root), "PYTHONIOENCODING": "ascii"})
    placed.fill({VERIFIER: "def verify(workspace):\n    print('größe')\n    return open('a').read() == 'ß'\n"})
    (placed.workspace / "a").write_bytes("ß".encode())
    done = placed.run(python)
    assert (done.rewards, done.output) == (ACCEPTED, "größe\n")


def _user_site(python: str, home: Path) -> Path:
    """Where this Python looks for modules of a user with that home. A new process is asked: `site` looks once."""
    code = "import site; print(site.getusersitepackages())"
    asked = subprocess.run([python, "-c", code], env={"HOME": str(home)}, capture_output=True, text=True, check=True)
    found = Path(asked.stdout.strip())
    assert found.is_relative_to(home)
    return found


def _real(python: str) -> str:
    return _output(python, "import os, sys; print(os.path.realpath(sys.executable))")


def _output(python: str, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
