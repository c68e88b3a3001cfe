"""A TCP relay that counts: what a process really moves to and from the API server, TLS and watches included."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml


@dataclass
class Moved:
    """Bytes on the wire, as the process sees them."""

    sent: int = 0
    received: int = 0


@contextlib.asynccontextmanager
async def relay(kubeconfig: Path, through: Path) -> AsyncIterator[Moved]:
    """Writes a kubeconfig to `through` whose server is the relay; the certificate has to allow 127.0.0.1."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    target, moved = urlsplit(cluster["server"]), Moved()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(target.hostname, target.port or 443)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, field: str) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(1 << 16):
                    setattr(moved, field, getattr(moved, field) + len(data))
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, there[1], "sent"), pump(there[0], writer, "received"))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    cluster["server"] = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    through.touch(mode=0o600)
    through.write_text(yaml.safe_dump(config))
    try:
        yield moved
    finally:
        server.close()
