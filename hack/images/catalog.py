"""The stand-ins for upstream images and the test images derived from them, as data.

A stand-in carries the version its name promises (`python:3.13-slim` has Debian's Python
3.13) and is made from Debian packages. It is not the upstream image: no pip, other
paths, other packages. It exists because a machine without a way out can pull nothing.
"""

import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hack.images import image, layers

SUITE = "trixie"
PACKAGES = ("python3", "ca-certificates")
PYTHON = "docker.io/library/python:3.13-slim"
DEBIAN = "docker.io/library/debian:trixie-slim"
HAPROXY = "docker.io/library/haproxy:3.0"
TEST = "docker.io/taskfold-test"

# Left out of the root file system: what the kubelet provides, what belongs to the machine it
# was made on, and what no program reads.
_LEFT_OUT = (
    "dev/", "proc/", "sys/", "run/", "tmp/", "var/cache/", "var/log/", "var/lib/apt/lists/",
    "etc/apt/sources.list", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/machine-id",
    "usr/share/doc/", "usr/share/info/", "usr/share/locale/", "usr/share/man/",
)  # fmt: skip
_PATH = "PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON_CONFIG: dict[str, Any] = {"Env": [_PATH, "LANG=C.UTF-8", "PYTHON_VERSION=3.13"], "Cmd": ["python3"]}
_SHELL_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SECOND = 1_000_000_000  # nanoseconds, the unit of HEALTHCHECK

_ENTRYPOINT = b"""#!/bin/sh
# Says what it was started with, as the entry points of real images do, then runs it.
echo "entrypoint: $*"
touch /tmp/entrypoint-ran
exec "$@"
"""
_TEST_SH = b"""#!/bin/bash
[ "$(ls -A /tests | tr '\\n' ' ')" = "reward test.sh " ] && cat /tests/reward > /logs/verifier/reward.txt
"""
_PASSWD = b"""root:x:0:0:root:/root:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
app:x:1500:1500:app:/home/app:/bin/sh
"""
_GROUP = b"root:x:0:\nnogroup:x:65534:\napp:x:1500:\nbuilders:x:1600:app\n"


@dataclass(frozen=True)
class Derived:
    """An image with at most one layer on top of the Python stand-in."""

    config: dict[str, Any] = field(default_factory=dict)
    entries: tuple[layers.Entry, ...] = ()


def _without(*programs: str) -> tuple[layers.Entry, ...]:
    return tuple(layers.Removal(f"usr/bin/{program}") for program in programs)


def _without_links(*programs: str) -> tuple[layers.Entry, ...]:
    return tuple(layers.Removal(f"usr/local/bin/{program}") for program in programs)


DERIVED: dict[str, Derived] = {
    "hinted": Derived({"Env": [*PYTHON_CONFIG["Env"], "OMP_NUM_THREADS=5"]}),
    "no-bash": Derived(entries=_without("bash", "rbash")),
    "no-timeout": Derived(entries=_without("timeout")),
    "no-python": Derived(
        entries=(*_without("python3", "python3.13"), *_without_links("python", "python3", "python3.13"))
    ),
    "no-tar": Derived(entries=_without("tar", "gzip", "gunzip", "find")),
    "user": Derived(
        {"User": "1234:2345", "WorkingDir": "/home/app", "Env": [*PYTHON_CONFIG["Env"], "COLOR=blue"]},
        (layers.Folder("home/app", 0o755, 1234, 2345),),
    ),
    # What stands for python:3.13-slim in the restricted profile: somebody by number, with a folder of his own.
    "restricted": Derived({"User": "1000:1000", "WorkingDir": "/app"}, (layers.Folder("app", 0o755, 1000, 1000),)),
    "named-user": Derived(
        {"User": "app", "WorkingDir": "/home/app"},
        (
            layers.File("etc/passwd", _PASSWD),
            layers.File("etc/group", _GROUP),
            layers.Folder("home/app", 0o755, 1500, 1500),
        ),
    ),
    "entrypoint": Derived(
        {
            "Entrypoint": ["/entrypoint.sh"],
            "Healthcheck": {
                "Test": ["CMD-SHELL", "test -e /tmp/entrypoint-ran"],
                "Interval": 2 * _SECOND,
                "Timeout": 1 * _SECOND,
                "StartPeriod": 1 * _SECOND,
                "Retries": 3,
            },
        },
        (layers.File("entrypoint.sh", _ENTRYPOINT, 0o755),),
    ),
    # What its entrypoint and its check do, a Dockerfile FROM it says by ENV.
    "scripted": Derived(
        {
            "Entrypoint": ["/bin/bash", "-c", 'eval "${ENTRY:-exec \\"\\$@\\"}"', "entry"],
            "Healthcheck": {
                "Test": ["CMD-SHELL", 'eval "${CHECK:-true}"'],
                "Interval": _SECOND // 5,
                "Timeout": 2 * _SECOND,
                "Retries": 3,
            },
        }
    ),
    # A verifier's image with its own test.sh, and what that reads; nothing of a task's tests/ is wanted beside it.
    "tested": Derived(
        entries=(
            layers.Folder("tests", 0o755, 0, 0),
            layers.File("tests/test.sh", _TEST_SH, 0o755),
            layers.File("tests/reward", b"0.75\n"),
        )
    ),
    "no-check": Derived({"Healthcheck": {"Test": ["NONE"]}}),
    "no-program": Derived({"Entrypoint": ["/missing"]}),
}


