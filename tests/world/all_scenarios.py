"""Every scenario, and those in which something else than a user or an operator goes wrong."""

from tests.world import limits, misfortunes, scenarios, waiting

CALM = [*scenarios.PLAIN, *scenarios.USERS, *scenarios.REFUSED, *scenarios.TROUBLED, *waiting.CALM]
LOST = [
    *misfortunes.EARLY,
    *misfortunes.WORKING,
    *misfortunes.GRADED_ALREADY,
    *misfortunes.ASKED,
    *misfortunes.NO_LOSS,
    *waiting.LOST,
]
ALL = [*CALM, *limits.LIMITS, *LOST]
