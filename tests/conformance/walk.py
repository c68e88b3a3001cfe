"""What a client in a restricted pod sees of its gateway: runs there, on Python's own library.

Its argument is a JSON object with addresses. It prints one JSON object behind a word: row -> what came of it. A refusal
that came only after a wait is told as `slow`.
"""

import concurrent.futures
import json
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable

FOUND = "found "
"""Before the object, so that the `kubernetes` package's exec does not take the output for JSON and write it anew."""
SECONDS = 4
SILENT_SECONDS = 1.0
AT_ONCE = 3.0
"""An answer. Whatever waits, a resolver, the proxy or a connection, waits longer than this."""
BLOCKED, CLOSED, UNKNOWN = "blocked", "closed", "unknown"
Row = Callable[[], object]


def blocked(address: str, port: int) -> str:
    try:
        socket.create_connection((address, port), SILENT_SECONDS).close()
    except OSError as error:
        return BLOCKED if isinstance(error, TimeoutError) or error.errno in (111, 113) else repr(error)
    return "open"


def read(connection: socket.socket) -> bytes:
    found = b""
    try:
        while chunk := connection.recv(65536):
            found += chunk
    except ConnectionResetError:
        pass
    return found


def body(answer: bytes) -> object:
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = head.split(b" ")[1].decode() if head else CLOSED
    return json.loads(rest) if status == "200" else status


def tls(name: str, port: int = 443, *, at: str | None = None, host: str | None = None, sni: bool = True) -> object:
    """GET by TLS. `at`: this address instead of the name's; `host`: another Host than the name."""
    context = ssl.create_default_context(cafile="/scene/certificate.pem")
    context.check_hostname = sni
    try:
        plain = socket.create_connection((at or name, port), SECONDS)
    except socket.gaierror as error:
        return UNKNOWN if error.errno == socket.EAI_NONAME else repr(error)
    except OSError:
        return BLOCKED
    try:
        with context.wrap_socket(plain, server_hostname=name if sni else None) as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {host or name}\r\nConnection: close\r\n\r\n".encode())
            return body(read(connection))
    except ssl.SSLCertVerificationError as error:
        return repr(error)
    except (ssl.SSLError, ConnectionError):
        return CLOSED
    except TimeoutError:
        return "timeout"


def raw(text: bytes, port: int, at: str) -> bytes:
    with socket.create_connection((at, port), SECONDS) as connection:
        connection.settimeout(10)
        connection.sendall(text)
        return read(connection)


def http(
    name: str, *more: str, at: str | None = None, target: str = "/", method: str = "GET", host: bool = True
) -> object:
    """A plain request. `more`: further lines of its head."""
    lines = [f"{method} {target} HTTP/1.1", *([f"Host: {name}"] if host else []), *more, "Connection: close", "", ""]
    try:
        return body(raw("\r\n".join(lines).encode(), 80, at or name))
    except socket.gaierror as error:
        return UNKNOWN if error.errno == socket.EAI_NONAME else repr(error)


def twice(at: str, first: str, second: str) -> list[object]:
    """Two requests on one connection."""
    with socket.create_connection((at, 80), SECONDS) as connection:
        connection.settimeout(SECONDS)
        file, answers = connection.makefile("rb"), []
        for host in (first, second):
            connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            status, length = file.readline().split(b" ")[1].decode(), 0
            while (line := file.readline().strip()) != b"":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            content = file.read(length)
            answers.append(json.loads(content)["by"] if status == "200" else status)
        return answers


def ask(server: str, name: str, kind: int, *, tcp: bool = False) -> str:
    """Ask a DNS server: the response code and how many answers there are."""
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    question = struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)
    with socket.socket(type=socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as channel:
        channel.settimeout(SECONDS)
        try:
            channel.connect((server, 53))
            channel.sendall(struct.pack("!H", len(question)) + question if tcp else question)
            answer = channel.recv(4096)[2 if tcp else 0 :]
        except OSError:
            return BLOCKED
    _, flags, _, count, _, _ = struct.unpack("!HHHHHH", answer[:12])
    return f"{flags & 15}:{count}"


def udp(address: str, port: int) -> str:
    with socket.socket(type=socket.SOCK_DGRAM) as channel:
        channel.settimeout(SILENT_SECONDS)
        try:
            channel.connect((address, port))
            channel.sendall(b"hello")
            channel.recv(10)
        except OSError:
            return BLOCKED
    return "open"


def fast(row: Row) -> object:
    began = time.monotonic()
    result = row()
    took = time.monotonic() - began
    return result if took < AT_ONCE else f"slow: {result} after {took:.1f} s"


def many(name: str, count: int) -> dict[str, int]:
    """So many connections one after the other, four at a time: how often what came of it."""
    found: dict[str, int] = {}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: tls(name), range(count)):
            key = answer["by"] if isinstance(answer, dict) else str(answer)
            found[key] = found.get(key, 0) + 1
    return found


