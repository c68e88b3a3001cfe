"""Image configurations from a real docker-registry on loopback; hostile answers from a scripted server."""

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests import ports
from yarl import URL

from taskfold.effects import errors, pull_secrets, registry, registry_http

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
DIGEST = "sha256:" + "ab" * 32

pytestmark = pytest.mark.skipif(
    not shutil.which("docker-registry"), reason="docker-registry is not installed (Debian: docker-registry)"
)


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def packed(document: object) -> bytes:
    return json.dumps(document).encode()


# A real registry


@dataclass
class RealRegistry:
    url: str
    headers: dict[str, str] = field(default_factory=dict)

    def request(self, method: str, path: str, body: bytes = b"", kind: str = "application/octet-stream") -> Any:
        url = path if path.startswith("http") else self.url + path
        headers = self.headers | {"Content-Type": kind}
        request = urllib.request.Request(url, data=body, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer

    def blob(self, repository: str, content: bytes) -> dict[str, Any]:
        location = self.request("POST", f"/v2/{repository}/blobs/uploads/").headers["Location"]
        mark = "&" if "?" in location else "?"
        self.request("PUT", f"{location}{mark}digest={digest_of(content)}", content)
        return {"digest": digest_of(content), "size": len(content)}

    def manifest(self, repository: str, document: dict[str, Any], tag: str | None = None) -> dict[str, Any]:
        body = packed(document)
        kind = document["mediaType"]
        self.request("PUT", f"/v2/{repository}/manifests/{tag or digest_of(body)}", body, kind)
        return {"mediaType": kind, "digest": digest_of(body), "size": len(body)}

    def image(self, repository: str, config: object, tag: str | None = None, *, oci: bool = False) -> dict[str, Any]:
        descriptor = self.blob(repository, packed(config))
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST if oci else DOCKER_MANIFEST,
            "config": descriptor | {"mediaType": OCI_CONFIG if oci else DOCKER_CONFIG},
            "layers": [],
        }
        return self.manifest(repository, document, tag)

    def index(self, repository: str, images: dict[str, dict[str, Any]], tag: str, *, oci: bool) -> dict[str, Any]:
        entries = []
        for platform, descriptor in images.items():
            parts = dict(zip(("os", "architecture", "variant"), platform.split("/"), strict=False))
            entries.append(descriptor | {"platform": parts})
        kind = OCI_INDEX if oci else DOCKER_LIST
        return self.manifest(repository, {"schemaVersion": 2, "mediaType": kind, "manifests": entries}, tag)


@contextlib.contextmanager
def running(folder: Path, auth: dict[str, Any] | None = None) -> Iterator[RealRegistry]:
    """A docker-registry process of our own, ended by its pid."""
    port = ports.free()
    config = {
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    } | ({"auth": auth} if auth else {})
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["docker-registry", "serve", str(folder / "config.yml")],
            stdout=log,
            stderr=log,
            env=os.environ | {"OTEL_TRACES_EXPORTER": "none"},
        )
        try:
            wait_for(port, process, folder / "log")
            yield RealRegistry(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(60)


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    pytest.fail(f"docker-registry did not start: {log.read_text()}")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with running(tmp_path_factory.mktemp("registry")) as started:
        yield started


@pytest.fixture
async def reader(real: RealRegistry) -> AsyncIterator[registry.Registry]:
    async with registry.Registry({"_default": [real.url]}, upstream=False) as made:
        yield made


def config(env: str = "A=1", **more: Any) -> dict[str, Any]:
    return {
        "os": "linux",
        "architecture": "amd64",
        "rootfs": {"type": "layers", "diff_ids": []},
        "config": {"Env": [env], **more},
    }


# Names


@pytest.mark.parametrize(
    ("text", "full"),
    {
        "python": "docker.io/library/python:latest",
        "python:3.13-slim": "docker.io/library/python:3.13-slim",
        "docker.io/python": "docker.io/library/python:latest",
        "index.docker.io/library/python": "docker.io/library/python:latest",
        "bitnami/redis": "docker.io/bitnami/redis:latest",
        "ghcr.io/a/b/c:v1.0": "ghcr.io/a/b/c:v1.0",
        "localhost/a": "localhost/a:latest",
        "127.0.0.1:5000/a__b/c-d.e:T_1": "127.0.0.1:5000/a__b/c-d.e:T_1",
        "[::1]:5000/a": "[::1]:5000/a:latest",
        f"python@{DIGEST}": f"docker.io/library/python@{DIGEST}",
        f"quay.io/a:t@{DIGEST}": f"quay.io/a:t@{DIGEST}",
    }.items(),
)
def test_names(text: str, full: str) -> None:
    assert str(registry.Reference.parse(text)) == full


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "Python",
        "a b",
        "python:",
        "python@sha256:12",
        "python@md5:" + "a" * 64,
        "a//b",
        "../a",
        "a/../b",
        "ghcr.io/",
        "http://ghcr.io/a",
        "ghcr.io:x/a",
        "user@ghcr.io/a",
        "a:b:c",
        "a\n",
        "é",
        "a?x=1",
        "evil.com#/a",
        "-a",
    ],
)
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(registry.InvalidImage) as caught:
        registry.Reference.parse(text)
    assert caught.value.remedy


