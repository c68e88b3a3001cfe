"""The configuration of an image (user, environment, entrypoint, …), read from its registry without pulling it.

Guarantees: every byte that is used was proven by its digest; every answer is bounded and every wait has a limit;
a host that only an image's name mentions is reached over https and at public addresses only, so that a task
cannot make the operator talk to the cluster's inside; credentials go to the host they are configured for. It
never writes to a registry and never pulls a layer.

    RegistryError
    ├── ImageNotFound      the registry has no such image, tag, digest or platform
    ├── Unauthorised       credentials are missing or not enough
    ├── Unreachable        no answer, 429 or 5xx: may work later
    └── InvalidImage       the answer is not an image we can read
"""

import asyncio
import collections
import contextlib
import hashlib
import ipaddress
import json
import re
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import aiohttp
import yarl

from taskfold.contract import dockerfile
from taskfold.effects import errors

MANIFEST_BYTES = 4 * 1024 * 1024
"""The limit that registries themselves have for a manifest."""
CONFIG_BYTES = 8 * 1024 * 1024
TOKEN_BYTES = 1024 * 1024
LOOKUP_SECONDS = 60.0
"""One image, all its mirrors and requests."""
REQUEST = aiohttp.ClientTimeout(total=20, sock_connect=5)
CACHED_IMAGES = 512
LOOKUPS = 8
"""Lookups at a time: a burst of runs of one image then causes few requests, the rest finds the cache filled."""
INDEX_DEPTH = 2

DOCKER_HUB = "docker.io"
DEFAULT_MIRRORS = "_default"
"""Key of `mirrors` for the hosts that have no key of their own."""
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)

_NAME = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<repository>{_NAME}(?:/{_NAME})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>sha256:[0-9a-f]{{64}}))?",
    re.ASCII,
)
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?")


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


@dataclass(frozen=True, slots=True)
class Platform:
    """As in an image index. An empty variant takes any."""

    os: str = "linux"
    architecture: str = "amd64"
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


LINUX_AMD64 = Platform()


