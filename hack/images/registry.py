"""Pushing images into a registry that speaks plain HTTP on the loopback interface."""

import http.client
from pathlib import Path
from urllib.parse import urlsplit

from hack.images.image import DOCKER, Image

_TIMEOUT = 60.0


class RegistryError(Exception):
    """The registry refused something; the message has its answer."""


def repository_of(name: str) -> tuple[str, str]:
    """Repository and tag under which an upstream name is kept: without the upstream's host.

    So does containerd ask a mirror: `docker.io/library/python:3.13-slim` is
    `library/python`, `3.13-slim`.
    """
    rest, _, tag = name.rpartition(":")
    if not rest or "/" in tag:
        rest, tag = name, "latest"
    first, slash, path = rest.partition("/")
    upstream = slash and ("." in first or ":" in first or first == "localhost")
    repository = path if upstream else rest
    if (not upstream or first == "docker.io") and "/" not in repository:
        repository = f"library/{repository}"
    return repository, tag


class Registry:
    def __init__(self, address: str) -> None:
        """`address` is HOST:PORT."""
        self.address = address

    def digest(self, repository: str, tag: str) -> str | None:
        """Digest of the manifest that the registry has under a tag, or None."""
        status, headers = self._call("HEAD", f"/v2/{repository}/manifests/{tag}", headers={"Accept": DOCKER})
        return headers.get("docker-content-digest") if status == 200 else None

    def push(self, image: Image, name: str) -> bool:
        """Push `image` under an upstream `name`; False when the registry has it already."""
        repository, tag = repository_of(name)
        if self.digest(repository, tag) == image.digest:
            return False
        for digest, path in image.blobs:
            self._push_blob(repository, digest, path)
        path = f"/v2/{repository}/manifests/{tag}"
        self._expect(201, "PUT", path, image.manifest, {"Content-Type": DOCKER})
        return True

    def _push_blob(self, repository: str, digest: str, path: Path) -> None:
        if self._call("HEAD", f"/v2/{repository}/blobs/{digest}")[0] == 200:
            return
        headers = self._expect(202, "POST", f"/v2/{repository}/blobs/uploads/")
        location = urlsplit(headers["location"])
        separator = "&" if location.query else ""
        target = f"{location.path}?{location.query}{separator}digest={digest}"
        with path.open("rb") as file:
            length = {"Content-Length": str(path.stat().st_size), "Content-Type": "application/octet-stream"}
            self._expect(201, "PUT", target, file, length)

    def _expect(
        self, wanted: int, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> dict[str, str]:
        status, found = self._call(method, path, body, headers)
        if status != wanted:
            raise RegistryError(f"{method} {path} answered {status}: {found.get('body', '')}")
        return found

    def _call(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str]]:
        connection = http.client.HTTPConnection(self.address, timeout=_TIMEOUT)
        try:
            connection.request(method, path, body=body, headers=headers or {})  # type: ignore[arg-type]
            response = connection.getresponse()
            text = response.read(2000).decode(errors="replace")
            return response.status, {**{k.lower(): v for k, v in response.getheaders()}, "body": text}
        except OSError as error:
            raise RegistryError(f"the registry at {self.address} does not answer: {error}") from None
        finally:
            connection.close()
