"""Entry point of `python3 hack/images`; the work is in `cli`."""

import sys
from pathlib import Path

# As a script, Python puts this folder first on the path; the package is found from the repository's root.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from hack.images import cli  # noqa: E402

if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
