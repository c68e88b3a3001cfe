"""The Pythons of this machine: the one that runs the tests, those of pyenv, those on the PATH."""

import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 8)
_ASK = "import sys; print('%d.%d' % sys.version_info[:2])"

Version = tuple[int, int]


@functools.cache
def known() -> dict[Version, str]:
    """Version → program. The tests' own interpreter is always among them, as itself."""
    candidates = [sys.executable, *_of_pyenv()]
    candidates += [found for minor in range(2, 30) if (found := shutil.which(f"python3.{minor}"))]
    found: dict[Version, str] = {}
    for program in candidates:
        version = _version(program)
        if version is not None:
            found.setdefault(version, program)
    return found


def supported() -> dict[Version, str]:
    return {version: program for version, program in sorted(known().items()) if version >= OLDEST}


def too_old() -> dict[Version, str]:
    return {version: program for version, program in sorted(known().items()) if version < OLDEST}


def thorough() -> dict[Version, str]:
    """The oldest and the newest: what differs between versions shows in one of the two."""
    every = supported()
    return {version: every[version] for version in sorted({min(every), max(every)})}


def name(version: Version) -> str:
    return "python{}.{}".format(*version)


def _of_pyenv() -> list[str]:
    if shutil.which("pyenv") is None:
        return []
    root = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True).stdout.strip()
    return [str(program) for program in sorted(Path(root).glob("versions/*/bin/python"))]


def _version(program: str) -> Version | None:
    done = subprocess.run([program, "-c", _ASK], capture_output=True, text=True, check=False)
    match = re.fullmatch(r"(\d+)\.(\d+)\n", done.stdout)
    return (int(match[1]), int(match[2])) if match and not done.returncode else None