# Reading from a real registry


@pytest.mark.parametrize("oci", [False, True], ids=["docker", "oci"])
async def test_a_single_image(real: RealRegistry, reader: registry.Registry, oci: bool) -> None:
    pushed = real.image("library/single", config(f"OCI={oci}"), "1", oci=oci)
    record = await reader.image_config("single:1")
    assert record.digest == record.manifest == pushed["digest"]
    assert dict(record.config.env) == {"OCI": str(oci)}


@pytest.mark.parametrize("oci", [False, True], ids=["docker", "oci"])
async def test_an_index(real: RealRegistry, reader: registry.Registry, oci: bool) -> None:
    images = {
        each: real.image("team/many", config(f"P={each}"), oci=oci)
        for each in (
            "unknown/unknown",
            "linux/arm64/v8",
            "linux/arm/v6",
            "linux/arm/v7",
            "linux/amd64",
            "windows/amd64",
        )
    }
    index = real.index("team/many", images, "1", oci=oci)
    wanted = {
        registry.Platform(): "linux/amd64",
        registry.Platform("linux", "arm64"): "linux/arm64/v8",
        registry.Platform("linux", "arm", "v7"): "linux/arm/v7",
        registry.Platform("windows"): "windows/amd64",
    }
    for platform, expected in wanted.items():
        record = await reader.image_config("ghcr.io/team/many:1", platform)
        assert record.digest == index["digest"]
        assert record.manifest == images[expected]["digest"]
        assert dict(record.config.env) == {"P": expected}


async def test_a_platform_that_is_not_there(real: RealRegistry, reader: registry.Registry) -> None:
    images = {
        "linux/arm64/v8": real.image("library/arm", config()),
        "unknown/unknown": real.image("library/arm", config("B=2")),
    }
    real.index("library/arm", images, "1", oci=True)
    with pytest.raises(registry.ImageNotFound, match="no image for linux/amd64, only for linux/arm64/v8"):
        await reader.image_config("arm:1")


async def test_by_digest(real: RealRegistry, reader: registry.Registry) -> None:
    first = real.image("library/moving", config("V=1"), "1")
    real.image("library/moving", config("V=2"), "1")
    record = await reader.image_config(f"moving:1@{first['digest']}")
    assert dict(record.config.env) == {"V": "1"}


async def test_a_tag_that_moves_is_noticed(real: RealRegistry, reader: registry.Registry) -> None:
    for version in ("1", "2"):
        pushed = real.image("library/moved", config(f"V={version}"), "latest")
        record = await reader.image_config("moved")
        assert (record.digest, dict(record.config.env)) == (pushed["digest"], {"V": version})


