"""The client of a store's backend, made from settings: obstore's, with our limits and our words.

Guarantees: what is wrong with the settings is a StoreError, never the end of the process; every request has a limit of
time and of tries, so that a store which is away is known within a minute or two.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import obstore.exceptions
import obstore.store

from taskfold.effects import errors

RETRIES: dict[str, Any] = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=400), "max_backoff": timedelta(seconds=15), "base": 2},
}
"""Of one request: after 5xx answers and broken connections, with growing pauses."""
SCHEMES = ("file", "s3", "gs", "az", "memory")
CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
"""Options of the HTTP client, for every backend. obstore ends the process if one comes among the backend's own."""
Backend = obstore.store.ObjectStore


def make(url: str, options: Mapping[str, str]) -> Backend:
    """The client of the store at `url`. `options`: of the backend and of the HTTP client, as text. StoreError."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES or "@" in rest:
        raise errors.StoreError(
            f"{scheme if '@' in rest else url!r} is not the URL of a store",
            remedy="Write file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix, "
            "without credentials: they come from the environment or a workload identity.",
        )
    if scheme in ("file", "memory") and options:
        raise errors.StoreError(f"a {scheme}:// store has no options", where=url, remedy="Remove store.options.")
    try:
        if scheme == "file":
            return obstore.store.from_url(url, mkdir=True)
        if scheme == "memory":
            return obstore.store.from_url(url)
        return _remote(url, options)
    except (obstore.exceptions.BaseError, OSError, ValueError, TypeError) as error:
        said = remedy(Path(rest) if scheme == "file" else None)
        raise errors.StoreError(text(error), where=url, remedy=said) from error


def _remote(url: str, options: Mapping[str, str]) -> Backend:
    client = {name: value for name, value in options.items() if name in CLIENT_OPTIONS}
    own = {name: value for name, value in options.items() if name not in CLIENT_OPTIONS}
    from_url: Any = obstore.store.from_url  # its overloads know each backend's options by name
    backend: Backend = from_url(url, retry_config=RETRIES, client_options=client, **own)
    return backend


def text(error: BaseException) -> str:
    """obstore appends a dump of its internals; the first part is the message."""
    return str(error).partition("\n\nDebug source:")[0].strip()[:1000] or type(error).__name__


def remedy(root: Path | None) -> str:
    """What to do about an error that says nothing else. `root`: of a store that is a folder."""
    if root is not None:
        return f"Check that {root} is mounted, writable for uid {os.getuid()}, and has room."
    return "Check the store's URL, its endpoint and region, and the credentials in the environment."
