"""Refusals as the Kubernetes API has them: a Status object with the HTTP status, a reason and a sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from taskfold.api import results

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
"""What clients of the API know by name. A status without one (416) has the reason `Unknown`."""


@dataclass
class Refusal(Exception):  # noqa: N818 - it is an answer
    """Ends a request with this status. `retry_seconds`: when to ask again, for 429 and 503."""

    code: int
    message: str
    details: dict[str, Any] = field(default_factory=dict)
    retry_seconds: int | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def response(self) -> web.Response:
        """The answer."""
        details, headers = {"group": results.GROUP, **self.details}, dict(self.headers)
        if self.retry_seconds is not None:
            details["retryAfterSeconds"] = self.retry_seconds
            headers["Retry-After"] = str(self.retry_seconds)
        body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": REASONS.get(self.code, "Unknown"),
            "details": details,
            "code": self.code,
        }
        return document(body, status=self.code, headers=headers)


def document(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON answer."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    # Names of files may be anything: what is no text is shown, not sent.
    content = text.encode(errors="backslashreplace")
    return web.Response(body=content, status=status, headers=headers, content_type="application/json", charset="utf-8")