async def test_everything_that_a_configuration_says(real: RealRegistry, reader: registry.Registry) -> None:
    said = config(
        "A=b=c",
        WorkingDir="/srv",
        User="1000:www",
        Entrypoint=["/entry", "a b"],
        Cmd=["run"],
        Healthcheck={
            "Test": ["CMD-SHELL", "true"],
            "Interval": 2_500_000_000,
            "Timeout": 1_000_000_000,
            "Retries": 4,
        },
    )
    real.image("library/full", said, "1")
    found = (await reader.image_config("full:1")).config
    assert dict(found.env) == {"A": "b=c"}
    assert (found.workdir, found.user) == ("/srv", "1000:www")
    assert (list(found.entrypoint or ()), list(found.cmd or ())) == (["/entry", "a b"], ["run"])
    assert found.healthcheck is not None


@pytest.mark.parametrize(
    "healthcheck",
    [
        {"Test": "true"},
        {"Test": ["CMD"]},
        {"Test": ["CMD-SHELL"]},
        {"Test": ["CMD-SHELL", "a", "b"]},
        {"Test": ["SOMETHING", "a"]},
        {"Test": ["CMD", "a"], "Interval": "5s"},
        {"Test": ["CMD", "a"], "Retries": 1.5},
        {"Test": ["CMD", "a"], "Timeout": -1},
        {"Test": ["CMD", "a"], "Timeout": True},
    ],
)
async def test_a_healthcheck_that_docker_does_not_write(
    real: RealRegistry, reader: registry.Registry, healthcheck: dict[str, Any]
) -> None:
    real.image("library/odd", config(Healthcheck=healthcheck), "1")
    with pytest.raises(registry.InvalidImage, match="wrong type"):
        await reader.image_config("odd:1")


@pytest.mark.parametrize(
    "said", [{"config": None}, {}, {"config": {}}, {"config": {"Env": None, "Cmd": None, "User": ""}}]
)
async def test_a_configuration_that_says_nothing(
    real: RealRegistry, reader: registry.Registry, said: dict[str, Any]
) -> None:
    real.image("library/empty", said, "1")
    found = (await reader.image_config("empty:1")).config
    assert not found.env
    assert not found.entrypoint
    assert not found.cmd
    assert not found.user
    assert found.healthcheck is None


