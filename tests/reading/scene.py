"""A cluster that aggregates the results API of an operator on this machine, and people who ask it.

The API server of the local cluster lives in a network namespace without a way to the host. So a socket is made in that
namespace and listened to from outside of it, the other way round than the cluster's own forwarder does it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import kubernetes.client as k8s
import pytest
import yaml
from hack.cluster import settings as local
from kubernetes.client.exceptions import ApiException

from tests.conformance import harness

__all__ = ["IncompleteRead"]

GROUP, VERSION = "results.taskfold.dev", "v1alpha1"
ROOT = f"/apis/{GROUP}/{VERSION}"
LISTEN = """
import os, socket, sys
listener = socket.create_server((sys.argv[1], 0), backlog=128)
listener.set_inheritable(True)
print(listener.getsockname()[1], flush=True)
target = f"{listener.fileno()}={sys.argv[3]}"
os.execvp("nsenter", ["nsenter", f"--net={sys.argv[4]}", "--", sys.argv[2], target])
"""


SERVE = """
import signal, sys, yaml
from pathlib import Path
from taskfold.api.settings import Settings
from taskfold.cli import operator
from taskfold.reading import server
operator._log("text")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with server.beside(Settings.model_validate(yaml.safe_load(Path(sys.argv[1]).read_text()))):
    signal.pause()
"""
"""The part of an operator that serves results, without the rest: these tests' runs are finished already."""


class Server(harness.Operator):
    """A process that serves results and does nothing else."""

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVE, str(self.config)],
                stdout=log,
                stderr=log,
                env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "PYTHONPATH": str(harness.ROOT / "operator")},
            )
        try:
            self.ready()
        except AssertionError:
            self.kill()
            raise

    def ready(self, seconds: float = 60.0) -> None:
        """Wait until its port takes connections."""
        port = yaml.safe_load(self.config.read_text())["reading"]["port"]
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.running:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                return
            time.sleep(harness.POLL_SECONDS)
        raise AssertionError(f"it does not listen; its log ends:\n{self.text()[-3000:]}")


def local_cluster() -> local.Settings:
    """The cluster of `make cluster`, which runs."""
    found = local.running(local.read({}))
    if found is None or "TASKFOLD_KUBECONFIG" in os.environ:
        pytest.fail("these tests let the API server reach this machine, which needs the cluster of `make cluster`")
    return found


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def self_signed(folder: Path, file: str, common_name: str, *names: str) -> tuple[Path, Path]:
    """Certificate and key; the certificate is its own authority."""
    certificate, key = folder / f"{file}.crt", folder / f"{file}.key"
    extensions = ["-addext", f"subjectAltName={','.join(names)}"] if names else []
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"),
        *("-subj", f"/CN={common_name}", "-keyout", key, "-out", certificate),
        *extensions,
    )
    return certificate, key


def signed_by(folder: Path, file: str, common_name: str, authority: tuple[Path, Path]) -> tuple[Path, Path]:
    """Certificate and key of a client, signed by this authority."""
    certificate, key, request = folder / f"{file}.crt", folder / f"{file}.key", folder / f"{file}.csr"
    openssl(
        *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", f"/CN={common_name}", "-keyout", key, "-out", request),
    )
    signer = ("-CA", authority[0], "-CAkey", authority[1], "-CAcreateserial", "-days", "30")
    openssl("x509", "-req", "-in", request, *signer, "-out", certificate)
    return certificate, key


@contextlib.contextmanager
def reached_from_inside(cluster: local.Settings, port: int) -> Iterator[int]:
    """The port at the control plane's address that leads to this port of the host's loopback."""
    inside = ["nsenter", f"--net=/run/netns/{cluster.control_namespace}", "--", sys.executable, "-c", LISTEN]
    forward = cluster.bin / "forward"
    own = f"/proc/{os.getpid()}/ns/net"
    command = [*inside, str(cluster.control_address), str(forward), f"127.0.0.1:{port}", own]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@dataclass
class Aggregated:
    """The API as an APIService, with the objects that lead to the operator's port."""

    cluster: harness.Cluster
    namespace: str
    made: list[tuple[str, str]] = field(default_factory=list)

    def register(self, authority: bytes, address: str, port: int) -> None:
        """Lead the API here, whatever was registered before by a session that died."""
        name = f"reading-{secrets.token_hex(3)}"
        meta = {"name": name, "namespace": self.namespace}
        service = {"metadata": meta, "spec": {"clusterIP": "None", "ports": [{"name": "https", "port": port}]}}
        self.cluster.core.create_namespaced_service(self.namespace, service)
        endpoints = {
            "metadata": {**meta, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }
        k8s.DiscoveryV1Api(self.cluster.core.api_client).create_namespaced_endpoint_slice(self.namespace, endpoints)
        body = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "caBundle": base64.b64encode(authority).decode(),
                "service": {"namespace": self.namespace, "name": name, "port": port},
            },
        }
        self.remove()
        self.create(body)

    def read(self) -> dict[str, Any]:
        """The APIService, for `create`."""
        services = k8s.ApiregistrationV1Api(self.cluster.core.api_client)
        found = services.api_client.sanitize_for_serialization(services.read_api_service(f"{VERSION}.{GROUP}"))
        return {**found, "metadata": {"name": found["metadata"]["name"]}, "status": {}}

    def create(self, body: dict[str, Any]) -> None:
        """And wait until it is available."""
        services = k8s.ApiregistrationV1Api(self.cluster.core.api_client)
        services.create_api_service(body)

        def available() -> bool:
            found = services.read_api_service(f"{VERSION}.{GROUP}").status
            return any(c.type == "Available" and c.status == "True" for c in (found and found.conditions) or ())

        try:
            self.cluster.until(available, "the APIService is available", 60)
        except AssertionError as error:
            raise AssertionError(f"{error}: {services.read_api_service(f'{VERSION}.{GROUP}').status}") from None

    def remove(self) -> None:
        with contextlib.suppress(ApiException):
            k8s.ApiregistrationV1Api(self.cluster.core.api_client).delete_api_service(f"{VERSION}.{GROUP}")


