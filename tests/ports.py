"""A port for a server that a test starts: nobody else is given it before it listens, or while it is restarted."""

import contextlib
import random
import socket
from pathlib import Path

FIRST, LAST = 20_000, 65_536
TRIES = 100


def free() -> int:
    """A port of 127.0.0.1 at which nothing listens.

    It lies below the range from which the kernel takes ports for connections and for servers that do not care: one out
    of that range could be somebody's by the time the server asks for it.
    """
    beyond = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(TRIES):
        port = random.randrange(FIRST, beyond if beyond > FIRST else LAST)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no free port in {TRIES} tries from {FIRST} on")
