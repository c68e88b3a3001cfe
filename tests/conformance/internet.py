"""What the internet is in the tests of gateways: runs in a pod, on Python's own library.

A DNS server at port 53 (UDP), whose zone stands in /tmp/zone.json and may change at any time; HTTP at 80; TLS at 443,
8443 and 9443. Every answer says who answered, at which port, and what for. What the DNS server is asked is appended to
/tmp/asked, one `TYPE name` a line.
"""

import json
import socket
import socketserver
import ssl
import struct
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ZONE, ASKED = Path("/tmp/zone.json"), Path("/tmp/asked")
TYPES = {1: "A", 28: "AAAA"}
SMALL = 512
TTL = 1


class Web(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        sni = getattr(self.connection, "asked_for", None)
        found = {"by": sys.argv[1], "port": self.server.server_address[1], "host": self.headers["Host"], "sni": sni}
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Dns(socketserver.BaseRequestHandler):
    turn = 0

    def handle(self) -> None:
        data, channel = self.request
        channel.sendto(answer(data), self.client_address)


def answer(data: bytes) -> bytes:
    """The response to a question about an A or AAAA record, cut if the client takes no more; rotated each time."""
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode())
        at += 1 + data[at]
    name, (kind, _) = ".".join(labels).lower(), struct.unpack("!HH", data[at + 1 : at + 5])
    question, rest = data[12 : at + 5], data[at + 5 :]
    takes = struct.unpack("!H", rest[3:5])[0] if rest[:3] == b"\0\0\x29" else SMALL
    with ASKED.open("a") as file:
        file.write(f"{TYPES.get(kind, kind)} {name}\n")
    zone = json.loads(ZONE.read_text())
    records = zone.get(name) or zone.get(f"*.{name.partition('.')[2]}")
    found = (records or {}).get(TYPES.get(kind, ""), [])
    Dns.turn += 1
    found = found[Dns.turn % len(found) :] + found[: Dns.turn % len(found)] if found else []
    family = socket.AF_INET6 if kind == 28 else socket.AF_INET
    packed = [socket.inet_pton(family, each) for each in found]
    answers = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, TTL, len(each)) + each for each in packed)
    flags = 0x8580 | (0 if records else 3)
    if 12 + len(question) + len(answers) > takes:
        flags, answers, packed = flags | 0x0200, b"", []
    return data[:2] + struct.pack("!HHHHH", flags, 1, len(packed), 0, 0) + question + answers


class Server(ThreadingHTTPServer):
    request_queue_size = 128


def main() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("/scene/certificate.pem", "/scene/key.pem")
    context.sni_callback = lambda connection, name, _: setattr(connection, "asked_for", name)
    servers: list[socketserver.BaseServer] = [Server(("", 80), Web)]
    for port in (443, 8443, 9443):
        server = Server(("", port), Web)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        servers.append(server)
    servers.append(socketserver.UDPServer(("", 53), Dns))
    for each in servers:
        threading.Thread(target=each.serve_forever).start()


if __name__ == "__main__":
    main()