@pytest.mark.parametrize("form", ["docker", "oci"])
@pytest.mark.skipif(not shutil.which("buildah") or os.geteuid() != 0, reason="needs buildah and root")
async def test_an_image_that_buildah_made(
    real: RealRegistry, reader: registry.Registry, tmp_path: Path, form: str
) -> None:
    base = [
        "buildah",
        "--root",
        str(tmp_path / "root"),
        "--runroot",
        str(tmp_path / "run"),
        "--storage-driver",
        "vfs",
    ]

    def buildah(*arguments: str) -> str:
        done = subprocess.run([*base, *arguments], capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.strip()

    made = buildah("from", "scratch")
    options = [
        "--env",
        "GREETING=hello world",
        "--user",
        "app",
        "--workingdir",
        "/srv",
        "--entrypoint",
        '["/entry"]',
    ]
    health = ["--healthcheck", "CMD-SHELL true"] if form == "docker" else []
    buildah("config", *options, *health, made)
    buildah("commit", "--format", form, made, "built")
    target = f"docker://{real.url.removeprefix('http://')}/library/built:{form}"
    buildah("push", "--tls-verify=false", "--format", {"docker": "v2s2", "oci": "oci"}[form], "built", target)

    found = (await reader.image_config(f"built:{form}")).config
    assert found.env["GREETING"] == "hello world"
    assert (found.user, found.workdir, list(found.entrypoint or ())) == ("app", "/srv", ["/entry"])
    assert (found.healthcheck is not None) == (form == "docker")


# Errors of a real registry


@pytest.mark.parametrize("name", ["library/nothing:1", "library/single:nothing", f"library/single@{DIGEST}"])
async def test_what_is_not_found(real: RealRegistry, reader: registry.Registry, name: str) -> None:
    real.image("library/single", config(), "1")
    with pytest.raises(registry.ImageNotFound) as caught:
        await reader.image_config(name)
    assert isinstance(caught.value, errors.RegistryError)
    assert name.partition("@")[0] in str(caught.value)
    assert real.url.removeprefix("http://") in str(caught.value)
    assert caught.value.remedy


async def test_unreachable_is_said_at_once() -> None:
    port = ports.free()
    async with (
        registry.Registry({"_default": [f"http://127.0.0.1:{port}"]}, upstream=False) as reader,
        asyncio.timeout(60),
    ):
        with pytest.raises(registry.Unreachable, match=str(port)) as caught:
            await reader.image_config("python:3.13-slim")
    assert "registry.mirrors" in caught.value.remedy


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    """A registry that wants Basic authentication of ada:secret."""
    folder = tmp_path_factory.mktemp("basic")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        crypt = pytest.importorskip("crypt")  # until Python 3.12
    (folder / "htpasswd").write_text(f"ada:{crypt.crypt('secret', '$2b$05$' + 'a' * 22)}\n")
    with running(folder, {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}) as started:
        started.headers["Authorization"] = "Basic " + base64.b64encode(b"ada:secret").decode()
        started.image("library/private", config(), "1")
        yield started


def host(of: RealRegistry) -> str:
    return of.url.removeprefix("http://")


async def test_a_login(basic: RealRegistry) -> None:
    auth = {host(basic): registry.Credential("ada", "secret")}
    async with registry.Registry({"docker.io": [basic.url]}, auth, upstream=False) as reader:
        assert (await reader.image_config("private:1")).config.env == {"A": "1"}


@pytest.mark.parametrize("password", [None, "wrong"])
async def test_a_login_that_is_missing_or_wrong(basic: RealRegistry, password: str | None) -> None:
    auth = {host(basic): registry.Credential("ada", password)} if password else {}
    async with registry.Registry({"docker.io": [basic.url]}, auth, upstream=False) as reader:
        with pytest.raises(registry.Unauthorised) as caught:
            await reader.image_config("private:1")
    assert "spec.pod.imagePullSecrets" in caught.value.remedy
    assert "wrong" not in str(caught.value)
    assert ("'ada'" if password else "anonymous") in str(caught.value)


async def test_a_login_is_not_sent_to_another_host(basic: RealRegistry) -> None:
    auth = {
        "docker.io": registry.Credential("ada", "secret"),
        "127.0.0.1": registry.Credential("ada", "secret"),
    }
    async with registry.Registry({"docker.io": [basic.url]}, auth, upstream=False) as reader:
        with pytest.raises(registry.Unauthorised, match="anonymous"):
            await reader.image_config("private:1")


async def test_a_login_of_the_asker_goes_to_the_images_own_host_only() -> None:
    ours, theirs = registry.Credential("ours", "x"), [registry.Credential(name, "x") for name in "ab"]
    async with registry.Registry(
        {"reg.example": ["http://mirror:81"]}, {"mirror:81": ours, "reg.example": ours}
    ) as reader:
        name = registry.Reference.parse("reg.example/a:1")
        asked = {
            who: [(each.url.host, each.credential, each.own) for each in reader._endpoints(name, logins)]
            for who, logins in (("nobody", []), ("somebody", theirs))
        }
    assert asked == {
        "nobody": [("mirror", ours, False), ("reg.example", ours, False)],
        "somebody": [("mirror", ours, False), *(("reg.example", login, True) for login in theirs)],
    }


class Private(registry.Registry):
    """Its image's own host is a registry of this test, without TLS."""

    url = ""

    def _endpoints(
        self, name: registry.Reference, own: Sequence[registry.Credential]
    ) -> Iterator[registry_http.Endpoint]:
        for login in own or (None,):
            session = self._session(inside=True)
            yield registry_http.Endpoint(URL(self.url), {}, session, login, own=bool(own))


async def test_what_was_read_with_a_login_is_for_that_login_only(basic: RealRegistry) -> None:
    def logins(password: str) -> list[pull_secrets.Login]:
        return [pull_secrets.Login("docker.io", registry.Credential("ada", password))]

    async with Private() as reader:
        reader.url = basic.url
        record = await reader.image_config("private:1", logins=[*logins("old"), *logins("secret")])
        assert record.config.env == {"A": "1"}
        for reference in ("private:1", f"private@{record.digest}"):
            assert await reader.image_config(reference, logins=logins("secret")) == record
            for wrong in (
                [],
                logins("wrong"),
                [pull_secrets.Login("other.example", registry.Credential("ada", "secret"))],
            ):
                with pytest.raises(registry.Unauthorised):
                    await reader.image_config(reference, logins=wrong)


def test_a_password_is_not_printed() -> None:
    assert "secret" not in repr(registry.Credential("ada", "secret"))


# Bearer tokens: the real registry checks tokens that a server of the test signs


@dataclass
class TokenServer:
    """Gives anonymous clients tokens for `public/…`, ada:secret for everything."""

    key: Path
    certificate: str
    url: str = ""
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        scope = request.query["scope"]
        self.asked.append(scope)
        kind, name, actions = scope.split(":")
        login = request.headers.get("Authorization")
        if login not in (None, "Basic " + base64.b64encode(b"ada:secret").decode()):
            return web.json_response({"details": "no"}, status=401)
        granted = (
            [{"type": kind, "name": name, "actions": actions.split(",")}] if login or name.startswith("public/") else []
        )
        return web.json_response({"token": self.sign(granted, request.query["service"])})

    def sign(self, access: list[dict[str, Any]], service: str) -> str:
        now = int(time.time())
        header = {"typ": "JWT", "alg": "RS256", "x5c": [self.certificate]}
        claims = {
            "iss": "tests",
            "sub": "",
            "aud": service,
            "exp": now + 60,
            "nbf": now - 10,
            "iat": now,
            "jti": str(now),
            "access": access,
        }
        text = ".".join(encoded(packed(part)) for part in (header, claims))
        command = ["openssl", "dgst", "-sha256", "-sign", str(self.key)]
        signature = subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout
        return f"{text}.{encoded(signature)}"


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@contextlib.asynccontextmanager
async def serving(handler: Any, port: int = 0) -> AsyncIterator[str]:
    """A scripted HTTP server on loopback; its URL."""
    application = web.Application()

    async def handle(request: web.Request) -> web.StreamResponse:
        answer: web.StreamResponse = await handler(request)
        return answer

    application.router.add_route("*", "/{tail:.*}", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
async def tokens(tmp_path: Path) -> AsyncIterator[tuple[TokenServer, RealRegistry]]:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=tests",
        "-days",
        "2",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run(command, check=True, capture_output=True)
    server = TokenServer(key, "".join(certificate.read_text().splitlines()[1:-1]))
    async with serving(server.answer) as url:
        server.url = f"{url}/token"
        settings = {
            "realm": server.url,
            "service": "tests",
            "issuer": "tests",
            "rootcertbundle": str(certificate),
        }
        with running(tmp_path, {"token": settings}) as started:
            for repository in ("public/one", "public/two", "private/one"):
                grant = [{"type": "repository", "name": repository, "actions": ["pull", "push"]}]
                started.headers["Authorization"] = f"Bearer {server.sign(grant, 'tests')}"
                await asyncio.to_thread(started.image, repository, config(f"R={repository}"), "1")
            yield server, started


async def test_anonymous_tokens_one_for_each_repository(tokens: tuple[TokenServer, RealRegistry]) -> None:
    server, started = tokens
    async with registry.Registry({"docker.io": [started.url]}, upstream=False) as reader:
        for repository in ("public/one", "public/two", "public/one"):
            assert (await reader.image_config(f"{repository}:1")).config.env == {"R": repository}
    assert set(server.asked) == {"repository:public/one:pull", "repository:public/two:pull"}


async def test_a_token_for_a_login(tokens: tuple[TokenServer, RealRegistry]) -> None:
    _, started = tokens
    for password, good in (("secret", True), ("wrong", False), (None, False)):
        auth = {host(started): registry.Credential("ada", password)} if password else {}
        async with registry.Registry({"docker.io": [started.url]}, auth, upstream=False) as reader:
            if good:
                assert (await reader.image_config("private/one:1")).config.env == {"R": "private/one"}
            else:
                with pytest.raises(registry.Unauthorised):
                    await reader.image_config("private/one:1")


# Mirrors, cache, and answers that no real registry gives


@dataclass
class Script:
    """Answers by path; 404 for the rest. Remembers every request as `METHOD path?query`."""

    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)

    async def __call__(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path_qs}")
        self.logins.append(request.headers.get("Authorization"))
        status, headers, body = self.answers.get(request.path, (404, {}, b""))
        return web.Response(status=status, headers=headers, body=body)

    def image(self, repository: str, said: object) -> str:
        body = packed(said)
        manifest = packed(
            {
                "schemaVersion": 2,
                "mediaType": OCI_MANIFEST,
                "config": {"digest": digest_of(body), "size": len(body)},
            }
        )
        headers = {"Docker-Content-Digest": digest_of(manifest), "Content-Type": OCI_MANIFEST}
        for name in ("1", digest_of(manifest)):
            self.answers[f"/v2/{repository}/manifests/{name}"] = (200, headers, manifest)
        self.answers[f"/v2/{repository}/blobs/{digest_of(body)}"] = (200, {}, body)
        return digest_of(manifest)


@contextlib.asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[registry.Registry]:
    async with serving(script) as url, registry.Registry({"_default": [url]}, upstream=False) as reader:
        yield reader


async def test_mirrors_are_asked_in_order_with_the_namespace(real: RealRegistry) -> None:
    real.image("library/mirrored", config(), "1")
    first = Script()
    async with (
        serving(first) as url,
        registry.Registry({"docker.io": [url, real.url]}, upstream=False) as reader,
    ):
        assert (await reader.image_config("mirrored:1")).config.env == {"A": "1"}
    assert first.asked == ["HEAD /v2/library/mirrored/manifests/1?ns=docker.io"]


async def test_a_mirror_that_is_down_is_passed_over(real: RealRegistry) -> None:
    real.image("library/mirrored", config(), "1")
    down = f"http://127.0.0.1:{ports.free()}"
    async with registry.Registry({"docker.io": [down, real.url]}, upstream=False) as reader:
        assert (await reader.image_config("mirrored:1")).config.env == {"A": "1"}


async def test_a_mirror_below_a_path_and_the_default(real: RealRegistry) -> None:
    other, default = Script(), Script()
    other.image("proxy/team/app", config("FROM=other"))
    other.answers = {path.replace("/v2/proxy", "/proxy/v2"): answer for path, answer in other.answers.items()}
    default.image("team/app", config("FROM=default"))
    async with serving(other) as other_url, serving(default) as default_url:
        mirrors = {"ghcr.io": [f"{other_url}/proxy/"], "_default": [default_url]}
        async with registry.Registry(mirrors, upstream=False) as reader:
            assert (await reader.image_config("ghcr.io/team/app:1")).config.env == {"FROM": "other"}
            assert (await reader.image_config("quay.io/team/app:1")).config.env == {"FROM": "default"}
    assert all(asked.endswith("?ns=quay.io") for asked in default.asked)


async def test_the_error_names_every_endpoint_and_the_last_one_decides(real: RealRegistry) -> None:
    port = ports.free()
    for urls, expected in (
        ([f"http://127.0.0.1:{port}", real.url], registry.ImageNotFound),
        ([real.url, f"http://127.0.0.1:{port}"], registry.Unreachable),
    ):
        async with registry.Registry({"docker.io": urls}, upstream=False) as reader:
            with pytest.raises(expected) as caught:
                await reader.image_config("nothing:1")
        assert all(url.removeprefix("http://") in str(caught.value) for url in urls)


@pytest.mark.parametrize("url", ["127.0.0.1:5000", "ftp://h", "http://", "http://ada:secret@h", "http://h?x=1"])
def test_a_mirror_that_is_no_url(url: str) -> None:
    with pytest.raises(errors.RegistryError) as caught:
        registry.Registry({"docker.io": [url]})
    assert "secret" not in str(caught.value)


async def test_a_known_image_costs_one_head_and_a_known_digest_nothing() -> None:
    script = Script()
    digest = script.image("library/app", config())
    async with scripted(script) as reader:
        first = await reader.image_config("app:1")
        assert len(script.asked) == 3
        assert await reader.image_config("app:1") is first
        assert await reader.image_config(f"app@{digest}") is first
    assert [asked.split("?")[0] for asked in script.asked[3:]] == ["HEAD /v2/library/app/manifests/1"]


async def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "CACHED_IMAGES", 2)
    script = Script()
    digests = [script.image("library/app", config(f"N={number}")) for number in range(3)]
    async with scripted(script) as reader:
        for digest in (*digests, *digests[1:]):
            await reader.image_config(f"app@{digest}")
        assert len(script.asked) == 6
        await reader.image_config(f"app@{digests[0]}")
        assert len(script.asked) == 8


