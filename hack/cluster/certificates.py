"""The cluster's own certificate authorities, its certificates and the kubeconfigs that use them.

Made by the openssl program, kept below the state folder, gone with it. Two authorities: one for everybody who talks to
the API server, one only for the API server itself when it passes a user's request on to an API server beside it
(`front_proxy`); a certificate of the one means nothing to the other.
"""

import base64
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.settings import ClusterError, Settings

DAYS = "365"
FRONT_PROXY = "front-proxy-client"
"""Common name of the API server where it speaks for a user."""


@dataclass(frozen=True)
class Identity:
    file: str
    common_name: str
    organization: str = ""
    names: tuple[str, ...] = ()  # subject alternative names; only servers have them


def identities(settings: Settings) -> list[Identity]:
    service = (
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    )
    api_names = (
        *(f"DNS:{name}" for name in (*service, "localhost")),
        *(f"IP:{ip}" for ip in ("127.0.0.1", settings.control_address, settings.api_service_address)),
    )
    people = [
        Identity("apiserver", "kube-apiserver", names=api_names),
        Identity("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
        Identity("admin", "taskfold-admin", "system:masters"),
        Identity("kube-controller-manager", "system:kube-controller-manager"),
        Identity("kube-scheduler", "system:kube-scheduler"),
        Identity("kube-proxy", "system:kube-proxy"),
        Identity("kube-router", "kube-router"),
    ]
    for number in settings.node_numbers():
        node = settings.node_name(number)
        address = f"IP:{settings.node_address(number)}"
        people.append(Identity(node, f"system:node:{node}", "system:nodes", (f"DNS:{node}", address)))
    return people


def make(settings: Settings) -> None:
    """Authority, service account key, one certificate and one kubeconfig for each identity."""
    folder = settings.certificates
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    _authority(folder, "ca", "taskfold-local-cluster")
    _openssl("genrsa", "-out", folder / "service-account.key", "2048")
    _openssl("rsa", "-in", folder / "service-account.key", "-pubout", "-out", folder / "service-account.pub")
    for identity in identities(settings):
        _certificate(folder, identity, "ca")
        write_kubeconfig(folder / f"{identity.file}.kubeconfig", folder, identity.file, settings.api_url_inside)
    write_kubeconfig(settings.kubeconfig, folder, "admin", settings.api_url)
    front_proxy(settings)


def front_proxy(settings: Settings) -> None:
    """What aggregation needs, unless it is there: an authority of its own, and the API server's certificate for it."""
    folder = settings.certificates
    if not (folder / "front-proxy-client.crt").exists():
        _authority(folder, "front-proxy-ca", "taskfold-local-front-proxy")
        _certificate(folder, Identity("front-proxy-client", FRONT_PROXY), "front-proxy-ca")


def write_kubeconfig(path: Path, folder: Path, user: str, server: str) -> None:
    """A kubeconfig with everything embedded, so that it works wherever it is copied."""

    def embedded(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "local", "cluster": {"server": server, "certificate-authority-data": embedded("ca.crt")}}
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": embedded(f"{user}.crt"),
                    "client-key-data": embedded(f"{user}.key"),
                },
            }
        ],
        "contexts": [{"name": "taskfold-local", "context": {"cluster": "local", "user": user}}],
        "current-context": "taskfold-local",
    }
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file, indent=2)  # JSON is YAML, too


def _authority(folder: Path, file: str, common_name: str) -> None:
    _key(folder / f"{file}.key")
    request = ["-x509", "-new", "-key", folder / f"{file}.key", "-subj", f"/CN={common_name}"]
    usage = ["-days", DAYS, "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    _openssl("req", *request, *usage, "-out", folder / f"{file}.crt")


def _certificate(folder: Path, identity: Identity, authority: str) -> None:
    key, request, certificate = (folder / f"{identity.file}.{suffix}" for suffix in ("key", "csr", "crt"))
    _key(key)
    organization = f"/O={identity.organization}" if identity.organization else ""
    _openssl("req", "-new", "-key", key, "-subj", f"{organization}/CN={identity.common_name}", "-out", request)
    lines = ["keyUsage=critical,digitalSignature", "extendedKeyUsage=clientAuth,serverAuth"]
    if identity.names:
        lines.append(f"subjectAltName={','.join(identity.names)}")
    extensions = folder / f"{identity.file}.ext"
    extensions.write_text("\n".join(lines) + "\n")
    signed_by = ["-CA", folder / f"{authority}.crt", "-CAkey", folder / f"{authority}.key"]
    signer = [*signed_by, "-CAcreateserial", "-days", DAYS]
    _openssl("x509", "-req", "-in", request, *signer, "-extfile", extensions, "-out", certificate)
    request.unlink()
    extensions.unlink()


def _key(path: Path) -> None:
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
    path.chmod(0o600)


def _openssl(*arguments: str | Path) -> None:
    command: Sequence[str] = ["openssl", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
