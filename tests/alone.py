"""What a cluster has only once: one test process at a time may have it."""

import contextlib
import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

RESULTS_API = "results-api"
"""The APIService of the results API: registered to one operator at a time."""


@contextlib.contextmanager
def with_the(what: str) -> Iterator[None]:
    """For the length of the block; waits for whoever has it. The kernel gives it back when a process dies."""
    with Path(tempfile.gettempdir(), f"taskfold-test-{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
