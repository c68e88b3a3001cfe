"""One node: containerd, kubelet, kube-proxy and kube-router in the node's network namespace."""

import json
import socket
from typing import Any

from hack.cluster import cgroups, processes
from hack.cluster.api import Api, wait
from hack.cluster.namespaces import POD_BRIDGE
from hack.cluster.settings import Settings

PAUSE_IMAGE = "taskfold.dev/pause:1"
CNI_PLUGINS = "/usr/lib/cni"
MAX_PODS = 250


def prepare(settings: Settings, number: int) -> None:
    """Write the node's configuration files and make its folders and cgroups."""
    state = settings.node_state(number)
    for folder in ("cni", "certs.d/_default", "kubelet", "pod-logs", "volume-plugins"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    settings.node_runtime(number).mkdir(parents=True, exist_ok=True)
    cgroups.make_node(settings.name, settings.node_name(number))
    (state / "containerd.toml").write_text(toml(containerd_config(settings, number)))
    (state / "certs.d/_default/hosts.toml").write_text(toml(mirror_config(settings)))
    (state / "cni/10-pods.conflist").write_text(json.dumps(cni_config(settings, number), indent=2))
    (state / "kubelet.json").write_text(json.dumps(kubelet_config(settings, number), indent=2))
    (state / "kube-proxy.json").write_text(json.dumps(proxy_config(settings, number), indent=2))
    (state / "resolv.conf").write_text("# No name server: nothing outside the cluster can be reached from it.\n")


def start(settings: Settings, number: int, api: Api) -> None:
    """Start the node's daemons. The Node object is made first, with the pod range of its bridge."""
    name, state, namespace = (
        settings.node_name(number),
        settings.node_state(number),
        settings.node_namespace(number),
    )
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {
                "podCIDR": str(settings.node_pods(number)),
                "podCIDRs": [str(settings.node_pods(number))],
            },
        }
    )
    containerd = processes.start(
        settings,
        f"{name}-containerd",
        [settings.bin / "containerd", "--config", state / "containerd.toml", "--log-level", "info"],
        namespace=namespace,
        # The first runc on the path is the one built here: Debian's has no user namespaces.
        environment={"PATH": f"{settings.bin}:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"},
    )

    def listens() -> bool:
        processes.require_alive(settings, containerd)
        return containerd_answers(settings, number)

    wait(f"containerd of {name}", listens, 30, lambda: processes.tail(settings, containerd.name))
    processes.start(
        settings,
        f"{name}-kubelet",
        [
            settings.bin / "kubelet",
            f"--config={state / 'kubelet.json'}",
            f"--kubeconfig={settings.certificates / f'{name}.kubeconfig'}",
            f"--root-dir={state / 'kubelet'}",
            f"--hostname-override={name}",
            f"--node-ip={settings.node_address(number)}",
        ],
        namespace=namespace,
    )
    processes.start(
        settings,
        f"{name}-kube-proxy",
        [settings.bin / "kube-proxy", f"--config={state / 'kube-proxy.json'}"],
        namespace=namespace,
    )


def start_policies(settings: Settings, number: int, api: Api) -> None:
    """Start the NetworkPolicy controller, which needs the address in the Node's status to begin."""
    name = settings.node_name(number)

    def registered() -> bool:
        node = api.get(f"/api/v1/nodes/{name}")
        return bool(node and node["status"].get("addresses"))

    wait(f"the registration of {name}", registered, 60, lambda: processes.tail(settings, f"{name}-kubelet"))
    processes.start(
        settings,
        f"{name}-kube-router",
        [
            settings.bin / "kube-router",
            f"--kubeconfig={settings.certificates / 'kube-router.kubeconfig'}",
            f"--hostname-override={name}",
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--run-loadbalancer=false",
            f"--service-cluster-ip-range={settings.service_range}",
            "--metrics-port=0",
            "--health-port=0",
        ],
        namespace=settings.node_namespace(number),
    )


