"""The configuration of an image (user, environment, entrypoint, …), read from its registry, nothing pulled.

Guarantees: every byte that is used was proven by its digest; every answer is bounded and every wait has a
limit; a host that only an image's name mentions is reached over https and at public addresses only, so that a
task cannot make the operator talk to the cluster's inside; a login goes to the host it is configured for. It
never writes to a registry.
"""

import asyncio
import collections
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import aiohttp
import yarl

from taskfold.contract import dockerfile
from taskfold.effects import errors, pull_secrets, registry_http
from taskfold.effects.registry_http import Credential, ImageNotFound, InvalidImage, Unauthorised, Unreachable

__all__ = [
    "Credential",
    "ImageNotFound",
    "ImageRecord",
    "InvalidImage",
    "Platform",
    "Reference",
    "Registry",
    "Unauthorised",
    "Unreachable",
]

MANIFEST_BYTES = 4 * 1024 * 1024
"""The limit that registries themselves have for a manifest."""
CONFIG_BYTES = 8 * 1024 * 1024
LOOKUP_SECONDS = 60.0
"""One image, all its mirrors and requests."""
CACHED_IMAGES = 512
LOOKUPS = 8
"""Lookups at a time: in a burst of runs of one image, most find the cache filled."""
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


@dataclass(frozen=True, slots=True)
class Platform:
    """As in an image index. An empty variant takes any."""

    os: str = "linux"
    architecture: str = "amd64"
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


LINUX_AMD64 = Platform()

_Key = tuple[str, Platform, Credential | None]
"""Digest, platform, and whose login it was read with; None: ours, or none."""


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
        if host in {f"index.{DOCKER_HUB}", f"registry-1.{DOCKER_HUB}"}:
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


class Registry:
    """Reads image configurations. `async with Registry(mirrors, auth) as registry:`

    `mirrors`: host → base URLs that are asked first, in order (`http://…` allowed), with the repository's
    path without the host and `?ns=<host>`, as containerd does; the key `_default` is for all other hosts.
    `upstream`: whether a host is asked itself after its mirrors. `auth`: host[:port] → login; Docker Hub is
    `docker.io`. `trusted_hosts`: hosts that may have private addresses, beside those in `mirrors` and `auth`.
    """

    def __init__(
        self,
        mirrors: Mapping[str, Sequence[str]] | None = None,
        auth: Mapping[str, Credential] | None = None,
        *,
        trusted_hosts: Iterable[str] = (),
        upstream: bool = True,
    ) -> None:
        self._mirrors = {host: [_base(url) for url in urls] for host, urls in (mirrors or {}).items()}
        self._auth = dict(auth or {})
        self._upstream = upstream
        self._trusted = {*trusted_hosts, *self._mirrors, *self._auth}
        self._images: collections.OrderedDict[_Key, ImageRecord] = collections.OrderedDict()
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

    async def image_config(
        self, reference: str, platform: Platform = LINUX_AMD64, *, logins: Sequence[pull_secrets.Login] = ()
    ) -> ImageRecord:
        """The image's configuration for `platform`. The classes of RegistryError above.

        `logins`: of whoever asks; those that fit go to the image's own host, in place of ours, never to a mirror. The
        answer of the last endpoint decides on the class of an error (upstream knows best); the message names what
        every endpoint said.
        """
        name = Reference.parse(reference)
        own = pull_secrets.fitting(logins, name.host, name.repository)
        if name.digest and not own and (known := self._known((name.digest, platform, None))):
            return known
        failures: list[errors.RegistryError] = []
        async with self._lookups:
            try:
                async with asyncio.timeout(LOOKUP_SECONDS):
                    for endpoint in self._endpoints(name, own):
                        try:
                            return await self._lookup(endpoint, name, platform)
                        except errors.RegistryError as error:
                            failures.append(error)
            except TimeoutError:
                failures.append(registry_http.unreachable(name.host, f"no answer within {LOOKUP_SECONDS:.0f} s"))
        last = failures[-1]
        problem = "; ".join(f"{error.where} says: {error.problem}" for error in failures)
        raise type(last)(problem, where=str(name), remedy=last.remedy) from last

    def _known(self, key: "_Key") -> ImageRecord | None:
        record = self._images.get(key)
        if record is not None:
            self._images.move_to_end(key)
        return record

    def _endpoints(self, name: Reference, own: Sequence[Credential]) -> Iterator[registry_http.Endpoint]:
        mirrors = self._mirrors.get(name.host, self._mirrors.get(DEFAULT_MIRRORS, []))
        for url in mirrors:
            login = self._auth.get(url.authority)
            yield registry_http.Endpoint(url, {"ns": name.host}, self._session(inside=True), login)
        if self._upstream or not mirrors:
            host = f"registry-1.{DOCKER_HUB}" if name.host == DOCKER_HUB else name.host
            session = self._session(inside=name.host in self._trusted)
            for login in own or (self._auth.get(name.host),):
                yield registry_http.Endpoint(yarl.URL(f"https://{host}"), {}, session, login, own=bool(own))

    def _session(self, *, inside: bool) -> aiohttp.ClientSession:
        if inside:
            self._inside = self._inside or registry_http.new_session(public=False)
            return self._inside
        self._public = self._public or registry_http.new_session(public=True)
        return self._public

    async def _lookup(self, endpoint: registry_http.Endpoint, name: Reference, platform: Platform) -> ImageRecord:
        found = name.digest or await self._head(endpoint, name)
        # What was read with somebody's login is for whoever has that login.
        access = endpoint.credential if endpoint.own else None
        if found and (known := self._known((found, platform, access))):
            return known
        body = await _manifest(endpoint, name, name.digest or name.tag or "")
        top = manifest = name.digest or _digest(body)
        document = registry_http.read_object(body, endpoint)
        for _ in range(INDEX_DEPTH):
            if "manifests" not in document:
                break
            descriptor = _choose(document, platform, endpoint)
            manifest = descriptor["digest"]
            document = registry_http.read_object(await _manifest(endpoint, name, manifest), endpoint)
        config = _descriptor(document.get("config"), endpoint)["digest"]
        content = await registry_http.read(endpoint, f"{name.repository}/blobs/{config}", CONFIG_BYTES)
        _prove(content, config, endpoint)
        record = ImageRecord(top, manifest, _image_config(registry_http.read_object(content, endpoint), endpoint))
        self._images[top, platform, access] = record
        if len(self._images) > CACHED_IMAGES:
            self._images.popitem(last=False)
        return record

    async def _head(self, endpoint: registry_http.Endpoint, name: Reference) -> str | None:
        """The tag's digest, where the registry tells it; this does not count as a pull at Docker Hub."""
        async with registry_http.open_answer(
            endpoint, "HEAD", f"{name.repository}/manifests/{name.tag}", MANIFESTS
        ) as answer:
            return answer.headers.get("Docker-Content-Digest")