def python(cache: Path) -> image.Image:
    """The stand-in for python:3.13-slim, made by mmdebstrap from the machine's own package sources."""
    links = [layers.Link(f"usr/local/bin/{name}", "/usr/bin/python3") for name in ("python", "python3", "python3.13")]
    key = image.key_of(1, SUITE, PACKAGES, _LEFT_OUT, links)
    root = image.ensure(cache, "root", key, _root_file_system(PACKAGES))
    return image.ensure(
        cache, "python", image.key_of(root.digest, links, PYTHON_CONFIG), _layer(links, PYTHON_CONFIG), root
    )


def debian(cache: Path) -> image.Image:
    """The stand-in for debian:trixie-slim: the Python one's layers under another name, cheap on purpose."""
    base = python(cache)
    config = {"Env": [_SHELL_PATH], "Cmd": ["bash"]}
    return image.ensure(cache, "debian", image.key_of(base.digest, config), _layer([], config), base)


def haproxy(cache: Path) -> image.Image:
    """The stand-in for haproxy:3.0: Debian's own, without the entry point that upstream's has."""
    config = {"Env": [_SHELL_PATH], "User": "99:99", "Cmd": ["haproxy", "-db", "-f", "/etc/haproxy/haproxy.cfg"]}
    key = image.key_of(1, SUITE, "haproxy", _LEFT_OUT)
    root = image.ensure(cache, "haproxy-root", key, _root_file_system(("haproxy",)))
    return image.ensure(cache, "haproxy", image.key_of(root.digest, config), _layer([], config), root)


def derived(cache: Path, name: str) -> image.Image:
    """One of the test images."""
    base, what = python(cache), DERIVED[name]
    config = {**PYTHON_CONFIG, **what.config}
    recipe = _layer(list(what.entries), config)
    return image.ensure(cache, f"test-{name}", image.key_of(base.digest, what), recipe, base)


def _layer(entries: list[Any], config: dict[str, Any]) -> image.Recipe:
    def recipe(work: Path) -> tuple[layers.Layer | None, Path | None, dict[str, Any]]:
        if not entries:
            return None, None, config
        file = work / "layer.tar.gz"
        return layers.from_entries(file, entries), file, config

    return recipe


def _root_file_system(packages: tuple[str, ...]) -> image.Recipe:
    def recipe(work: Path) -> tuple[layers.Layer, Path, dict[str, Any]]:
        print(f"making a root file system of Debian {SUITE} with {', '.join(packages)} (about 20 s) …", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "root.tar"
            command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(packages)}"]
            done = subprocess.run([*command, SUITE, str(archive)], capture_output=True, text=True, check=False)
            if done.returncode:
                raise image.ImageError(f"mmdebstrap failed:\n{done.stderr.strip()[-1500:]}")
            file = work / "layer.tar.gz"
            return layers.from_root_file_system(file, archive, _wanted), file, {}

    return recipe


def _wanted(member: tarfile.TarInfo) -> bool:
    return not member.name.startswith(_LEFT_OUT)


def available() -> bool:
    return shutil.which("mmdebstrap") is not None
