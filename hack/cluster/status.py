"""What runs, where it is reached, and what it costs."""

import json
from dataclasses import dataclass, field
from typing import Any

from hack.cluster import processes
from hack.cluster.api import Api
from hack.cluster.settings import Settings
from hack.cluster.teardown import RECORD


@dataclass(frozen=True)
class Status:
    complete: bool  # `up` came to its end
    version: str = ""
    nodes: tuple[tuple[str, bool], ...] = ()  # name, Ready
    ended: tuple[str, ...] = ()  # daemons that should run
    dns: bool = False
    pids: frozenset[int] = field(default_factory=frozenset)

    @property
    def healthy(self) -> bool:
        return self.complete and not self.ended and self.dns and all(ready for _, ready in self.nodes)


def phase(settings: Settings) -> str:
    """`starting` or `ready` as recorded, or `` without a cluster."""
    try:
        return str(json.loads((settings.state / RECORD).read_text())["phase"])
    except (FileNotFoundError, ValueError, KeyError):
        return ""


def record(settings: Settings, name: str) -> None:
    settings.state.mkdir(parents=True, exist_ok=True)
    temporary = settings.state / f".{RECORD}"
    temporary.write_text(json.dumps({"phase": name, "settings": settings.as_json()}, indent=2))
    temporary.rename(settings.state / RECORD)


def observe(settings: Settings) -> Status:
    """Look at the cluster; never raises when parts of it are gone."""
    pids = frozenset(processes.of_cluster(settings))
    ended = tuple(p.name for p in processes.recorded(settings) if not processes.alive(p))
    if phase(settings) != "ready" or not settings.kubeconfig.exists():
        return Status(False, ended=ended, pids=pids)
    api = Api(settings.kubeconfig)
    version = (api.get("/version") or {}).get("gitVersion", "")
    listed = (api.get("/api/v1/nodes") or {}).get("items", [])
    conditions = {node["metadata"]["name"]: node_ready(node) for node in listed}
    names = [settings.node_name(number) for number in settings.node_numbers()]
    nodes = tuple((name, conditions.get(name, False)) for name in names)
    return Status(True, version, nodes, ended, dns_ready(api), pids)


def node_ready(node: dict[str, Any] | None) -> bool:
    conditions = (node or {}).get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def dns_ready(api: Api) -> bool:
    deployment = api.get("/apis/apps/v1/namespaces/kube-system/deployments/coredns") or {}
    return bool(deployment.get("status", {}).get("readyReplicas"))


def lines(settings: Settings, status: Status) -> list[str]:
    """The report of `status`."""
    if not status.complete:
        if status.pids:
            return [f"cluster {settings.name}: unfinished, {len(status.pids)} processes; `up` starts it anew"]
        return [f"cluster {settings.name}: not running"]
    state = "healthy" if status.healthy else "NOT healthy"
    memory = processes.resident_bytes(status.pids) / 2**30
    from_host, from_nodes = settings.registry_on_host, settings.registry_address
    report = [
        f"cluster {settings.name}: {state}, Kubernetes {status.version or '(no answer)'}",
        f"  API server   {settings.api_url}",
        f"  kubeconfig   {settings.kubeconfig}",
        f"  registry     {from_host} from the host, {from_nodes} from the nodes",
        f"  DNS          {settings.dns_address} {'ready' if status.dns else 'NOT ready'}",
    ]
    for number, (name, ready) in enumerate(status.nodes, 1):
        where = f"{settings.node_address(number)}, pods {settings.node_pods(number)}"
        report.append(f"  {name:<12} {'Ready' if ready else 'NOT Ready'}, {where}, {settings.node_namespace(number)}")
    report.append(f"  memory       {memory:.2f} GiB resident in {len(status.pids)} processes (pods included)")
    report.append(f"  logs         {settings.logs}")
    if status.ended:
        report.append(f"  ended        {', '.join(status.ended)}")
    return report