async def test_a_burst_of_one_image_causes_few_requests() -> None:
    script = Script()
    digest = script.image("library/app", config())
    async with scripted(script) as reader:
        records = await asyncio.gather(*(reader.image_config(f"app@{digest}") for _ in range(200)))
    assert {record.digest for record in records} == {digest}
    assert len(script.asked) <= 2 * registry.LOOKUPS


def hostile(name: str) -> Script:
    script = Script()
    script.image("library/app", config())
    manifest, blob = "/v2/library/app/manifests/1", next(path for path in script.answers if "/blobs/" in path)
    answers = script.answers
    child = {"digest": DIGEST, "size": 2, "platform": {"os": "linux", "architecture": "amd64"}}
    match name:
        case "manifest-too-large":
            answers[manifest] = (200, {}, b" " * (registry.MANIFEST_BYTES + 1))
        case "config-too-large":
            answers[blob] = (200, {}, b" " * (registry.CONFIG_BYTES + 1))
        case "config-of-another-digest":
            answers[blob] = (200, {}, packed(config("EVIL=1")))
        case "child-of-another-digest":
            answers[manifest] = (200, {}, packed({"manifests": [child]}))
            answers[f"/v2/library/app/manifests/{DIGEST}"] = (200, {}, b"{}")
        case "not-json":
            answers[manifest] = (200, {}, b"<html>")
        case "not-an-object":
            answers[manifest] = (200, {}, b"[]")
        case "deep":
            answers[manifest] = (200, {}, b"[" * 100_000)
        case "schema-1":
            answers[manifest] = (200, {}, packed({"schemaVersion": 1, "fsLayers": [], "history": []}))
        case "digest-with-a-path":
            answers[manifest] = (200, {}, packed({"config": {"digest": "sha256:../../../token"}}))
        case "compressed":
            answers[manifest] = (200, {"Content-Encoding": "gzip"}, b"\x1f\x8b")
        case "index-in-index-in-index":
            body = packed({"manifests": [child]})
            for _ in range(3):
                answers[f"/v2/library/app/manifests/{digest_of(body)}"] = (200, {}, body)
                body = packed({"manifests": [child | {"digest": digest_of(body)}]})
            answers[manifest] = (200, {}, body)
        case "config-of-strange-types":
            strange = packed({"config": {"Env": "A=1", "Cmd": [1], "User": {}, "WorkingDir": []}})
            body = packed({"config": {"digest": digest_of(strange)}})
            answers[manifest] = (200, {}, body)
            answers[f"/v2/library/app/blobs/{digest_of(strange)}"] = (200, {}, strange)
        case _:
            raise AssertionError(name)
    return script


