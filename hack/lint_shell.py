"""shellcheck over every shell script of the tree: those with a shell's `#!` line, whatever their name."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHELLS = (b"#!/bin/bash", b"#!/bin/sh", b"#!/usr/bin/env bash", b"#!/usr/bin/env sh")


def scripts() -> list[Path]:
    """Tracked and new files that a shell would run."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    found = [ROOT / name for name in names if name]
    return [path for path in found if path.is_file() and path.open("rb").read(64).startswith(SHELLS)]


def main() -> int:
    if shutil.which("shellcheck") is None:
        print("shellcheck is missing; on Debian: apt-get install shellcheck", file=sys.stderr)
        return 1
    return subprocess.run(["shellcheck", *map(str, scripts())], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
