"""The time of the cluster: the API server's clock, as the dates of its answers tell it.

Guarantees: processes whose own clocks differ agree to about a second, with each other and with the times that the API
server writes; the time does not go back by less than `STEP_SECONDS`, which is more than what a date leaves open.
Nodes may have clocks of their own: what they write is no measure for a limit.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

STEP_SECONDS = 5.0
"""Differences up to this come from dates that are cut to the second and from answers that were under way."""


class ClusterTime:
    """One client's knowledge of it."""

    def __init__(self) -> None:
        self._last = ""
        self._began: datetime | None = None
        """What the API server's clock showed when the event loop's showed 0."""

    def heard(self, date: str | None) -> None:
        """An answer came with this date."""
        if not date or date == self._last:
            return
        self._last = date
        try:
            began = parsedate_to_datetime(date) - timedelta(seconds=asyncio.get_running_loop().time())
        except ValueError:
            return
        if began.tzinfo is None:
            return
        # A date is cut, and old when it arrives: the latest of those that agree is the best.
        if self._began is None or abs(began - self._began) > timedelta(seconds=STEP_SECONDS):
            self._began = began
        self._began = max(self._began, began)

    def now(self, local: Callable[[], datetime]) -> datetime:
        """The cluster's time; before anything was heard, that of this machine."""
        if self._began is None:
            return local()
        return self._began + timedelta(seconds=asyncio.get_running_loop().time())