@pytest.mark.parametrize(
    "name",
    [
        "manifest-too-large",
        "config-too-large",
        "config-of-another-digest",
        "child-of-another-digest",
        "not-json",
        "not-an-object",
        "deep",
        "schema-1",
        "digest-with-a-path",
        "compressed",
        "index-in-index-in-index",
        "config-of-strange-types",
    ],
)
async def test_an_answer_that_is_no_image(name: str) -> None:
    async with scripted(hostile(name)) as reader:
        with pytest.raises(registry.InvalidImage) as caught:
            await reader.image_config("app:1")
    assert caught.value.remedy
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, b"", registry.ImageNotFound),
        (403, packed({"errors": [{"code": "DENIED", "message": "no\x1b[2J\nentry"}]}), registry.Unauthorised),
        (401, b"", registry.Unauthorised),
        (429, b"", registry.Unreachable),
        (500, b"\xff", registry.Unreachable),
        (503, packed({"errors": []}), registry.Unreachable),
        (204, b"", registry.Unreachable),
    ],
)
async def test_statuses(status: int, body: bytes, expected: type[Exception]) -> None:
    script = Script({"/v2/library/app/manifests/1": (status, {}, body)})
    async with scripted(script) as reader:
        with pytest.raises(expected):
            await reader.image_config("app:1")


