"""One protocol, three helpers: the model, the real binary on this machine, the real binary in a pod of a cluster.

A case of `test_helper.py` gets a `Box` and cannot tell which it is. A program is a shell text for the real ones and a
behaviour for the model, which it finds by the text.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taskfold.effects import client as api
from taskfold.effects import credentials, errors, frames
from taskfold.effects import exec as execs
from taskfold.effects import sandbox as sandboxes
from taskfold.effects import transport as transports
from taskfold.protocol import phase as phases
from tests.effects import fake_exec, test_on_cluster, test_sandbox
from tests.world import clock, programs, sandbox, transport
from tests.world import exec as endpoints

LIMITS = execs.Limits(total_seconds=60, idle_seconds=60)


@dataclass(frozen=True)
class Text:
    """A program, said twice."""

    shell: str
    model: programs.Behaviour

    @property
    def argv(self) -> tuple[str, ...]:
        return ("sh", "-c", self.shell)


@dataclass
class Box:
    """A sandbox, and a folder in it that is this case's."""

    sandbox: sandboxes.Sandbox
    exec_: execs.Exec
    pin: execs.PodPin
    folder: str
    local: Path
    """A folder on this side."""
    book: programs.Book | None
    """Where the model finds its programs; None for a real helper."""

    def run(self, text: Text, name: str = "main", output: phases.Output | None = None, **more: Any) -> phases.Run:
        """A run of this program."""
        if self.book is not None:
            self.book.texts[text.shell] = text.model
        return phases.Run(name, text.argv, output or phases.Output(f"{self.folder}/{name}.log"), **more)

    @contextlib.asynccontextmanager
    async def raw(self) -> AsyncIterator["Raw"]:
        """`helper phase`, byte by byte."""
        async with self.exec_.open(self.pin, [sandboxes.HELPER, "phase"], stdin=True, limits=LIMITS) as stream:
            yield Raw(stream)


@dataclass
class Raw:
    """A connection to `helper phase`."""

    stream: execs.ExecStream
    _events: list[dict[str, Any]] = field(default_factory=list)
    _decoder: frames.LineDecoder = field(default_factory=frames.LineDecoder)

    async def ask(self, request: phases.PhaseRequest | dict[str, Any]) -> None:
        wire = request if isinstance(request, dict) else request.to_wire()
        await self.stream.send(frames.request(wire))

    async def event(self) -> dict[str, Any]:
        """The next one that is not a sign of life; empty at the end."""
        async with asyncio.timeout(50):
            while not self._events:
                async for chunk in self.stream.stdout():
                    self._events += [each for each in self._decoder.feed(chunk) if each["event"] != "alive"]
                    break
                else:
                    return {}
        return self._events.pop(0)

    async def until(self, kind: str) -> dict[str, Any]:
        while (event := await self.event()).get("event") != kind:
            assert event, f"the stream ended before {kind}"
        return event

    async def leave(self) -> int:
        """End the input, which the helper may have stopped to read; its exit code."""
        with contextlib.suppress(errors.InputRefused):
            await self.stream.close_stdin()
        return (await self.stream.wait()).code


Case = Callable[[Box], Awaitable[None]]


class Wire:
    """A transport that knows pods and execs of one modelled container."""

    def __init__(self, box: sandbox.Container) -> None:
        self.endpoint = endpoints.Endpoint(lambda namespace, pod, container: box)

    async def request(self, login: credentials.Credentials, request: transports.Request) -> transports.Answer:
        assert request.method == "GET"
        return transports.Answer(200, json.dumps(fake_exec.pod()).encode())

    async def websocket(
        self, login: credentials.Credentials, path: str, query: transports.Query, protocols: Sequence[str], where: str
    ) -> transports.Socket:
        return await self.endpoint.open(path, query, protocols)

    async def close(self) -> None:
        pass


def in_model(case: Case, local: Path) -> None:
    """The case with the model, under a clock of its own."""

    async def main() -> None:
        book = programs.Book()
        box = sandbox.Container(book=book)
        box.files.make("/case")
        wire = Wire(box)
        async with api.Client(transport.source(), over=lambda: wire) as client:
            exec_ = execs.Exec(client)
            pin = fake_exec.PIN
            await case(Box(sandboxes.Sandbox(exec_, pin), exec_, pin, "/case", local, book))
        assert book.failures == []

    clock.run(main, limit=3600)


def on_this_machine(case: Case, helper: Path, local: Path) -> None:
    """The case with the real helper as a process here."""

    async def main() -> None:
        folder = local / "case"
        folder.mkdir()
        async with test_sandbox.boxed(helper) as box:
            await case(Box(box, box._exec, box.pin, str(folder), local, None))

    asyncio.run(main())


def in_a_pod(case: Case, kubeconfig: str, pin: execs.PodPin, local: Path) -> None:
    """The case with the real helper in a pod that is there already."""

    async def main() -> None:
        async with api.Client(credentials.from_kubeconfig(kubeconfig)) as client:
            exec_ = execs.Exec(client)
            folder = f"/data/{uuid.uuid4().hex}"
            await exec_.run(pin, ["mkdir", folder])
            await case(Box(sandboxes.Sandbox(exec_, pin), exec_, pin, folder, local, None))

    asyncio.run(main())


async def _made(kubeconfig: str, helper: Path) -> execs.PodPin:
    async with api.Client(credentials.from_kubeconfig(kubeconfig)) as client:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": test_on_cluster.NAMESPACE}}
        with contextlib.suppress(errors.AlreadyExists):
            await client.create(api.NAMESPACES, None, body)
        pin = await test_on_cluster.start(client, f"suite-{uuid.uuid4().hex[:8]}")
        script = "cat > /.taskfold/new && chmod 755 /.taskfold/new && mv /.taskfold/new /.taskfold/helper"
        done = await execs.Exec(client).run(pin, ["sh", "-c", script], stdin=helper.read_bytes())
        assert done.code == 0, done
        return pin


async def _removed(kubeconfig: str, pin: execs.PodPin) -> None:
    async with api.Client(credentials.from_kubeconfig(kubeconfig)) as client:
        await test_on_cluster.remove(client, pin)


@contextlib.contextmanager
def pod(kubeconfig: str, helper: Path) -> Any:
    """A pod with the helper as its first process."""
    pin = asyncio.run(_made(kubeconfig, helper))
    try:
        yield pin
    finally:
        asyncio.run(_removed(kubeconfig, pin))
