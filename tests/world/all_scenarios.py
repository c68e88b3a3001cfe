"""Every scenario, and those in which something else than a user or an operator goes wrong."""

from tests.world import limits, misfortunes, scenarios

CALM = [*scenarios.PLAIN, *scenarios.USERS, *scenarios.REFUSED, *scenarios.TROUBLED]
LOST = [
    *misfortunes.EARLY,
    *misfortunes.WORKING,
    *misfortunes.GRADED_ALREADY,
    *misfortunes.ASKED,
    *misfortunes.NO_LOSS,
]
ALL = [*CALM, *limits.LIMITS, *LOST]
