"""effects/descriptors.py, and what happens when a process runs out of descriptors: it waits, and nothing is lost."""

import asyncio
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.effects.fake_exec import FakeCluster, Remote, serving

from taskfold.effects import descriptors
from taskfold.effects.descriptors import Shares

WANTED = Shares(calls=512, execs=256, streams=256)


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    found = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield found
    resource.setrlimit(resource.RLIMIT_NOFILE, found)


def test_the_limit_is_raised_as_far_as_it_may(limits: tuple[int, int]) -> None:
    hard = limits[1]
    most = 600 if hard == resource.RLIM_INFINITY else min(600, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, most), hard))
    assert descriptors.raise_limit(most) == most
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)
    assert descriptors.raise_limit(300) == most, "it is never lowered"


@pytest.mark.parametrize("limit", [0, 64, 65, 128, 200, 500, 1024, 1300, 1344, 4096, 65_536])
def test_shares_fit(limit: int) -> None:
    shares = descriptors.share(limit, WANTED)
    least = Shares(descriptors.LEAST, descriptors.LEAST, descriptors.LEAST)
    needed = shares.calls + 2 * shares.execs + shares.streams
    assert needed <= max(limit - descriptors.RESERVED, 4 * descriptors.LEAST) or shares == least
    for name in ("calls", "execs", "streams"):
        assert descriptors.LEAST <= getattr(shares, name) <= getattr(WANTED, name)
    assert (shares == WANTED) is (limit >= 512 + 2 * 256 + 256 + descriptors.RESERVED)


PROGRAM = """
import asyncio, os, resource, sys
from taskfold.effects import client as api, credentials, descriptors, places
from taskfold.effects import exec as execs

async def main(server, capped):
    pin = execs.PodPin("ns", "pod", "uid-1", "main", 0, "node-1")
    shares = descriptors.share(descriptors.raise_limit(), descriptors.Shares(500, 500, 500))
    if not capped:
        shares = descriptors.Shares(500, 500, 500)
    limits = execs.Limits(total_seconds=300, idle_seconds=300, start_seconds=300)
    async with api.Client(credentials.static(server), limits=api.Limits(concurrent=shares.calls)) as client:
        exec_ = execs.Exec(client, caps=places.Caps(execs=shares.execs, execs_per_node=500), limits=limits)
        await exec_.run(pin, ["warm"], stdin=b"x")
        before = len(os.listdir("/proc/self/fd"))

        async def one(number):
            done = await exec_.run(pin, ["echo", str(number)], stdin=b"x" * 1000)
            return done.code == 0 and done.stdout == b"%d:1000" % number

        found = await asyncio.gather(*(one(number) for number in range(500)))
        after = len(os.listdir("/proc/self/fd"))
        print(sum(found), after - before, client.counters.retries, resource.getrlimit(resource.RLIMIT_NOFILE)[0])

asyncio.run(main(sys.argv[1], sys.argv[2] == "capped"))
"""


@pytest.mark.parametrize("caps", ["capped", "starved"])
async def test_five_hundred_exchanges_on_128_descriptors(caps: str, tmp_path: Path) -> None:
    """With the caps that follow from the limit; and without them, so that descriptors do run out."""

    async def script(remote: Remote) -> None:
        size = 0
        async for data in remote.stdin():
            size += len(data)
        await asyncio.sleep(0.02)
        await remote.out(f"{remote.argv[-1]}:{size}".encode())
        await remote.end()

    async with serving(FakeCluster(script)) as (_, server):
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            server.rstrip("/"),
            caps,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 128)),
        )
        out, error = await child.communicate()
    assert child.returncode == 0, error.decode()[-3000:]
    right, more, retries, soft = map(int, out.split())
    assert (right, soft) == (500, 128), error.decode()[-3000:]
    assert (retries > 0) is (caps == "starved")
    assert more <= 0, "descriptors that were not given back"
