"""Which ports the gateway has, as the sandbox sees them and as its pod does.

Inside, every port is 10000 higher, so that nothing in the pod needs a right to bind to low ones. NetworkPolicy counts
the pod's own ports.
"""

from taskfold.api.gateway_settings import GatewaySettings

DNS = 53
HTTP = 80
_OFFSET = 10_000

# Asked by the kubelet alone. Below the offset, so that no served port is one of them.
DNS_ALIVE = 8080
DNS_READY = 8181
PROXY_READY = 8282


def inside(port: int) -> int:
    """The pod's port behind this port of the Service."""
    return port + _OFFSET


def served(settings: GatewaySettings) -> list[tuple[str, str, int]]:
    """Name, protocol and port of everything that the Service has."""
    return [
        ("dns", "UDP", DNS),
        ("dns-tcp", "TCP", DNS),
        ("http", "TCP", HTTP),
        *((f"tls-{port}", "TCP", port) for port in settings.tls_ports),
    ]
