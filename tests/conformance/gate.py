"""A gate between an operator and the API server: a test is told of every request before it is passed on.

Guarantees: a request goes on only after `told` has returned, so that what `told` reads of the cluster is older than
anything that the request brings about. Nothing is altered. The operator speaks plain HTTP to the gate, which has the
credentials; it listens on the loopback interface only.
"""

import asyncio
import concurrent.futures
import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from taskfold.effects import credentials

HEAD_BYTES = 64 * 1024
START_SECONDS = 10.0

_EXEC = re.compile(r"/api/v1/namespaces/[^/]+/pods/([^/?]+)/exec\b")

Told = Callable[[str, str], None]
"""Method and target, as they stand in the request's first line."""


def pod_of_exec(target: str) -> str | None:
    """The name of the pod that an exec is meant for; None: it is another request."""
    found = _EXEC.match(target)
    return found[1] if found is not None else None


@contextlib.contextmanager
def gate(kubeconfig: Path, through: Path, told: Told) -> Iterator[Path]:
    """Open for the length of the block; gives `through`, a kubeconfig that leads to it. An error of `told` closes the
    connection that the request came on, and is raised at the end.
    """
    there = asyncio.run(credentials.from_kubeconfig(str(kubeconfig)).current())
    loop, began = asyncio.new_event_loop(), concurrent.futures.Future[int]()
    keeper = _Gate(there, told)
    thread = threading.Thread(target=loop.run_until_complete, args=(keeper.serve(began),), daemon=True)
    thread.start()
    try:
        port = began.result(START_SECONDS)
        cluster = {"name": "gate", "cluster": {"server": f"http://127.0.0.1:{port}"}}
        context = {"name": "gate", "context": {"cluster": "gate", "user": "nobody"}}
        user = {"name": "nobody", "user": {}}
        config = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "gate"}
        through.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
        yield through
    finally:
        loop.call_soon_threadsafe(keeper.ended.set)
        thread.join(START_SECONDS)
    if keeper.problems:
        raise keeper.problems[0]


class _Gate:
    def __init__(self, there: credentials.Credentials, told: Told) -> None:
        self.ended = asyncio.Event()
        self.problems: list[Exception] = []
        self._there = there
        self._told = told
        self._going: set[asyncio.Task[None]] = set()

    async def serve(self, began: "concurrent.futures.Future[int]") -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_BYTES)
        began.set_result(server.sockets[0].getsockname()[1])
        await self.ended.wait()
        server.close()
        for task in list(self._going):
            task.cancel()
        await asyncio.gather(*self._going, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._pass(reader, writer))
        self._going.add(task)
        task.add_done_callback(self._going.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = urlsplit(self._there.server)
        there, answers = await asyncio.open_connection(target.hostname, target.port or 443, ssl=self._there.ssl)
        back = asyncio.ensure_future(_pump(there, writer))
        try:
            await self._requests(reader, answers)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # one side has hung up
        except Exception as problem:
            self.problems.append(problem)
        finally:
            back.cancel()
            for each in (answers, writer):
                each.close()

    async def _requests(self, reader: asyncio.StreamReader, there: asyncio.StreamWriter) -> None:
        """One request after the other; behind one that asks for another protocol everything as it comes."""
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            method, target, _ = first.split(" ", 2)
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            if "transfer-encoding" in fields:
                raise ValueError(f"a request whose length is not told: {first}")
            await asyncio.to_thread(self._told, method, target)
            there.write(head)
            if "upgrade" in fields:
                await _pump(reader, there)
                return
            there.write(await reader.readexactly(int(fields.get("content-length", "0"))))
            await there.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(HEAD_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()
