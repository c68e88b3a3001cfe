"""Who asks: the API server's word for it, and nobody else's.

The API server passes a request on with a client certificate of an authority that is used for nothing else, and names
the user in headers. Guarantees: headers count only with such a certificate, and only under the names that the cluster
publishes (ConfigMap kube-system/extension-apiserver-authentication); whoever has none is not authenticated (401),
whatever he says. A bearer token is never looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

from taskfold.reading import answers

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"


class Headers(Protocol):
    """A request's headers: names in any case, each as often as it was sent."""

    def getall(self, key: str, default: Any) -> Iterable[str]: ...
    def items(self) -> Iterable[tuple[str, str]]: ...


@dataclass(frozen=True)
class Trust:
    """What the cluster publishes. `names` empty: any certificate of the authority."""

    authority: str
    names: tuple[str, ...]
    user_headers: tuple[str, ...]
    uid_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]


@dataclass(frozen=True)
class Caller:
    """A user as the API server authenticated him."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


def trust(config_map: Mapping[str, Any]) -> Trust:
    """What the ConfigMap says. ValueError if the cluster does not aggregate."""
    data: Mapping[str, str] = config_map.get("data") or {}

    def names(key: str) -> tuple[str, ...]:
        found = json.loads(data.get(f"requestheader-{key}") or "[]")
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise ValueError(f"{NAMESPACE}/{NAME}: requestheader-{key} is no list of names")
        return tuple(found)

    authority, user_headers = data.get("requestheader-client-ca-file", ""), names("username-headers")
    if not authority.strip() or not user_headers:
        raise ValueError(
            f"{NAMESPACE}/{NAME} names no authority for requests that the API server passes on: "
            "the API server runs without --requestheader-client-ca-file, so it cannot aggregate"
        )
    return Trust(
        authority,
        names("allowed-names"),
        user_headers,
        names("uid-headers"),
        names("group-headers"),
        names("extra-headers-prefix"),
    )


def caller(known: Trust, certificate: Mapping[str, Any] | None, headers: Headers) -> Caller:
    """The user of a request. `certificate`: the verified one of the connection, as `ssl` has it. Refusal 401."""
    if not certificate:
        raise _unauthorized("ask through the API server: this server takes no other login")
    if known.names and not set(_common_names(certificate)) & set(known.names):
        raise _unauthorized("the certificate is not that of the API server")
    name = next((value for header in known.user_headers for value in headers.getall(header, ()) if value), "")
    if not name:
        raise _unauthorized("the request names no user")
    uid = next((value for header in known.uid_headers for value in headers.getall(header, ()) if value), "")
    groups = tuple(value for header in known.group_headers for value in headers.getall(header, ()))
    found = Caller(name, uid, groups, _extra(known.extra_prefixes, headers))
    texts = (found.name, found.uid, *found.groups, *(text for key, values in found.extra for text in (key, *values)))
    if not all(_is_text(text) for text in texts):
        raise _unauthorized("the user's name is no text")
    return found


def _extra(prefixes: Iterable[str], headers: Headers) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Keys are lower case and percent-encoded in header names; a key may have several values."""
    found: dict[str, list[str]] = {}
    for header, value in headers.items():
        for prefix in prefixes:
            if header.lower().startswith(prefix.lower()) and len(header) > len(prefix):
                found.setdefault(unquote(header[len(prefix) :].lower()), []).append(value)
                break
    return tuple(sorted((key, tuple(values)) for key, values in found.items()))


def _common_names(certificate: Mapping[str, Any]) -> list[str]:
    return [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unauthorized(why: str) -> answers.Refusal:
    return answers.Refusal(401, f"Unauthorized: {why}", headers={"Connection": "close"})
