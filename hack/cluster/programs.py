"""Building the cluster's programs from their Go modules, and the cache of what was built.

Nothing is downloaded but Go modules. A program is built again when its go.mod, go.sum,
sources, flags or the Go version change; a build that is interrupted leaves no entry.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.settings import PROGRAMS, ClusterError

KUBERNETES = "1.36.3"
_STRIP = "-s -w"
_VERSION = "k8s.io/component-base/version"
_KUBERNETES_FLAGS = (
    f"{_STRIP} -X {_VERSION}.gitVersion=v{KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"
    f" -X {_VERSION}.gitTreeState=clean"
)
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
TICK_ON_TERMINAL = 1.0
TICK_ELSEWHERE = 30.0  # a line now and then, so that a CI job is not thought dead


@dataclass(frozen=True)
class Program:
    name: str
    packages: tuple[tuple[str, str], ...]  # binary, Go package
    ldflags: str = _STRIP
    tags: str = ""
    cgo: bool = False
    links: tuple[str, ...] = ()  # other names of the first binary


ALL: tuple[Program, ...] = (
    Program("forward", (("forward", "."),)),
    Program("pause", (("pause", "."),)),
    Program("etcd", (("etcd", "."),)),
    Program(
        "kube",
        (("kube", "."),),
        ldflags=_KUBERNETES_FLAGS,
        links=(
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "kubectl",
        ),
    ),
    Program(
        "containerd",
        tuple((name, f"{_CONTAINERD}/{name}") for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
    ),
    Program("runc", (("runc", "github.com/opencontainers/runc"),), tags="seccomp", cgo=True),
    Program("kube-router", (("kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"),)),
    Program("coredns", (("coredns", "github.com/coredns/coredns"),)),
    Program("helm", (("helm", "helm.sh/helm/v4/cmd/helm"),)),
    Program("versitygw", (("versitygw", "github.com/versity/versitygw/cmd/versitygw"),)),
)


def go_version() -> str:
    done = subprocess.run(
        ["go", "env", "GOVERSION"], capture_output=True, text=True, check=True, cwd=PROGRAMS / "pause"
    )
    return done.stdout.strip()


def cache_key(program: Program, sources: Path, go: str) -> str:
    """Hash of everything the binaries of `program` depend on."""
    digest = hashlib.sha256()
    for part in (
        go,
        program.ldflags,
        program.tags,
        str(program.cgo),
        repr(program.packages),
        repr(program.links),
    ):
        digest.update(part.encode() + b"\0")
    for path in sorted(p for p in sources.iterdir() if p.suffix in {".go", ".mod", ".sum"}):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def ensure(cache: Path) -> dict[str, Path]:
    """Build what the cache lacks; returns the folder of each program."""
    go = go_version()
    folders = {program.name: _folder(program, cache, go) for program in ALL}
    missing = [program for program in ALL if not folders[program.name].is_dir()]
    for number, program in enumerate(missing, 1):
        _build(program, folders[program.name], f"[{number}/{len(missing)}] building {program.name}")
    return folders


def link(folders: dict[str, Path], target: Path) -> None:
    """Put every program into one folder, as symbolic links; `kube` goes by the name it is called with."""
    target.mkdir(parents=True, exist_ok=True)
    for folder in folders.values():
        for path in folder.iterdir():
            place = target / path.name
            place.unlink(missing_ok=True)
            place.symlink_to(path.resolve())


def _folder(program: Program, cache: Path, go: str) -> Path:
    return cache / "programs" / f"{program.name}-{cache_key(program, PROGRAMS / program.name, go)}"


def _build(program: Program, folder: Path, title: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    started = time.monotonic()
    try:
        for binary, package in program.packages:
            command = ["go", "build", "-trimpath", "-ldflags", program.ldflags, "-o", str(temporary / binary)]
            if program.tags:
                command += ["-tags", program.tags]
            _run_with_ticks([*command, package], PROGRAMS / program.name, program.cgo, title)
        for name in program.links:
            (temporary / name).symlink_to(program.packages[0][0])
        temporary.chmod(0o755)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    print(f"{title} … done in {time.monotonic() - started:.0f} s", flush=True)


def _run_with_ticks(command: list[str], folder: Path, cgo: bool, title: str) -> None:
    environment = {
        **os.environ,
        "CGO_ENABLED": "1" if cgo else "0",
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
    }
    terminal = sys.stdout.isatty()
    print(f"{title} …", end="\r" if terminal else "\n", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output) as child:
            try:
                while child.poll() is None:
                    try:
                        child.wait(TICK_ON_TERMINAL if terminal else TICK_ELSEWHERE)
                    except subprocess.TimeoutExpired:
                        elapsed = f"{title} … {time.monotonic() - started:.0f} s"
                        print(elapsed, end="\r" if terminal else "\n", flush=True)
            except BaseException:
                child.terminate()
                raise
        if child.returncode:
            output.seek(0)
            last = output.read().decode(errors="replace").strip().splitlines()[-20:]
            raise ClusterError(f"{title} failed:\n" + "\n".join(f"    {line}" for line in last))
