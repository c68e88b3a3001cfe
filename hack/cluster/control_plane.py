"""Starting etcd, the API server, its two controllers, the registry and the host's forwarder.

All of them live in the control namespace; what listens on 127.0.0.1 there is out of reach
of nodes and pods.
"""

import json
import socket
from contextlib import ExitStack

from hack.cluster import certificates, processes
from hack.cluster.api import Api, wait
from hack.cluster.settings import ClusterError, Settings


def start(settings: Settings) -> Api:
    """Start everything; returns a client when the API server is ready."""
    start_forwarder(settings)
    _start_etcd(settings)
    apiserver = _start_apiserver(settings)
    _start_registry(settings)
    api = Api(settings.kubeconfig)

    def ready() -> bool:
        processes.require_alive(settings, apiserver)
        return api.ready()

    wait("the API server's readiness", ready, 60, lambda: processes.tail(settings, "kube-apiserver"))
    # Not earlier: before the API server has made its default roles, they end with "forbidden".
    for name, argv in _controllers(settings).items():
        processes.start(settings, name, argv, namespace=settings.control_namespace)
    return api


def start_forwarder(settings: Settings) -> None:
    """Listen on the host's loopback, accept and dial in the control namespace.

    A listening socket belongs to the namespace it was made in, whoever holds it: so the
    host gets two loopback ports and nothing else.
    """
    with ExitStack() as sockets:
        pairs, descriptors = [], []
        for port, target, option in (
            (settings.api_port, f"{settings.control_address}:6443", "api-port"),
            (settings.registry_port, settings.registry_address, "registry-port"),
        ):
            listener = sockets.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError as error:
                raise ClusterError(
                    f"port {port} of 127.0.0.1 cannot be used ({error.strerror}): set --{option}"
                ) from None
            listener.listen(512)
            pairs.append(f"{listener.fileno()}={target}")
            descriptors.append(listener.fileno())
        processes.start(
            settings,
            "forward",
            [settings.bin / "forward", *pairs],
            namespace=settings.control_namespace,
            descriptors=descriptors,
        )


def _start_etcd(settings: Settings) -> None:
    url, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
    argv = [
        settings.bin / "etcd",
        "--name=local",
        f"--data-dir={settings.state / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=local={peers}",
        # Nobody needs this data after a power failure, and a test cluster on a slow disk spends
        # most of its time waiting for fsync.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]
    processes.start(settings, "etcd", argv, namespace=settings.control_namespace)


def _start_apiserver(settings: Settings) -> processes.Process:
    argv = apiserver_arguments(settings)
    return processes.start(settings, "kube-apiserver", argv, namespace=settings.control_namespace)


def apiserver_arguments(settings: Settings) -> list[str]:
    """The API server's command line: a running one that was started with another is of an earlier version of this."""
    keys = settings.certificates
    argv = [
        settings.bin / "kube-apiserver",
        f"--bind-address={settings.control_address}",
        f"--advertise-address={settings.control_address}",
        "--secure-port=6443",
        "--etcd-servers=http://127.0.0.1:2379",
        f"--client-ca-file={keys / 'ca.crt'}",
        f"--tls-cert-file={keys / 'apiserver.crt'}",
        f"--tls-private-key-file={keys / 'apiserver.key'}",
        f"--kubelet-certificate-authority={keys / 'ca.crt'}",
        f"--kubelet-client-certificate={keys / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={keys / 'apiserver-kubelet-client.key'}",
        # Node names resolve nowhere; without this, exec would try to.
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={keys / 'service-account.pub'}",
        f"--service-account-signing-key-file={keys / 'service-account.key'}",
        f"--service-cluster-ip-range={settings.service_range}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
        # API servers beside it (APIService objects): it asks them in a user's name, with a certificate that says so.
        f"--requestheader-client-ca-file={keys / 'front-proxy-ca.crt'}",
        f"--requestheader-allowed-names={certificates.FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={keys / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={keys / 'front-proxy-client.key'}",
        # Services have addresses that only kube-proxy knows, and there is none beside the API server.
        "--enable-aggregator-routing=true",
    ]
    return [*map(str, argv)]


def _controllers(settings: Settings) -> dict[str, list[object]]:
    keys = settings.certificates

    def common(name: str) -> list[object]:
        kubeconfig = keys / f"{name}.kubeconfig"
        return [
            settings.bin / name,
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--profiling=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ]

    manager = [
        *common("kube-controller-manager"),
        f"--cluster-cidr={settings.pod_range}",
        # `up` gives each Node its range, so that it is the one its bridge was made with.
        "--allocate-node-cidrs=false",
        "--use-service-account-credentials=true",
        # Its default is a folder of the host, which it would make.
        f"--flex-volume-plugin-dir={settings.state / 'volume-plugins'}",
        f"--service-account-private-key-file={keys / 'service-account.key'}",
        f"--root-ca-file={keys / 'ca.crt'}",
        f"--cluster-signing-cert-file={keys / 'ca.crt'}",
        f"--cluster-signing-key-file={keys / 'ca.key'}",
    ]
    return {"kube-controller-manager": manager, "kube-scheduler": common("kube-scheduler")}


def _start_registry(settings: Settings) -> None:
    """Plain HTTP on the bridge: nodes pull from it, the host pushes through the forwarder."""
    config = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(settings.state / "registry"), "maxthreads": 100},
            "delete": {"enabled": True},
        },
        "http": {"addr": settings.registry_address, "net": "tcp"},
    }
    path = settings.state / "registry.yml"
    path.write_text(json.dumps(config, indent=2))  # JSON is YAML, too
    processes.start(settings, "registry", ["docker-registry", "serve", path], namespace=settings.control_namespace)