@dataclass(frozen=True, slots=True)
class Reference:
    """An image's full name. At least one of `tag` and `digest` is set; with both, the digest decides."""

    host: str
    repository: str
    tag: str | None
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Docker's rules: `python` is docker.io/library/python:latest. InvalidImage on anything else."""
        first, slash, rest = text.partition("/")
        if slash and (first == "localhost" or re.search(r"[.:\[]", first)):
            host, path = first, rest
        else:
            host, path = DOCKER_HUB, text
        if host == f"index.{DOCKER_HUB}":
            host = DOCKER_HUB
        if host == DOCKER_HUB and "/" not in path:
            path = f"library/{path}"
        match = _REFERENCE.fullmatch(path)
        if match is None or not _HOST.fullmatch(host):
            raise InvalidImage(
                f"{text!r} is not the name of an image",
                remedy="Write host/repository:tag or host/repository@sha256:<64 hex digits>, in lower case.",
            )
        tag = match["tag"] or (None if match["digest"] else "latest")
        return cls(host, match["repository"], tag, match["digest"])

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.host}/{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """`digest`: what the name led to (an index or a manifest; what a pod can be pinned to). `manifest`: the
    platform's own. `config`: its configuration."""

    digest: str
    manifest: str
    config: dockerfile.ImageConfig


@dataclass(slots=True)
class _Endpoint:
    """A base URL that is asked for one repository, and the login that it wanted."""

    url: yarl.URL
    session: aiohttp.ClientSession
    credential: Credential | None
    authorization: str | None = None


class Registry:
    """Reads image configurations. `async with Registry(mirrors, auth) as registry:`

    `mirrors`: host → base URLs that are asked first, in order (`http://…` allowed), with the repository's path
    without the host and `?ns=<host>`, as containerd does; the key `_default` is for all other hosts. `upstream`:
    whether a host is asked itself after its mirrors. `auth`: host[:port] → login; Docker Hub is `docker.io`.
    `trusted_hosts`: hosts that may have private addresses, beside those named in `mirrors` and `auth`.
    """

    def __init__(
        self,
        mirrors: Mapping[str, Sequence[str]] | None = None,
        auth: Mapping[str, Credential] | None = None,
        *,
        trusted_hosts: Iterable[str] = (),
        upstream: bool = True,
    ) -> None:
        self._mirrors = {host: [yarl.URL(url) for url in urls] for host, urls in (mirrors or {}).items()}
        self._auth = dict(auth or {})
        self._upstream = upstream
        self._trusted = {*trusted_hosts, *self._mirrors, *self._auth}
        self._images: collections.OrderedDict[tuple[str, Platform], ImageRecord] = collections.OrderedDict()
        self._lookups = asyncio.Semaphore(LOOKUPS)
        self._inside: aiohttp.ClientSession | None = None
        self._public: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for session in (self._inside, self._public):
            if session is not None:
                await session.close()
        self._inside = self._public = None

    async def image_config(self, reference: str, platform: Platform = LINUX_AMD64) -> ImageRecord:
        """The image's configuration for `platform`. The classes of RegistryError above.

        The answer of the last endpoint decides on the class of an error (upstream knows best); the message
        names what every endpoint said.
        """
        name = Reference.parse(reference)
        if name.digest and (known := self._known(name.digest, platform)):
            return known
        failures: list[errors.RegistryError] = []
        async with self._lookups:
            try:
                async with asyncio.timeout(LOOKUP_SECONDS):
                    for endpoint in self._endpoints(name):
                        try:
                            return await self._lookup(endpoint, name, platform)
                        except errors.RegistryError as error:
                            failures.append(error)
            except TimeoutError:
                failures.append(_unreachable(name.host, f"no answer within {LOOKUP_SECONDS:.0f} s"))
        last = failures[-1]
        problem = "; ".join(f"{error.where} says: {error.problem}" for error in failures)
        raise type(last)(problem, where=str(name), remedy=last.remedy) from last

    def _known(self, digest: str, platform: Platform) -> ImageRecord | None:
        record = self._images.get((digest, platform))
        if record is not None:
            self._images.move_to_end((digest, platform))
        return record

    def _endpoints(self, name: Reference) -> Iterator[_Endpoint]:
        mirrors = self._mirrors.get(name.host, self._mirrors.get(DEFAULT_MIRRORS, []))
        for url in mirrors:
            yield _Endpoint(
                url % {"ns": name.host}, self._session(inside=True), self._auth.get(url.authority)
            )
        if self._upstream or not mirrors:
            host = f"registry-1.{DOCKER_HUB}" if name.host == DOCKER_HUB else name.host
            session = self._session(inside=name.host in self._trusted)
            yield _Endpoint(yarl.URL(f"https://{host}"), session, self._auth.get(name.host))

    def _session(self, *, inside: bool) -> aiohttp.ClientSession:
        if inside:
            self._inside = self._inside or _new_session(None)
            return self._inside
        self._public = self._public or _new_session(_public_socket)
        return self._public

    async def _lookup(self, endpoint: _Endpoint, name: Reference, platform: Platform) -> ImageRecord:
        if name.digest is None and (digest := await self._head(endpoint, name)):
            if known := self._known(digest, platform):
                return known
        body = await _manifest(endpoint, name, name.digest or name.tag or "")
        top = manifest = name.digest or _digest(body)
        document = _object(body, endpoint)
        for _ in range(INDEX_DEPTH):
            if "manifests" not in document:
                break
            descriptor = _choose(document, platform, endpoint)
            manifest = descriptor["digest"]
            document = _object(await _manifest(endpoint, name, manifest), endpoint)
        config = _descriptor(document.get("config"), endpoint)["digest"]
        content = await _read(endpoint, f"{name.repository}/blobs/{config}", CONFIG_BYTES)
        _prove(content, config, endpoint)
        record = ImageRecord(top, manifest, _image_config(_object(content, endpoint), endpoint))
        self._images[top, platform] = record
        if len(self._images) > CACHED_IMAGES:
            self._images.popitem(last=False)
        return record

    async def _head(self, endpoint: _Endpoint, name: Reference) -> str | None:
        """The tag's digest, where the registry tells it; this does not count as a pull at Docker Hub."""
        async with _open(endpoint, "HEAD", f"{name.repository}/manifests/{name.tag}", MANIFESTS) as answer:
            return answer.headers.get("Docker-Content-Digest")


def _new_session(socket_factory: Any) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=LOOKUPS * 2, socket_factory=socket_factory),
        timeout=REQUEST,
        auto_decompress=False,  # a small answer must not become a large one
        headers={"User-Agent": "taskfold", "Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
    )