def rows(known: dict[str, str]) -> dict[str, Row]:
    gateway, pod, a = known["gateway"], known["gateway_pod"], known["a"]
    return {
        "tls": lambda: tls("allowed.test"),
        "http": lambda: http("allowed.test"),
        "tls other server": lambda: tls("other.test"),
        "tls 8443": lambda: tls("allowed.test", 8443),
        "tls below": lambda: tls("www.example.test"),
        "http below, two labels": lambda: http("a.b.example.test"),
        "mixed case": lambda: tls("AlloWed.TEST"),
        "unlisted tls": lambda: fast(lambda: tls("unlisted.test")),
        "unlisted http": lambda: fast(lambda: http("unlisted.test")),
        "apex": lambda: fast(lambda: tls("example.test")),
        "ends alike": lambda: fast(lambda: tls("notallowed.test")),
        "ends alike, suffix": lambda: fast(lambda: tls("notexample.test")),
        "forced tls": lambda: fast(lambda: tls("unlisted.test", at=gateway)),
        "forced tls, apex": lambda: fast(lambda: tls("example.test", at=gateway)),
        "forced tls, suffix": lambda: fast(lambda: tls("notexample.test", at=gateway)),
        "forced http": lambda: fast(lambda: http("unlisted.test", at=gateway)),
        "forced http, comma": lambda: fast(lambda: http("unlisted.test,allowed.test", at=gateway)),
        "http with port": lambda: http("allowed.test:80", at=gateway),
        "no sni": lambda: fast(lambda: tls("allowed.test", at=gateway, sni=False)),
        "fronting": lambda: tls("allowed.test", host="unlisted.test"),
        "absolute form differs": lambda: http("allowed.test", target="http://unlisted.test/"),
        "absolute form differs, other way": lambda: http("unlisted.test", target="http://allowed.test/", at=gateway),
        "two hosts": lambda: http("allowed.test", "Host: unlisted.test"),
        "two hosts, other way": lambda: http("unlisted.test", "Host: allowed.test", at=gateway),
        "http/2 without asking": lambda: fast(
            lambda: body(raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0", 80, gateway))
        ),
        "no host": lambda: http("", host=False, at=gateway),
        "no host, version 1.0": lambda: body(raw(b"GET / HTTP/1.0\r\n\r\n", 80, gateway)),
        "connect": lambda: http("allowed.test", target="allowed.test:443", method="CONNECT"),
        "second request refused": lambda: twice(gateway, "allowed.test", "unlisted.test"),
        "second request elsewhere": lambda: twice(gateway, "allowed.test", "other.test"),
        "http on 443": lambda: fast(
            lambda: raw(b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 443, gateway).decode()
        ),
        "ssh on 443": lambda: fast(lambda: raw(b"SSH-2.0-OpenSSH_9.9\r\n", 443, gateway).decode()),
        "silence on 443": lambda: raw(b"", 443, gateway).decode(),
        "tls 9443": lambda: blocked(gateway, 9443),
        **{
            f"direct {name} {port}": lambda address=address, port=port: blocked(address, port)
            for name, address, port in (
                ("server", a, 443),
                ("server", a, 80),
                ("server", a, 9443),
                ("neighbour", known["neighbour"], 80),
                ("node", known["node"], 10250),
                ("other node", known["other_node"], 10250),
                ("api", known["api"], 443),
                ("cluster dns", known["dns"], 53),
                ("health", pod, 8080),
                ("ready", pod, 8181),
                ("ready", pod, 8282),
            )
        },
        "udp to a pod": lambda: udp(a, 53),
        "cluster dns": lambda: ask(known["dns"], "kubernetes.default.svc.cluster.local", 1),
        "internet's dns": lambda: ask(a, "allowed.test", 1),
        "dns a": lambda: ask(gateway, "allowed.test", 1),
        "dns a, tcp": lambda: ask(gateway, "allowed.test", 1, tcp=True),
        "dns a, mixed case": lambda: ask(gateway, "aLLowed.tEst", 1),
        "dns a, below": lambda: ask(gateway, "never-seen.x.example.test", 1),
        "dns aaaa": lambda: ask(gateway, "allowed.test", 28),
        "dns https": lambda: ask(gateway, "allowed.test", 65),
        "dns txt": lambda: ask(gateway, "allowed.test", 16),
        "dns txt, unlisted": lambda: ask(gateway, "secret.unlisted.test", 16),
        "dns ptr": lambda: ask(gateway, "1.0.0.10.in-addr.arpa", 12),
        "dns any, unlisted": lambda: ask(gateway, "unlisted.test", 255),
        "dns apex": lambda: ask(gateway, "example.test", 1),
        "dns cluster name": lambda: ask(gateway, "kubernetes.default.svc.cluster.local", 1),
        **{
            f"{name} {kind}": lambda name=name, to=to: fast(lambda: to(f"{name}.test"))
            for name in ("node", "neighbour", "loopback", "metadata", "api", "six", "mapped")
            for kind, to in (("tls", tls), ("http", http))
        },
        # A name without an address is asked for until the tries are used up.
        "nowhere tls": lambda: tls("nowhere.test"),
        "nowhere http": lambda: http("nowhere.test"),
        "rotating": lambda: many("rotating.test", int(known["rotating"])),
    }


if __name__ == "__main__":
    found: dict[str, object] = {}
    for title, row in rows(json.loads(sys.argv[1])).items():
        try:
            found[title] = row()
        except OSError as error:
            found[title] = repr(error)
    print(FOUND + json.dumps(found))
