"""What holds of the tree as a whole."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE_ROOT = ROOT / "operator"
MODULES = sorted((SOURCE_ROOT / "taskfold").rglob("*.py"))

MAX_LINES = 450
LONGER = {
    "effects/exec.py": "one protocol, v5.channel.k8s.io, with every way in which it can end",
}
"""Modules that may be longer, each with its reason."""


def inside(module: Path) -> str:
    return module.relative_to(SOURCE_ROOT / "taskfold").as_posix()


def test_the_source_root_is_no_package():
    """A package named `operator` would hide the standard library's module, which `collections` imports: with an
    `__init__.py` there the interpreter itself does not start in this folder.
    """
    assert not (SOURCE_ROOT / "__init__.py").exists()
    code = "import operator, collections; print(operator.__file__)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert Path(found.stdout.strip()).name == "operator.py"


@pytest.mark.parametrize("module", MODULES, ids=inside)
def test_every_module_says_what_it_is_for(module):
    assert ast.get_docstring(ast.parse(module.read_text()))


def test_no_module_is_too_long_without_a_reason():
    lines = {inside(module): len(module.read_text().splitlines()) for module in MODULES}
    longer = {name for name, count in lines.items() if count > MAX_LINES}
    assert longer == set(LONGER), "a module that is short again needs no reason"


def test_every_package_says_so():
    folders = {module.parent for module in MODULES}
    assert not [inside(folder) for folder in folders if not (folder / "__init__.py").exists()]


def test_every_decision_that_the_code_names_is_on_the_page():
    page = (ROOT / "docs/reference/decisions.md").read_text()
    known = set(re.findall(r"^\| (C\d+) \|", page, re.MULTILINE))
    folders = ("operator/taskfold", "helper", "tests", "docs")
    files = [path for folder in folders for kind in ("py", "go", "md") for path in (ROOT / folder).rglob(f"*.{kind}")]
    named = {name for path in files for name in re.findall(r"\bC[1-9]\d?\b", path.read_text())}
    assert known
    assert named <= known
