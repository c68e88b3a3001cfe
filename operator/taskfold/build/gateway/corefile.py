"""CoreDNS's configuration.

Guarantees: nothing is forwarded, so no question leaves the pod. Allowed names have one address, the gateway's own, and
no other data; every other name does not exist, which resolvers take for an answer at once.
"""

from taskfold.build.gateway import names, ports

REFUSED = "refused"
"""First word of a line about a name that was asked for and is not allowed."""
_TTL = 60


def text(allowed: names.Names, cluster_ip: str) -> str:
    """The Corefile. `cluster_ip`: of the gateway's Service, IPv4."""
    match = f'        match "{names.expression(allowed)}"'
    return "\n".join(
        (
            f".:{ports.inside(ports.DNS)} {{",
            "    errors",
            f"    health :{ports.DNS_ALIVE}",
            f"    ready :{ports.DNS_READY}",
            "    bufsize 1232",
            f'    log . "{REFUSED} type={{type}} name={{name}}" {{',
            "        class denial",
            "    }",
            "    template IN A . {",
            match,
            f'        answer "{{{{ .Name }}}} {_TTL} IN A {cluster_ip}"',
            "        fallthrough",
            "    }",
            # NXDOMAIN for another type would say that the name does not exist, which some resolvers believe of A too.
            # No SOA: with one this is a denial, and in the log.
            "    template ANY ANY . {",
            match,
            "        rcode NOERROR",
            "        fallthrough",
            "    }",
            "    template ANY ANY . {",
            f'        authority ". {_TTL} IN SOA gateway.invalid. nobody.invalid. 1 {_TTL} {_TTL} {_TTL} {_TTL}"',
            "        rcode NXDOMAIN",
            "    }",
            "}",
            "",
        )
    )
