"""Settings of the gateways that allowlists with names have (build/gateway)."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .settings_section import Name, Range, Section


class GatewaySettings(Section):
    """The gateway of a run whose allowlist has names: its pod, what it serves, and where it never leads."""

    dns_image: str = "docker.io/coredns/coredns:1.15.0"
    """CoreDNS, with its plugins bufsize, errors, health, log, ready and template."""
    proxy_image: str = "docker.io/library/haproxy:3.0"
    """HAProxy, 2.6 or later."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When a node pulls those images."""
    tls_ports: list[Annotated[int, Field(ge=1, le=55_535)]] = Field(default=[443, 8443], min_length=1, max_length=32)
    """Ports at which allowed names are reached by TLS. Port 80 is plain HTTP. Above 55535 none."""
    cpu_request: str = "10m"
    """Reserved for each of the two containers."""
    cpu_limit: str | None = None
    """Limit of each. Unset: none."""
    memory_request: str = "48Mi"
    """Reserved for each."""
    memory_limit: str = "128Mi"
    """Limit of each. 128Mi are enough for 1024 connections at a time."""
    never_ranges: list[Range] = Field(
        default=[
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ]
    )
    """Where no allowed name leads, whatever its name servers say: by default what is loopback, private, shared,
    link-local, multicast or no host."""
    cluster_ranges: list[Range] = Field(default_factory=list)
    """The same for the cluster's own addresses, of pods, Services and nodes, as far as they are not private."""
    in_cluster_ranges: list[Range] = Field(default_factory=list)
    """Addresses inside of those to which an allowed name may lead nevertheless: of a Service, and of its pods."""
    in_cluster_labels: dict[str, str] = Field(default_factory=dict)
    """Labels of those pods, in any namespace, for a network that never counts pods as part of an address range."""
    dns_namespace: Name = "kube-system"
    """Namespace of the cluster's DNS."""
    dns_labels: dict[str, str] = Field(default={"k8s-app": "kube-dns"}, min_length=1)
    """Labels of its pods."""
    dns_ports: list[Annotated[int, Field(ge=1, le=65_535)]] = Field(default=[53], min_length=1, max_length=8)
    """Ports of those pods, which may be others than their Service's."""
    dns_addresses: list[Range] = Field(default=["169.254.20.10/32"])
    """Addresses of a node's own DNS cache. Where it answers at the address of the cluster's DNS, that one too."""

    @model_validator(mode="after")
    def _ports_fit(self) -> Self:
        if len({*self.tls_ports, 53, 80}) != len(self.tls_ports) + 2:
            raise ValueError("tlsPorts must differ, and be none of 53 and 80")
        return self
