"""What is asked for cannot be: said before anything is sent to a cluster."""


class Refused(Exception):  # noqa: N818 - it is a result, and named for it
    """What is asked for cannot be. `reason`: as in the result document. `lines`: all that is wrong."""

    def __init__(self, reason: str, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.reason = reason
        self.lines = lines
