"""What a Python verifier needs in its sandbox: the start script, the runner, and the modules `nemo_gym.verifiers`.

Guarantees: data for sandboxes, which nothing here imports or runs; Python 3.8 and its standard library are enough for
all of it. `FILES` is read once, from the installed package.
"""

from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

_PLACES = {
    "test.sh": "test.sh",
    ".ng/run_verifier.py": "run_verifier.py",
    ".ng/nemo_gym/__init__.py": "nemo_gym/__init__.py",
    ".ng/nemo_gym/verifiers/__init__.py": "nemo_gym/verifiers/__init__.py",
    ".ng/nemo_gym/verifiers/files.py": "nemo_gym/verifiers/files.py",
}

FILES: Mapping[str, bytes] = MappingProxyType(
    {place: resources.files(__name__).joinpath(file).read_bytes() for place, file in _PLACES.items()}
)
"""Path below /tests → content."""