@dataclass(frozen=True)
class Answer:
    """What somebody got."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Login:
    """Somebody at the API server, or at the operator's port itself."""

    def __init__(self, server: str, context: ssl.SSLContext, headers: Mapping[str, str] | None = None) -> None:
        self.server, self.context, self.headers = server, context, dict(headers or {})

    def open(self, path: str) -> Any:
        """The answer as a stream."""
        request = urllib.request.Request(self.server + path, headers=self.headers)
        return urllib.request.urlopen(request, context=self.context, timeout=60)

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        more = {key.replace("_", "-"): value for key, value in headers.items()}
        request = urllib.request.Request(self.server + path, headers={**self.headers, **more}, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=60) as response:
                return Answer(response.status, response.read(), response.headers)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read(), error.headers)


def kubeconfig_data(path: Path) -> tuple[str, str]:
    """Server and authority."""
    cluster = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]
    return cluster["server"], base64.b64decode(cluster["certificate-authority-data"]).decode()


@dataclass
class People:
    """Makes logins of every kind, and kubeconfigs of theirs."""

    cluster: harness.Cluster
    folder: Path

    def by_certificate(self, user: str, *groups: str) -> Path:
        """A kubeconfig with a client certificate that the cluster signed."""
        name = f"{user}-{secrets.token_hex(3)}"
        key, request = self.folder / f"{name}.key", self.folder / f"{name}.csr"
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        openssl(
            *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", subject, "-keyout", key, "-out", request),
        )
        api = k8s.CertificatesV1Api(self.cluster.core.api_client)
        spec = {
            "request": base64.b64encode(request.read_bytes()).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": 3600,
            "usages": ["client auth"],
        }
        asked = api.create_certificate_signing_request({"metadata": {"name": name}, "spec": spec})
        try:
            condition = {"type": "Approved", "status": "True", "reason": "Test", "message": "a test's user"}
            body = asked.to_dict()
            body = api.api_client.sanitize_for_serialization(asked)
            body["status"] = {"conditions": [condition]}
            api.replace_certificate_signing_request_approval(name, body)
            certificate = self.cluster.until(
                lambda: api.read_certificate_signing_request(name).status.certificate, f"a certificate for {user}"
            )
        finally:
            api.delete_certificate_signing_request(name)
        material = {
            "client-certificate-data": certificate,
            "client-key-data": base64.b64encode(key.read_bytes()).decode(),
        }
        return self._kubeconfig(name, material)

    def by_token(self, namespace: str, account: str) -> Path:
        """A kubeconfig with the token of a new service account."""
        self.cluster.core.create_namespaced_service_account(namespace, {"metadata": {"name": account}})
        token = self.cluster.core.create_namespaced_service_account_token(
            account, namespace, {"spec": {"expirationSeconds": 3600}}
        )
        return self._kubeconfig(f"{namespace}-{account}", {"token": token.status.token})

    def nobody(self) -> Login:
        server, authority = kubeconfig_data(self.cluster.kubeconfig)
        return Login(server, ssl.create_default_context(cadata=authority))

    def login(self, kubeconfig: Path) -> Login:
        server, authority = kubeconfig_data(kubeconfig)
        user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
        context = ssl.create_default_context(cadata=authority)
        if "token" in user:
            return Login(server, context, {"Authorization": f"Bearer {user['token']}"})
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]))
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
        return Login(server, context)

    def _kubeconfig(self, name: str, user: Mapping[str, str]) -> Path:
        server, authority = kubeconfig_data(self.cluster.kubeconfig)
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
                    },
                }
            ],
            "users": [{"name": name, "user": dict(user)}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": name}}],
            "current-context": "c",
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(document))
        return path


def allow(cluster: harness.Cluster, namespace: str, subject: Mapping[str, str], *resources: str) -> None:
    """`get` on these subresources in this namespace; and on runs, as `view` would give it."""
    api = k8s.RbacAuthorizationV1Api(cluster.core.api_client)
    name = f"reader-{secrets.token_hex(3)}"
    rules = [{"apiGroups": ["taskfold.dev"], "resources": ["taskruns", "verifierruns"], "verbs": ["get"]}]
    rules += [{"apiGroups": [GROUP], "resources": [each], "verbs": ["get"]} for each in resources]
    api.create_namespaced_role(namespace, {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    body = {"metadata": {"name": name}, "roleRef": role, "subjects": [dict(subject)]}
    api.create_namespaced_role_binding(namespace, body)


def user(name: str) -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


def account(namespace: str, name: str) -> dict[str, str]:
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def when_answered(login: Login, path: str, status: int, seconds: float = 20.0) -> Answer:
    """The first answer with this status: a right that was just given takes a moment in the API server."""
    deadline = time.monotonic() + seconds
    while (answer := login.get(path)).status != status:
        assert time.monotonic() < deadline, (answer.status, answer.body[:500])
        time.sleep(0.1)
    return answer
