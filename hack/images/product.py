"""The product's own images: the helper (one static binary) and the operator (the `Dockerfile`'s stand-in).

Both are made from the checkout, cached by a hash of their sources, and tagged with the
package's version. The operator's image is put together as the `Dockerfile` at the
repository's root says; `build/site`, which that file copies, is prepared here for both.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hack.images import catalog, image, layers, system

ROOT = Path(__file__).resolve().parents[2]
HELPER = "ghcr.io/taskfold/helper"
OPERATOR = "ghcr.io/taskfold/taskfold"
SITE = ROOT / "build" / "site"
_INSIDE = "/app/site"
_NOBODY = 65532
OPERATOR_CONFIG: dict[str, Any] = {
    "User": f"{_NOBODY}:{_NOBODY}",
    "WorkingDir": "/",
    "Env": [*catalog.PYTHON_CONFIG["Env"], f"PYTHONPATH={_INSIDE}", "PYTHONUNBUFFERED=1"],
    "Entrypoint": ["python3", "-m", "taskfold"],
}
_IGNORED = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def version() -> str:
    return str(project()["version"])


def hash_of(paths: Iterable[Path]) -> str:
    """Hash of names and contents of files, and of everything below folders."""
    digest = hashlib.sha256()
    for top in paths:
        files = (
            sorted(p for p in top.rglob("*") if p.is_file() and not _IGNORED & set(p.parts)) if top.is_dir() else [top]
        )
        for path in files:
            if path.exists():
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def helper(cache: Path) -> image.Image:
    """`/helper`, from scratch."""
    sources = ROOT / "helper"
    if not (sources / "go.mod").exists():
        raise image.ImageError("there is no Go module in helper/")
    folder = cache / "programs" / f"helper-{hash_of([sources])}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            made = Path(work) / "made"
            made.mkdir()
            command = [
                "go",
                "build",
                "-trimpath",
                "-ldflags",
                "-s -w",
                "-o",
                str(made / "helper"),
                _main_package(sources),
            ]
            _run(command, sources, {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"})
            made.rename(folder)
    # Closed to a sandbox's other processes from its first instruction on: see programMode in helper/sys.go.
    user = {"User": f"{_NOBODY}:{_NOBODY}"}
    return system.single_binary(cache, "helper", folder / "helper", "/helper", user, mode=0o2551, group=_NOBODY)


def operator(cache: Path) -> image.Image:
    """The Python stand-in, and the package with what it needs below /app/site."""
    base = catalog.python(cache)
    sources = [
        ROOT / "pyproject.toml",
        ROOT / "requirements.lock",
        ROOT / "operator" / "taskfold",
        ROOT / "crds",
    ]
    key = image.key_of(base.digest, hash_of(sources), OPERATOR_CONFIG)

    def recipe(work: Path) -> tuple[layers.Layer, Path, dict[str, Any]]:
        prepare_site(cache, SITE)
        file = work / "layer.tar.gz"
        return layers.from_tree(file, SITE, _INSIDE), file, OPERATOR_CONFIG

    return image.ensure(cache, "operator", key, recipe, base)


def requirements() -> list[str]:
    """What the operator's image needs: the package's dependencies and its `operator` extra."""
    content = project()
    return [*content["dependencies"], *content["optional-dependencies"]["operator"]]


def prepare_site(cache: Path, target: Path) -> None:
    """The package and its dependencies as a folder of site-packages for Python 3.13 on Linux.

    The dependencies have an entry of their own in the cache: they change seldom, and the
    package with every edit.
    """
    lock = ROOT / "requirements.lock"
    key = image.key_of(requirements(), lock.read_bytes() if lock.exists() else b"")
    dependencies = cache / "site" / key
    if not dependencies.is_dir():
        print("installing the operator's dependencies …", flush=True)
        dependencies.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=dependencies.parent) as work:
            made = Path(work) / "made"
            command = [
                _python_with_pip(), "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(made),
                "--python-version", "3.13", "--implementation", "cp", "--only-binary=:all:",
                "--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64",
            ]  # fmt: skip
            constraints = ["--constraint", str(lock)] if lock.exists() else []
            _run([*command, *constraints, *requirements()], ROOT, {})
            shutil.rmtree(made / "bin", ignore_errors=True)
            made.rename(dependencies)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(dependencies, target, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "operator" / "taskfold", target / "taskfold", ignore=shutil.ignore_patterns("__pycache__"))


def _main_package(sources: Path) -> str:
    return "." if any(sources.glob("*.go")) else "./cmd/helper"


def _python_with_pip() -> str:
    """This interpreter, or the first one with pip: a system Python often has none."""
    candidates = (
        sys.executable,
        str(ROOT / ".venv" / "bin" / "python"),
        shutil.which("python3"),
        shutil.which("python"),
    )
    for python in candidates:
        if (
            python
            and not subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode
        ):
            return python
    raise image.ImageError("no Python with pip was found to install the operator's dependencies with")


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise image.ImageError(f"`{' '.join(command[:4])} …` failed:\n{(done.stderr or done.stdout).strip()[-2000:]}")
