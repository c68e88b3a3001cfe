"""The oldest Python that a verifier may be run by, in an image: a Python 3.8 of this machine on the Python stand-in.

No distribution's current release has it any more; pyenv and others build it. What no verifier needs is left out.
"""

import functools
import glob
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.images import catalog, image, layers

_HOME = "opt/python3.8"
_NOT_WANTED = frozenset({
    "__pycache__", "site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip",
    "distutils", "pydoc_data", "unittest",
})  # fmt: skip
_ASK = """
import json, os, sys, sysconfig
shared = sysconfig.get_config_var("INSTSONAME") if sysconfig.get_config_var("Py_ENABLE_SHARED") else None
print(json.dumps({
    "version": sys.version,
    "minor": sys.version_info[:2],
    "program": os.path.realpath(sys.executable),
    "library": sysconfig.get_path("stdlib"),
    "shared": shared and os.path.join(sysconfig.get_config_var("LIBDIR"), shared),
}))
"""


@dataclass(frozen=True)
class Python:
    """One that is installed here. `shared`: the shared library that it is linked to, if it is to one of its own."""

    version: str
    program: Path
    library: Path
    shared: Path | None


@functools.cache
def find() -> Python | None:
    """A Python 3.8 of this machine: on the PATH, else one of pyenv's."""
    candidates = [found for name in ("python3.8",) if (found := shutil.which(name))]
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True).stdout.strip()
        candidates += sorted(glob.glob(f"{root}/versions/3.8.*/bin/python3.8"))  # noqa: PTH207
    for program in candidates:
        done = subprocess.run([program, "-I", "-c", _ASK], capture_output=True, text=True, check=False)
        if not done.returncode:
            found = json.loads(done.stdout)
            shared = Path(found["shared"]) if found["shared"] else None
            return Python(found["version"], Path(found["program"]), Path(found["library"]), shared)
    return None


def make(cache: Path) -> image.Image:
    """The image. ImageError when there is no Python 3.8."""
    python, base = find(), catalog.python(cache)
    if python is None:
        raise image.ImageError("this machine has no Python 3.8; `pyenv install 3.8` makes one")
    config: dict[str, Any] = catalog.PYTHON_CONFIG
    key = image.key_of(1, base.digest, python.version, sorted(_NOT_WANTED), config)
    return image.ensure(cache, "test-python3.8", key, functools.partial(_layer, python, config), base)


def _layer(python: Python, config: dict[str, Any], work: Path) -> tuple[layers.Layer, Path, dict[str, Any]]:
    file = work / "layer.tar.gz"
    return layers.from_entries(file, _entries(python)), file, config


def _entries(python: Python) -> list[layers.Entry]:
    entries: list[layers.Entry] = [layers.Removal(f"usr/bin/{name}") for name in ("python3", "python3.13")]
    entries += [layers.Removal("usr/local/bin/python3.13")]
    entries += [layers.Link(f"usr/local/bin/{name}", f"/{_HOME}/bin/python3.8") for name in ("python", "python3")]
    entries.append(layers.File(f"{_HOME}/bin/python3.8", python.program, 0o755))
    if python.shared is not None:  # where the loader looks without being told
        entries.append(layers.File(f"usr/lib/{python.shared.name}", python.shared, 0o755))
    for found in sorted(python.library.rglob("*")):
        inside = found.relative_to(python.library)
        wanted = not _NOT_WANTED & set(inside.parts) and not inside.parts[0].startswith("config-")
        if wanted and found.is_file() and not found.is_symlink():
            entries.append(layers.File(f"{_HOME}/lib/python3.8/{inside}", found))
    return entries
