"""A real S3 server on loopback, from a program that is given: versitygw (github.com/versity/versitygw)."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from taskfold.effects import store

BUCKET = "bench"
LOGIN = {"ROOT_ACCESS_KEY": "bench", "ROOT_SECRET_KEY": "bench-secret"}


@contextlib.asynccontextmanager
async def serving(program: Path, folder: Path) -> AsyncIterator[store.Store]:
    """A store in a bucket of it, for the length of the block."""
    (folder / BUCKET).mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet, address = asyncio.subprocess.DEVNULL, f"127.0.0.1:{port}"
    process = await asyncio.create_subprocess_exec(
        program, "--port", address, "posix", folder, stdout=quiet, stderr=quiet, env=os.environ | LOGIN
    )
    try:
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield store.Store(f"s3://{BUCKET}/store", options=_options(f"http://{address}"))
    finally:
        process.terminate()
        await process.wait()


def _options(endpoint: str) -> dict[str, object]:
    return {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": LOGIN["ROOT_ACCESS_KEY"],
        "secret_access_key": LOGIN["ROOT_SECRET_KEY"],
        "client_options": {"allow_http": True},
    }