@pytest.mark.parametrize(
    "challenge",
    [
        "",
        "Bearer",
        'Bearer realm=""',
        'Bearer realm="/token"',
        'Bearer realm="file:///etc/passwd"',
        "Negotiate",
        'Basic realm="x"',
        'Bearer realm="http://[bad"',
    ],
)
async def test_a_challenge_that_cannot_be_met(challenge: str) -> None:
    script = Script({"/v2/library/app/manifests/1": (401, {"WWW-Authenticate": challenge} if challenge else {}, b"")})
    async with scripted(script) as reader:
        with pytest.raises(errors.RegistryError):
            await reader.image_config("app:1")
    assert len(script.asked) == 1


async def test_a_login_does_not_follow_a_redirect() -> None:
    elsewhere, script = Script(), Script()
    script.image("library/app", config())
    blob = next(path for path in script.answers if "/blobs/" in path)
    elsewhere.answers["/cdn"] = script.answers[blob]
    async with serving(elsewhere) as other:
        script.answers[blob] = (307, {"Location": f"{other}/cdn"}, b"")

        async def login_first(request: web.Request) -> web.Response:
            if "Authorization" not in request.headers:
                return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
            return await script(request)

        async with serving(login_first) as guarded:
            auth = {guarded.removeprefix("http://"): registry.Credential("ada", "secret")}
            async with registry.Registry({"_default": [guarded]}, auth, upstream=False) as reader:
                assert (await reader.image_config("app:1")).config.env == {"A": "1"}
    assert all(script.logins)
    assert elsewhere.logins == [None]


