"""kopf without a memory of its own in our objects.

Guarantees: kopf compares no two versions of an object and stores nothing in one. Its own stores copy every object three
times for each event, which is most of what an event costs, to find differences that no handler of ours asks for.
"""

from typing import Any

import kopf

FINALIZER = "taskfold.dev/never-set"
"""kopf removes the finalizer that it takes for its own from every object that it sees. By default that is the one of
all of kopf's operators: of another one that looks after the same pods, for example.
"""


class NoDifferences(kopf.DiffBaseStorage):
    """What an object was when it was last handled: never asked, never kept."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        raise AssertionError("there is no handler whose end would be stored")


class NoProgress(kopf.ProgressStorage):
    """How far handlers have got: ours are called for every event and have no progress."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        raise AssertionError("there is no handler whose progress would be stored")

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence


def forget(settings: kopf.OperatorSettings) -> None:
    """Have kopf keep nothing in objects, and take nothing off them."""
    settings.persistence.diffbase_storage = NoDifferences()
    settings.persistence.progress_storage = NoProgress()
    settings.persistence.finalizer = FINALIZER
