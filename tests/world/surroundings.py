"""What the nodes of a world share: the server, the pace of life, which images there are."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.world import programs, sandbox


@dataclass(frozen=True)
class Pace:
    """Seconds of a pod's life on a quiet node, as measured; each varies by half of itself."""

    first_look: float = 0.1
    sandbox: float = 0.6
    container: float = 0.3
    pull: float = 1.2
    stop: float = 0.3
    look: float = 1.0
    """The end of a container is seen, and the phase follows, in steps of a second."""
    housekeeping: float = 10.0
    back_off: float = 10.0


@dataclass(frozen=True)
class PullError:
    """An image that cannot be had: what the kubelet says, `InvalidImageName` for ever, else with back-off."""

    message: str
    reason: str = "ErrImagePull"


Images = Callable[[str], "sandbox.Image | PullError"]


PROVEN = (
    '{{"enforced": true, "blocked": true, "seconds": 0.6, "attempts": 7, "open": 2, "gateway": {gateway}, "error": ""}}'
)


def proven(words: Sequence[str]) -> tuple[int, str]:
    """A probe that is blocked as it must be, and sees the gateway that it is told of."""
    return 0, PROVEN.format(gateway="true" if "--dns" in words else "null")


@dataclass
class Surroundings:
    """What all nodes of a world share."""

    server: Any
    now: Callable[[], Any]
    book: programs.Book
    images: Images
    rng: random.Random
    pace: Pace
    probe: Callable[[Sequence[str]], tuple[int, str]] = proven
    """What the probe of a restricted pod ends with, and leaves, by its command line."""