def _base(url: str) -> yarl.URL:
    base = yarl.URL(url)
    if base.scheme not in {"http", "https"} or not base.host or base.query_string or base.user:
        raise errors.RegistryError(
            f"{base.host or url!r} is not the URL of a mirror", remedy="Write http(s)://host[:port][/path]."
        )
    return base


async def _manifest(endpoint: registry_http.Endpoint, name: Reference, tag_or_digest: str) -> bytes:
    body = await registry_http.read(endpoint, f"{name.repository}/manifests/{tag_or_digest}", MANIFEST_BYTES, MANIFESTS)
    if tag_or_digest.startswith("sha256:"):
        _prove(body, tag_or_digest, endpoint)
    return body


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _prove(content: bytes, digest: str, endpoint: registry_http.Endpoint) -> None:
    if _digest(content) != digest:
        raise registry_http.invalid(endpoint, f"the bytes of {digest} have the digest {_digest(content)}")


def _descriptor(value: object, endpoint: registry_http.Endpoint) -> dict[str, Any]:
    if isinstance(value, dict) and re.fullmatch(r"sha256:[0-9a-f]{64}", str(value.get("digest"))):
        return value
    raise registry_http.invalid(
        endpoint, "a manifest without the sha256 of a configuration (schema 1, or not an image)"
    )


def _choose(index: Mapping[str, Any], platform: Platform, endpoint: registry_http.Endpoint) -> dict[str, Any]:
    offered: dict[Platform, dict[str, Any]] = {}
    entries = index["manifests"] if isinstance(index["manifests"], list) else []
    for entry in entries:
        descriptor = _descriptor(entry, endpoint)
        about = descriptor.get("platform")
        parts = (
            [str(about.get(key) or "") for key in ("os", "architecture", "variant")] if isinstance(about, dict) else []
        )
        offered.setdefault(Platform(*parts) if parts else Platform("unknown", "unknown"), descriptor)
    for candidate, descriptor in offered.items():
        if platform in (candidate, replace(candidate, variant="")):
            return descriptor
    real = ", ".join(str(each) for each in offered if each.os != "unknown")
    raise ImageNotFound(
        f"no image for {platform}, only for {real or 'nothing'}",
        where=registry_http.where(endpoint),
        remedy="Use an image that is built for the nodes' platform.",
    )


def _image_config(document: Mapping[str, Any], endpoint: registry_http.Endpoint) -> dockerfile.ImageConfig:
    """The `config` object; Docker leaves its keys out or writes null. A HEALTHCHECK is Docker's alone: OCI's
    form has no place for it, though some builders write it there as well."""
    settings = document.get("config") or {}
    if not isinstance(settings, dict) or not all(
        settings.get(key) is None or is_form(settings[key]) for key, is_form in _FORMS.items()
    ):
        raise registry_http.invalid(endpoint, "the image's configuration has values of the wrong type")
    return dockerfile.image_config(settings)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_healthcheck(value: Mapping[str, Any]) -> bool:
    """As Docker writes it: a test of a kind that it knows, and whole numbers (nanoseconds, but for the retries)."""
    test, numbers = value.get("Test") or [], [value.get(key) or 0 for key in _NUMBERS]
    if not _is_texts(test) or not all(type(each) is int and 0 <= each < 2**63 for each in numbers):
        return False
    match test:
        case [] | ["NONE", *_] | ["CMD", _, *_] | ["CMD-SHELL", _]:
            return True
        case _:
            return False


_NUMBERS = ("Interval", "Timeout", "StartPeriod", "StartInterval", "Retries")
_FORMS: Mapping[str, Callable[[Any], bool]] = {
    "Env": _is_texts,
    "Entrypoint": _is_texts,
    "Cmd": _is_texts,
    "Shell": _is_texts,
    "User": lambda value: isinstance(value, str),
    "WorkingDir": lambda value: isinstance(value, str),
    "Healthcheck": lambda value: isinstance(value, dict) and _is_healthcheck(value),
}
