"""HAProxy's configuration and its lists.

Guarantees, whatever the client sends: a connection leads to a name only if the lists have it, by the name in TLS's
first message, or in each single HTTP request; never to an address of the never-list, wherever the name's own servers
point; a refusal takes no longer than an answer. Names stand in files of their own, never in the configuration.

What is refused, and what an allowed server did not answer, is one line in the log; the rest is silent. Names in it are
percent-encoded and cut, so that no name can forge a line.
"""

from taskfold.api.gateway_settings import GatewaySettings
from taskfold.build.gateway import names, ports

FOLDER = "/etc/gateway"
EXACT, SUFFIX, NEVER, NEVERTHELESS = "exact.lst", "suffix.lst", "never.lst", "nevertheless.lst"
CONNECTIONS = 1024

NAME, ADDRESS, NO_TLS, METHOD, MALFORMED = "name", "address", "no-tls", "method", "malformed"
"""Why a connection or a request is refused, as the log says it."""
UNKNOWN = "unknown"
"""It is not: the name is allowed and has no address."""
_NAME = f"^({names.LABEL}+[.])*{names.LABEL}+$"
_LOGGED = "bytes(0,255),url_enc"


def lists(allowed: names.Names, settings: GatewaySettings) -> dict[str, str]:
    """The files that the configuration reads."""
    return {
        EXACT: names.exact_list(allowed),
        SUFFIX: names.suffix_list(allowed),
        NEVER: _lines([*settings.never_ranges, *settings.cluster_ranges]),
        NEVERTHELESS: _lines(settings.in_cluster_ranges),
    }


def text(settings: GatewaySettings) -> str:
    """The configuration. It does not depend on the names."""
    parts = (*_COMMON, *_frontend_tls(settings), *_FRONTEND_HTTP, *_BACKENDS)
    return "\n".join(parts) + "\n"


def _lines(values: list[str]) -> str:
    return "".join(f"{value}\n" for value in values)


_COMMON = (
    "global",
    f"    maxconn {CONNECTIONS}",
    "    nbthread 2",  # not one for each processor of the node
    "    hard-stop-after 1s",
    "    log stdout format raw local0 info",
    "resolvers cluster",
    "    parse-resolv-conf",
    # A name that does not exist is asked for as often as one whose servers do not answer.
    "    resolve_retries 3",
    "    timeout resolve 1s",
    "    timeout retry 1s",
    # Only what is being asked for is shared, nothing is kept: addresses change.
    "    hold valid 0s",
    "    hold nx 0s",
    "    hold other 0s",
    "    accepted_payload_size 8192",
    "defaults",
    "    log global",
    "    option dontlognull",
    "    retries 1",
    "    timeout connect 5s",
    "    timeout client 1h",
    "    timeout server 1h",
    "    timeout http-request 10s",
    "frontend ready",
    f"    bind 0.0.0.0:{ports.PROXY_READY}",
    "    mode http",
    "    no log",
    "    http-request return status 200",
)


def _frontend_tls(settings: GatewaySettings) -> tuple[str, ...]:
    def refuse(why: str, condition: str) -> tuple[str, str]:
        rule = "    tcp-request content"
        return f"{rule} set-var-fmt(txn.why) {why} if {condition}", f"{rule} reject if {condition}"

    return (
        "frontend tls",
        # The id is the port that the client asked for, and the server's.
        *(f"    bind 0.0.0.0:{ports.inside(port)} id {port}" for port in settings.tls_ports),
        "    mode tcp",
        f'    log-format "tls why=%[var(txn.why)] state=%ts port=%[so_id] name=%[var(txn.name),{_LOGGED}]"',
        "    tcp-request inspect-delay 5s",
        "    acl hello req.ssl_hello_type 1",
        *_ACLS,
        *refuse(NO_TLS, "{ req.len gt 0 } !{ req.payload(0,1) -m bin 16 }"),
        "    tcp-request content set-var(txn.name) req.ssl_sni,lower if hello",
        *refuse(NAME, "hello !well_formed or hello !listed_exactly !listed_below"),
        "    tcp-request content do-resolve(txn.address,cluster,ipv4) var(txn.name) if hello",
        *refuse(UNKNOWN, "hello !found"),
        *refuse(ADDRESS, "hello never !nevertheless or hello !version_four"),
        "    tcp-request content set-dst var(txn.address) if hello",
        "    tcp-request content set-dst-port so_id if hello",
        "    tcp-request content accept if hello",
        *refuse(NO_TLS, "WAIT_END"),
        "    default_backend tls",
    )


_ACLS = (
    f"    acl well_formed var(txn.name) -m reg {_NAME}",
    f"    acl listed_exactly var(txn.name) -m str -f {FOLDER}/{EXACT}",
    f"    acl listed_below var(txn.name) -m end -f {FOLDER}/{SUFFIX}",
    "    acl found var(txn.address) -m found",
    # do-resolve only prefers version 4: a name without such an address gets one of version 6, which no list has.
    "    acl version_four var(txn.address) -m reg ^[0-9.]+$",
    f"    acl never var(txn.address) -m ip -f {FOLDER}/{NEVER}",
    f"    acl nevertheless var(txn.address) -m ip -f {FOLDER}/{NEVERTHELESS}",
)


def _deny(status: int, why: str, condition: str, sentence: str) -> tuple[str, str]:
    return (
        f"    http-request set-var-fmt(txn.why) {why} if {condition}",
        f'    http-request return status {status} content-type text/plain lf-string "{sentence}\\n" if {condition}',
    )


_FRONTEND_HTTP = (
    "frontend http",
    f"    bind 0.0.0.0:{ports.inside(ports.HTTP)}",
    "    mode http",
    # Each request has a connection of its own to its own server.
    "    option http-server-close",
    # One protocol for all requests, checked in one way.
    "    option disable-h2-upgrade",
    f'    log-format "http why=%[var(txn.why)] state=%ts status=%ST name=%[var(txn.name),{_LOGGED}]"',
    *_ACLS,
    # The whole field: req.hdr would take what stands behind a comma for the name.
    "    http-request set-var(txn.name) req.fhdr(host),field(1,:),lower",
    *_deny(405, METHOD, "METH_CONNECT", "this is no proxy: connect to the host itself"),
    *_deny(400, MALFORMED, "{ req.fhdr_cnt(host) gt 1 }", "two Host fields"),
    *_deny(
        403,
        NAME,
        "!well_formed or !listed_exactly !listed_below",
        f"host %[var(txn.name),bytes(0,{names.MAX_NAME})] is not in allowed_hosts",
    ),
    "    http-request do-resolve(txn.address,cluster,ipv4) var(txn.name)",
    *_deny(502, UNKNOWN, "!found", "host %[var(txn.name)] has no address"),
    *_deny(
        403,
        ADDRESS,
        "never !nevertheless or !version_four",
        "host %[var(txn.name)] leads to an address that is not allowed",
    ),
    "    http-request set-dst var(txn.address)",
    "    default_backend http",
)

_BACKENDS = (
    "backend tls",
    "    mode tcp",
    "    tcp-response content set-log-level silent",
    "    server asked-for 0.0.0.0:0",
    "backend http",
    "    mode http",
    "    http-reuse never",
    "    http-response set-log-level silent",
    f"    server asked-for 0.0.0.0:{ports.HTTP}",
)
