"""Asking a registry over HTTP: one endpoint, its login, bounded answers, its errors in our words.

Guarantees: no answer is read beyond its bound, no request waits beyond `REQUEST`; a login is sent to the host
it is configured for, and to the token server that this host names; a `public` session connects to public
addresses only, redirects and token servers included. What the bytes mean is the business of `registry`.

    RegistryError
    ├── ImageNotFound      the registry has no such image, tag, digest or platform
    ├── Unauthorised       credentials are missing or not enough
    ├── Unreachable        no answer, 429 or 5xx: may work later
    └── InvalidImage       the answer is not an image we can read
"""

import base64
import contextlib
import errno
import ipaddress
import json
import re
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import yarl

from taskfold.effects import errors

REQUEST = aiohttp.ClientTimeout(total=20, sock_connect=5)
TOKEN_BYTES = 1024 * 1024
CONNECTIONS = 16


class ImageNotFound(errors.RegistryError):
    """There is no such image. Terminal: asking again does not help."""


class Unauthorised(errors.RegistryError):
    """401 or 403. Docker Hub and others answer so for names that do not exist as well."""


class Unreachable(errors.RegistryError):
    """No answer that says anything about the image."""


class InvalidImage(errors.RegistryError):
    """Not an image, damaged, too large, or of a kind that is not supported."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A login at one registry host."""

    username: str
    password: str = field(repr=False)

    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


@dataclass(slots=True)
class Endpoint:
    """A base URL that is asked for one repository, and the login that it wanted. `own`: the login is not ours."""

    url: yarl.URL
    query: Mapping[str, str]
    session: aiohttp.ClientSession
    credential: Credential | None
    authorization: str | None = None
    own: bool = False


def new_session(*, public: bool) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=CONNECTIONS, socket_factory=public_socket if public else None),
        timeout=REQUEST,
        auto_decompress=False,  # a small answer must not become a large one
        headers={"User-Agent": "taskfold", "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def public_socket(address: Any) -> socket.socket:
    """Called for every connection, also of a redirect, with the address itself: no name gets around it."""
    ip = ipaddress.ip_address(address[4][0].partition("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if not ip.is_global:
        raise PermissionError(errno.EACCES, f"{ip} is not a public address, and the host is not a trusted one")
    return socket.socket(*address[:3])


@contextlib.asynccontextmanager
async def open_answer(
    endpoint: Endpoint, method: str, path: str, accept: Sequence[str] = ()
) -> AsyncIterator[aiohttp.ClientResponse]:
    """One successful answer; every other outcome is one of our errors."""
    url = endpoint.url.joinpath("v2", *path.split("/")).with_query(endpoint.query)
    headers = {"Accept": ", ".join(accept)} if accept else {}
    try:
        for last in (False, True):
            login = {"Authorization": endpoint.authorization} if endpoint.authorization else {}
            async with endpoint.session.request(method, url, headers=headers | login) as answer:
                if answer.status == 401 and not last:
                    endpoint.authorization = await _login(endpoint, answer, path)
                    continue
                await _require_success(endpoint, answer)
                yield answer
                return
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise unreachable(where(endpoint), str(error) or type(error).__name__) from error


async def _login(endpoint: Endpoint, answer: aiohttp.ClientResponse, path: str) -> str:
    """The Authorization header that a 401 asks for: Basic, or a Bearer token (anonymous without a login)."""
    challenge = answer.headers.get("WWW-Authenticate", "")
    scheme, _, rest = challenge.partition(" ")
    values = {key.lower(): value for key, value in re.findall(r'(\w+)="([^"]*)"', rest)}
    basic = endpoint.credential.basic() if endpoint.credential else None
    if scheme.lower() == "basic" and basic:
        return basic
    realm = yarl.URL(values.get("realm", ""))
    if scheme.lower() != "bearer" or realm.scheme not in {"https", endpoint.url.scheme}:
        raise _unauthorised(endpoint, f"it wants a login by {scheme or 'an unknown scheme'}")
    repository = re.split(r"/(?:manifests|blobs)/", path)[0]
    query = {"scope": values.get("scope") or f"repository:{repository}:pull"}
    if "service" in values:
        query["service"] = values["service"]
    headers = {"Authorization": basic} if basic else {}
    async with endpoint.session.get(realm.update_query(query), headers=headers) as granted:
        if granted.status in {401, 403}:
            raise _unauthorised(endpoint, f"{realm.host} gave no token (status {granted.status})")
        await _require_success(endpoint, granted)
        document = read_object(await _body(granted, TOKEN_BYTES, endpoint), endpoint)
    token = document.get("token") or document.get("access_token")
    if not isinstance(token, str):
        raise _unauthorised(endpoint, f"{realm.host} gave no token")
    return f"Bearer {token}"


async def _require_success(endpoint: Endpoint, answer: aiohttp.ClientResponse) -> None:
    if answer.status == 200:
        return
    said = f"status {answer.status}"
    with contextlib.suppress(aiohttp.ClientError, ValueError, LookupError, TypeError):
        first = json.loads(await answer.content.read(4096))["errors"][0]
        words = f"{first['code']}: {first['message']}"[:300]
        said += ", " + "".join(each if each.isprintable() else "?" for each in words)
    if answer.status == 404:
        raise ImageNotFound(said, where=where(endpoint), remedy="Check the image's name and tag.")
    if answer.status in {401, 403}:
        raise _unauthorised(endpoint, said)
    if answer.status == 429:
        raise Unreachable(
            f"too many requests ({said})",
            where=where(endpoint),
            remedy="Wait, configure a mirror (registry.mirrors), or log in (spec.pod.imagePullSecrets).",
        )
    raise unreachable(where(endpoint), said)


async def read(endpoint: Endpoint, path: str, limit: int, accept: Sequence[str] = ()) -> bytes:
    async with open_answer(endpoint, "GET", path, accept) as answer:
        return await _body(answer, limit, endpoint)


async def _body(answer: aiohttp.ClientResponse, limit: int, endpoint: Endpoint) -> bytes:
    content = bytearray()
    async for chunk in answer.content.iter_any():
        content += chunk
        if len(content) > limit:
            raise invalid(endpoint, f"an answer has more than {limit:,} bytes")
    return bytes(content)


def read_object(content: bytes, endpoint: Endpoint) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise invalid(endpoint, f"an answer is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise invalid(endpoint, "an answer is not a JSON object")
    return document


def where(endpoint: Endpoint) -> str:
    return endpoint.url.authority


def invalid(endpoint: Endpoint, problem: str) -> InvalidImage:
    return InvalidImage(problem, where=where(endpoint), remedy="Push the image again, or use another one.")


def _unauthorised(endpoint: Endpoint, problem: str) -> Unauthorised:
    who = f"the login {endpoint.credential.username!r}" if endpoint.credential else "an anonymous client"
    return Unauthorised(
        f"{problem} (asked as {who})",
        where=where(endpoint),
        remedy="Check that the image exists; if it is private, name a Secret with a login for its registry in "
        "spec.pod.imagePullSecrets.",
    )


def unreachable(where: str, problem: str) -> Unreachable:
    return Unreachable(
        problem,
        where=where,
        remedy="Check the host's name and the operator's way out, or configure a mirror (registry.mirrors) "
        "or, for a host with a private address, registry.trustedHosts.",
    )