def containerd_config(settings: Settings, number: int) -> dict[str, Any]:
    state, runtime = settings.node_state(number), settings.node_runtime(number)
    runc = {
        "runtime_type": "io.containerd.runc.v2",
        "options": {
            "BinaryName": str(settings.bin / "runc"),
            "Root": str(runtime / "runc"),
            "SystemdCgroup": False,
        },
    }
    # The loopback plugin would leave a file outside the state folder for each pod.
    loopback = {"use_internal_loopback": True}
    return {
        "version": 4,
        "root": str(state / "containerd"),
        "state": str(runtime),
        "imports": [],
        "disabled_plugins": ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp"],
        "plugins": {
            "io.containerd.server.v1.grpc": {"address": str(runtime / "containerd.sock")},
            "io.containerd.server.v1.ttrpc": {"address": str(runtime / "containerd.sock.ttrpc")},
            "io.containerd.shim.v1.manager": {"socket_dir": str(runtime / "s")},
            "io.containerd.internal.v1.opt": {"path": str(state / "opt")},
            "io.containerd.cri.v1.images": {
                "max_concurrent_downloads": 4,
                "pinned_images": {"sandbox": PAUSE_IMAGE},
                "registry": {"config_path": str(state / "certs.d")},
            },
            "io.containerd.cri.v1.runtime": {
                # Without CAP_SYS_RESOURCE runc cannot lower oom_score_adj and dies of it.
                "restrict_oom_score_adj": True,
                "netns_mounts_under_state_dir": True,
                "cni": {"bin_dirs": [CNI_PLUGINS], "conf_dir": str(state / "cni"), **loopback},
                "containerd": {"default_runtime_name": "runc", "runtimes": {"runc": runc}},
            },
        },
    }


def mirror_config(settings: Settings) -> dict[str, Any]:
    """Every upstream name is looked for in the cluster's registry, and nowhere else.

    containerd leaves the upstream's host out of the path: `ghcr.io/a/b:1` is `/v2/a/b/manifests/1`.
    """
    registry = f"http://{settings.registry_address}"
    return {"server": registry, "host": {registry: {"capabilities": ["pull", "resolve"]}}}


def cni_config(settings: Settings, number: int) -> dict[str, Any]:
    state = settings.node_state(number)
    return {
        "cniVersion": "1.0.0",
        "name": f"{settings.name}-pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": POD_BRIDGE,
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(state / "addresses"),
                    "ranges": [[{"subnet": str(settings.node_pods(number))}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet_config(settings: Settings, number: int) -> dict[str, Any]:
    state, name, keys = settings.node_state(number), settings.node_name(number), settings.certificates
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": str(settings.node_address(number)),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(keys / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(keys / f"{name}.crt"),
        "tlsPrivateKeyFile": str(keys / f"{name}.key"),
        "containerRuntimeEndpoint": f"unix://{settings.node_runtime(number) / 'containerd.sock'}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{settings.name}/{name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "clusterDNS": [str(settings.dns_address)],
        "clusterDomain": "cluster.local",
        "resolvConf": str(state / "resolv.conf"),
        "podLogsDir": str(state / "pod-logs"),
        "volumePluginDir": str(state / "volume-plugins"),
        "maxPods": MAX_PODS,
        "serializeImagePulls": False,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        # Shared machines are often fuller than a node may be: never evict pods for the host's disk.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusReportFrequency": "1m",
        "enableDebuggingHandlers": True,
    }


def proxy_config(settings: Settings, number: int) -> dict[str, Any]:
    name = settings.node_name(number)
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": str(settings.pod_range),
        "hostnameOverride": name,
        "clientConnection": {"kubeconfig": str(settings.certificates / "kube-proxy.kubeconfig")},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # These limits belong to the whole machine, which is not the cluster's to change.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def toml(table: dict[str, Any], path: tuple[str, ...] = ()) -> str:
    """The TOML text of nested dicts of strings, numbers, booleans and lists of strings."""
    plain = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    head = [f"[{'.'.join(json.dumps(part) for part in path)}]"] if path and plain else []
    text = "".join(f"{line}\n" for line in [*head, *plain])
    return text + "".join(toml(value, (*path, key)) for key, value in table.items() if isinstance(value, dict))


def containerd_answers(settings: Settings, number: int) -> bool:
    """Whether somebody listens on containerd's socket; the file alone outlives a containerd that was killed."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(settings.node_runtime(number) / "containerd.sock"))
        except OSError:
            return False
    return True
