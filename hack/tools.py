"""Programs from Debian that lint and the unit tests call: installed when they are missing, this is Debian, and we are
root; else one message with the command to type. What the cluster itself needs is the business of hack/cluster.
"""

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hack.cluster import prerequisites
from hack.cluster.settings import ClusterError

NEEDED = {
    "shellcheck": "shellcheck",
    "docker-registry": "docker-registry",
    "buildah": "buildah",
    "skopeo": "skopeo",
}
"""Program → Debian package."""


def main() -> int:
    missing = sorted(package for program, package in NEEDED.items() if shutil.which(program) is None)
    if not missing:
        return 0
    if shutil.which("apt-get") is None:
        print(f"missing (by the names of their Debian packages): {' '.join(missing)}", file=sys.stderr)
        return 1
    if os.geteuid() != 0:
        print(f"missing; install them: sudo {' '.join(prerequisites.install_command(missing))}", file=sys.stderr)
        return 1
    try:
        prerequisites.install(missing)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