def _public_socket(address: Any) -> socket.socket:
    """Called for every connection, also of a redirect, with the address that was found: no name gets around it."""
    ip = ipaddress.ip_address(address[4][0].partition("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if not ip.is_global:
        raise PermissionError(f"{ip} is not a public address, and the host is not a trusted one")
    return socket.socket(*address[:3])


@contextlib.asynccontextmanager
async def _open(
    endpoint: _Endpoint, method: str, path: str, accept: Sequence[str] = ()
) -> AsyncIterator[aiohttp.ClientResponse]:
    """One successful answer; every other outcome is one of our errors."""
    url = endpoint.url.joinpath("v2", *path.split("/"))
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
        raise _unreachable(_where(endpoint), str(error) or type(error).__name__) from error


async def _login(endpoint: _Endpoint, answer: aiohttp.ClientResponse, path: str) -> str:
    """The Authorization header that a 401 asks for: Basic, or a Bearer token (anonymous without a login)."""
    challenge = answer.headers.get("WWW-Authenticate", "")
    scheme, _, rest = challenge.partition(" ")
    values = {key.lower(): value for key, value in re.findall(r'(\w+)="([^"]*)"', rest)}
    basic = (
        aiohttp.BasicAuth(endpoint.credential.username, endpoint.credential.password).encode()
        if (endpoint.credential)
        else None
    )
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
        document = _object(await _body(granted, TOKEN_BYTES, endpoint), endpoint)
    token = document.get("token") or document.get("access_token")
    if not isinstance(token, str):
        raise _unauthorised(endpoint, f"{realm.host} gave no token")
    return f"Bearer {token}"


async def _require_success(endpoint: _Endpoint, answer: aiohttp.ClientResponse) -> None:
    if answer.status == 200:
        return
    said = f"status {answer.status}"
    with contextlib.suppress(aiohttp.ClientError, ValueError, LookupError, TypeError):
        first = json.loads(await answer.content.read(4096))["errors"][0]
        said += f", {first['code']}: {first['message']}"[:300]
    if answer.status == 404:
        raise ImageNotFound(said, where=_where(endpoint), remedy="Check the image's name and tag.")
    if answer.status in {401, 403}:
        raise _unauthorised(endpoint, said)
    if answer.status == 429:
        raise Unreachable(
            f"too many requests ({said})",
            where=_where(endpoint),
            remedy="Wait, or configure a mirror or a login (registry.mirrors, registry.auth).",
        )
    raise _unreachable(_where(endpoint), said)


async def _read(endpoint: _Endpoint, path: str, limit: int, accept: Sequence[str] = ()) -> bytes:
    async with _open(endpoint, "GET", path, accept) as answer:
        return await _body(answer, limit, endpoint)


async def _body(answer: aiohttp.ClientResponse, limit: int, endpoint: _Endpoint) -> bytes:
    content = bytearray()
    async for chunk in answer.content.iter_any():
        content += chunk
        if len(content) > limit:
            raise _invalid(endpoint, f"an answer has more than {limit:,} bytes")
    return bytes(content)


async def _manifest(endpoint: _Endpoint, name: Reference, tag_or_digest: str) -> bytes:
    body = await _read(endpoint, f"{name.repository}/manifests/{tag_or_digest}", MANIFEST_BYTES, MANIFESTS)
    if tag_or_digest.startswith("sha256:"):
        _prove(body, tag_or_digest, endpoint)
    return body


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _prove(content: bytes, digest: str, endpoint: _Endpoint) -> None:
    if _digest(content) != digest:
        raise _invalid(endpoint, f"the bytes of {digest} have the digest {_digest(content)}")


def _object(content: bytes, endpoint: _Endpoint) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _invalid(endpoint, f"an answer is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise _invalid(endpoint, "an answer is not a JSON object")
    return document


def _descriptor(value: object, endpoint: _Endpoint) -> dict[str, Any]:
    if isinstance(value, dict) and re.fullmatch(r"sha256:[0-9a-f]{64}", str(value.get("digest"))):
        return value
    raise _invalid(endpoint, "a manifest without the sha256 of a configuration (schema 1, or not an image)")


def _choose(index: Mapping[str, Any], platform: Platform, endpoint: _Endpoint) -> dict[str, Any]:
    offered: dict[Platform, dict[str, Any]] = {}
    entries = index["manifests"] if isinstance(index["manifests"], list) else []
    for entry in entries:
        descriptor = _descriptor(entry, endpoint)
        about = descriptor.get("platform")
        parts = (
            [str(about.get(key) or "") for key in ("os", "architecture", "variant")]
            if isinstance(about, dict)
            else []
        )
        offered.setdefault(Platform(*parts) if parts else Platform("unknown", "unknown"), descriptor)
    for candidate, descriptor in offered.items():
        if platform in (candidate, replace(candidate, variant="")):
            return descriptor
    real = ", ".join(str(each) for each in offered if each.os != "unknown")
    raise ImageNotFound(
        f"no image for {platform}, only for {real or 'nothing'}",
        where=_where(endpoint),
        remedy="Use an image that is built for the nodes' platform.",
    )


def _image_config(document: Mapping[str, Any], endpoint: _Endpoint) -> dockerfile.ImageConfig:
    raise NotImplementedError


def _where(endpoint: _Endpoint) -> str:
    return endpoint.url.authority


def _invalid(endpoint: _Endpoint, problem: str) -> InvalidImage:
    return InvalidImage(problem, where=_where(endpoint), remedy="Push the image again, or use another one.")


def _unauthorised(endpoint: _Endpoint, problem: str) -> Unauthorised:
    who = f"the login {endpoint.credential.username!r}" if endpoint.credential else "an anonymous client"
    return Unauthorised(
        f"{problem} (asked as {who})",
        where=_where(endpoint),
        remedy="Check that the image exists; if it is private, configure a login for its host (registry.auth).",
    )


def _unreachable(where: str, problem: str) -> Unreachable:
    return Unreachable(
        problem,
        where=where,
        remedy="Check the host's name and the operator's way out, or configure a mirror (registry.mirrors) or, "
        "for a host with a private address, registry.trustedHosts.",
    )