async def test_a_registry_that_never_answers_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LOOKUP_SECONDS", 0.2)

    async def silent(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(silent) as url, registry.Registry({"_default": [url]}, upstream=False) as reader:
        with pytest.raises(registry.Unreachable, match="no answer within"):
            await reader.image_config("app:1")


# A task names an address inside


async def test_a_private_address_is_not_contacted_unless_it_is_trusted() -> None:
    connections = 0

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, registry.Registry() as reader:
        for name in (f"127.0.0.1:{port}/a", f"localhost:{port}/a"):
            with pytest.raises(registry.Unreachable, match="not a public address") as caught:
                await reader.image_config(name)
            assert "registry.trustedHosts" in caught.value.remedy
        assert connections == 0
        async with registry.Registry(trusted_hosts=[f"127.0.0.1:{port}"]) as trusting:
            with pytest.raises(registry.Unreachable):
                await trusting.image_config(f"127.0.0.1:{port}/a")
        assert connections > 0


@pytest.mark.parametrize(
    ("address", "public"),
    {
        "127.0.0.1": False,
        "10.0.0.1": False,
        "172.16.0.1": False,
        "192.168.1.1": False,
        "169.254.169.254": False,
        "100.64.0.1": False,
        "0.0.0.0": False,
        "::1": False,
        "fe80::1%2": False,
        "fd00::1": False,
        "::ffff:10.0.0.1": False,
        "1.1.1.1": True,
        "2606:4700::1111": True,
    }.items(),
)
def test_public_addresses(address: str, public: bool) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    info = (family, socket.SOCK_STREAM, 0, "", (address, 443))
    if public:
        registry_http.public_socket(info).close()  # makes a socket; connects to nothing
    else:
        with pytest.raises(PermissionError):
            registry_http.public_socket(info)
