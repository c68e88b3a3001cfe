"""How to log in to the cluster: in a pod by its service account, elsewhere by kubeconfig.

Tokens rotate: a source reads again when a minute has passed and whenever the server said 401. Reading
happens in a thread. The `kubernetes` package costs 50 MB of memory, so it is imported only for users of an
exec plugin or an auth provider; files, certificates and static tokens are read here. Never writes a
kubeconfig, never logs a credential.
"""

import asyncio
import base64
import hashlib
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from taskfold.effects import errors

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FRESH_SECONDS = 60.0
PLUGIN_FRESH_SECONDS = 600.0  # an exec plugin is a process (a second for aws eks); 401 makes it run earlier


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request needs. `headers` hold the token."""

    server: str
    ssl: ssl.SSLContext | None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    namespace: str = "default"
    server_name: str | None = None
    proxy: str | None = None


@dataclass(frozen=True, slots=True)
class Login:
    """One reading of the configuration, before an SSL context is made of it."""

    server: str
    namespace: str = "default"
    ca: bytes | None = None
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    verify: bool = True
    server_name: str | None = None
    proxy: str | None = None
    extra_headers: Mapping[str, str] = field(default_factory=dict)


class Source:
    """Credentials that stay valid. Safe for concurrent use within one event loop."""

    def __init__(self, read: Callable[[], Login], *, fresh_seconds: float = FRESH_SECONDS) -> None:
        self._read = read
        self._fresh_seconds = fresh_seconds
        self._lock = asyncio.Lock()
        self._current: Credentials | None = None
        self._read_at = 0.0
        self._ssl: tuple[bytes, ssl.SSLContext | None] | None = None

    async def current(self) -> Credentials:
        """What to use now; reads again when the last reading is older than its freshness."""
        if self._current is not None and time.monotonic() - self._read_at < self._fresh_seconds:
            return self._current
        return await self._refresh(since=self._read_at)

    async def login(self) -> Login:
        """A fresh reading in its raw form, for a library that makes connections of its own."""
        return await asyncio.to_thread(self._read)

    async def renew(self, refused: Credentials) -> Credentials:
        """After a 401 with `refused`: read again unless somebody did since."""
        if self._current is not refused and self._current is not None:
            return self._current
        return await self._refresh(since=self._read_at)

    async def _refresh(self, since: float) -> Credentials:
        async with self._lock:
            if self._current is not None and self._read_at > since:
                return self._current
            try:
                self._current = await asyncio.to_thread(self._load)
            except errors.CredentialError:
                if self._current is None:
                    raise
                # A half-written token file: the last token is most likely good for minutes.
            self._read_at = time.monotonic()
            return self._current

    def _load(self) -> Credentials:
        try:
            login = self._read()
            context = self._context(login)
        except (OSError, ValueError, ssl.SSLError, yaml.YAMLError) as error:
            raise errors.CredentialError(f"cannot read the credentials: {error}") from error
        headers = dict(login.extra_headers)
        if login.token:
            headers["Authorization"] = f"Bearer {login.token}"
        return Credentials(
            server=login.server.rstrip("/"),
            ssl=context,
            headers=headers,
            namespace=login.namespace,
            server_name=login.server_name,
            proxy=login.proxy,
        )

    def _context(self, login: Login) -> ssl.SSLContext | None:
        """One context as long as its material is the same: connections are pooled by it."""
        material = (login.server.startswith("https"), login.ca, login.certificate, login.key, login.verify)
        fingerprint = hashlib.sha256(repr(material).encode()).digest()
        if self._ssl is None or self._ssl[0] != fingerprint:
            self._ssl = (fingerprint, _ssl_context(login))
        return self._ssl[1]


def static(server: str, token: str | None = None) -> Source:
    """A server and a token that never change, for `kubectl proxy` and tests."""
    return Source(lambda: Login(server=server, token=token))


def find(kubeconfig: str | None = None, *, context: str | None = None) -> Source:
    """The usual order: an explicit kubeconfig, $KUBECONFIG, the pod's service account, ~/.kube/config."""
    path = kubeconfig or os.environ.get("KUBECONFIG")
    if path:
        return from_kubeconfig(path, context=context)
    if "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists():
        return in_cluster()
    return from_kubeconfig(str(Path("~/.kube/config").expanduser()), context=context)


