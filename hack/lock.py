"""Write requirements.lock: what the virtual environment holds, versions only, without any index's address.

The lower bounds in pyproject.toml say what works; the lock says what CI has run with.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = {"taskfold", "pip", "setuptools", "wheel"}
HEADER = "# Made by `make lock`: the versions that CI runs with. The bounds are in pyproject.toml.\n"


def main() -> None:
    frozen = subprocess.run(
        [sys.executable, "-m", "pip", "freeze", "--exclude-editable", "--disable-pip-version-check"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    lines = [line for line in frozen.splitlines() if "==" in line and line.partition("==")[0].lower() not in OURS]
    (ROOT / "requirements.lock").write_text(HEADER + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
