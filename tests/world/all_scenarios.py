"""Every scenario, and those in which something else than a user or an operator goes wrong."""

from tests.world import apart, external, imaged, limits, misfortunes, recorded, restricted, scenarios, stepped, waiting

CALM = [
    *scenarios.PLAIN,
    *scenarios.USERS,
    *scenarios.REFUSED,
    *scenarios.TROUBLED,
    *waiting.CALM,
    *external.CALM,
    *imaged.CALM,
    *recorded.CALM,
    *stepped.CALM,
    *apart.CALM,
    *restricted.CALM,
]
LOST = [
    *misfortunes.EARLY,
    *misfortunes.WORKING,
    *misfortunes.GRADED_ALREADY,
    *misfortunes.ASKED,
    *misfortunes.NO_LOSS,
    *waiting.LOST,
    *external.LOST,
    *stepped.LOST,
    *apart.LOST,
    *restricted.LOST,
]
ALL = [*CALM, *limits.LIMITS, *LOST]