def in_cluster(directory: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> Source:
    """The service account of this pod."""

    def read() -> Login:
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise errors.CredentialError("not in a pod: KUBERNETES_SERVICE_HOST is not set", remedy="Set KUBECONFIG.")
        token = (directory / "token").read_text().strip()
        if not token:
            raise errors.CredentialError(f"{directory / 'token'} is empty")
        namespace = directory / "namespace"
        return Login(
            server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
            namespace=namespace.read_text().strip() if namespace.exists() else "default",
            ca=(directory / "ca.crt").read_bytes(),
            token=token,
        )

    return Source(read)


def from_kubeconfig(path: str, *, context: str | None = None) -> Source:
    """A kubeconfig, or several joined by `:` (the first that names a thing wins, as kubectl does)."""
    paths = [Path(part).expanduser() for part in path.split(os.pathsep) if part]
    user = _entry(_merged(paths), "users", _context_of(_merged(paths), context).get("user"))
    if "exec" in user or "auth-provider" in user:
        return Source(lambda: _read_by_plugin(path, context), fresh_seconds=PLUGIN_FRESH_SECONDS)
    return Source(lambda: _read_kubeconfig(paths, context))


def _merged(paths: list[Path]) -> dict[str, Any]:
    merged: dict[str, Any] = {"clusters": [], "users": [], "contexts": []}
    found = False
    for path in paths:
        try:
            config = yaml.safe_load(path.read_text()) or {}
        except FileNotFoundError:
            continue
        except (OSError, yaml.YAMLError) as error:
            raise errors.CredentialError(f"cannot read the kubeconfig: {error}", where=str(path)) from error
        found = True
        for key in ("clusters", "users", "contexts"):
            merged[key] += [{**entry, "_dir": path.parent} for entry in config.get(key) or ()]
        merged.setdefault("current-context", config.get("current-context"))
    if not found:
        raise errors.CredentialError(
            f"no kubeconfig at {', '.join(map(str, paths))}",
            remedy="Set KUBECONFIG or run inside the cluster.",
        )
    return merged


def _context_of(config: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    return _entry(config, "contexts", name or config.get("current-context"))


def _entry(config: Mapping[str, Any], kind: str, name: str | None) -> dict[str, Any]:
    for entry in config[kind]:
        if entry.get("name") == name:
            body = entry.get(kind[:-1]) or {}
            return {**body, "_dir": entry["_dir"]}
    raise errors.CredentialError(
        f"the kubeconfig has no {kind[:-1]} named {name!r}", remedy="See `kubectl config get-contexts`."
    )


def _material(entry: Mapping[str, Any], key: str) -> bytes | None:
    if data := entry.get(f"{key}-data"):
        return base64.b64decode(data)
    if name := entry.get(key):
        return Path(entry["_dir"], str(name)).read_bytes()
    return None


def _read_kubeconfig(paths: list[Path], name: str | None) -> Login:
    config = _merged(paths)
    context = _context_of(config, name)
    cluster = _entry(config, "clusters", context.get("cluster"))
    user = _entry(config, "users", context.get("user"))
    token = user.get("token")
    if token_file := user.get("tokenFile"):
        token = Path(user["_dir"], str(token_file)).read_text().strip()
    return Login(
        server=cluster["server"],
        namespace=context.get("namespace") or "default",
        ca=_material(cluster, "certificate-authority"),
        certificate=_material(user, "client-certificate"),
        key=_material(user, "client-key"),
        token=token,
        verify=not cluster.get("insecure-skip-tls-verify", False),
        server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
        extra_headers={"Impersonate-User": user["as"]} if user.get("as") else {},
    )


def _read_by_plugin(path: str, name: str | None) -> Login:
    """Exec plugins and auth providers: the `kubernetes` package knows them."""
    from kubernetes import client, config  # noqa: PLC0415  (50 MB; only here)

    loaded = client.Configuration()
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=path, context=name, client_configuration=loaded
        )
    except config.ConfigException as error:
        raise errors.CredentialError(f"the kubeconfig's plugin gave no credentials: {error}", where=path) from error
    bearer = (loaded.api_key or {}).get("authorization") or (loaded.api_key or {}).get("BearerToken") or ""
    merged = _merged([Path(part).expanduser() for part in path.split(os.pathsep) if part])
    return Login(
        server=loaded.host,
        namespace=_context_of(merged, name).get("namespace") or "default",
        ca=Path(loaded.ssl_ca_cert).read_bytes() if loaded.ssl_ca_cert else None,
        certificate=Path(loaded.cert_file).read_bytes() if loaded.cert_file else None,
        key=Path(loaded.key_file).read_bytes() if loaded.key_file else None,
        token=bearer.removeprefix("Bearer ") or None,
        verify=loaded.verify_ssl,
        server_name=loaded.tls_server_name,
        proxy=loaded.proxy,
    )


def _ssl_context(login: Login) -> ssl.SSLContext | None:
    if not login.server.startswith("https"):
        return None
    context = ssl.create_default_context(cadata=login.ca.decode() if login.ca else None)
    # Cluster CAs of kubeadm and others lack an authority key identifier, which Python 3.13 would demand.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", ssl.VerifyFlags(0))
    if not login.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if login.certificate and login.key:
        # Python takes a certificate only as a file; mkstemp makes it readable by us alone.
        descriptor, name = tempfile.mkstemp(prefix="taskfold-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(login.certificate + b"\n" + login.key)
            context.load_cert_chain(name)
        finally:
            Path(name).unlink()
    return context
