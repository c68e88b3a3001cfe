"""A sandbox whose container is this machine: the real helper, under a supervisor; over the fake exec server."""

import contextlib
import subprocess
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from tests.effects import fake_exec as fake
from tests.effects.fake_exec import PIN, Cutter, FakeCluster, serving

from taskfold.effects import sandbox


@contextlib.asynccontextmanager
async def boxed(
    helper: Path,
    *,
    chunk: int = 32 * 1024,
    cluster: FakeCluster | None = None,
    through: Cutter | None = None,
    cwd: Path | None = None,
) -> AsyncIterator[sandbox.Sandbox]:
    """`cwd`: the container's working directory. `through`: the wire to it."""
    cluster = cluster or FakeCluster()
    name = uuid.uuid4().hex
    init = subprocess.Popen([helper, "init", "--name", name, "--allow-not-pid1", "--allow-inside"])

    def local(argv: list[str]) -> list[str]:
        options = ["--name", name, "--allow-not-pid1"] if argv[1] == "phase" else []
        return [str(helper), *argv[1:], *options]

    try:
        cluster.script = fake.process(local, chunk, cwd)
        async with serving(cluster, through=through) as (exec_, _):
            yield sandbox.Sandbox(exec_, PIN)
    finally:
        init.terminate()
        init.wait(60)
