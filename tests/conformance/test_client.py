"""The Python client against the real cluster: every call, and what is left when a caller is cancelled."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from taskfold import client as clients
from taskfold.api.phases import Phase
from taskfold.build.refused import Refused
from taskfold.effects import errors
from tests.conformance import harness

TEST = 'if [ "$(cat answer.txt)" = 42 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n'
SAYS = "grep -q forty-two /logs/agent/trajectory.json && echo 1 > /logs/verifier/reward.txt\n"
APP = 'schema_version = "1.4"\n[environment]\ndocker_image = "python:3.13-slim"\nworkdir = "/app"\n'


@pytest.fixture
async def taskfold(cluster: harness.Cluster, namespace: str, operator: harness.Operator) -> AsyncIterator[Any]:
    async with clients.connect(kubeconfig=str(cluster.kubeconfig), namespace=namespace) as found:
        yield found
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


def folder(path: Path, test: str = TEST, toml: str = APP, **files: str) -> Path:
    texts = {"task.toml": toml, "instruction.md": "Write 42.\n", "tests/test.sh": test, **files}
    for name, text in texts.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


@pytest.fixture
async def run(taskfold: clients.Client, tmp_path: Path) -> AsyncIterator[clients.Run]:
    """A run whose sandbox is ready."""
    async with await taskfold.create_from_folder(folder(tmp_path / "task")) as created:
        await created.ready(60)
        yield created


# -- an episode ----------------------------------------------------------------------------------------------------


async def test_an_episode(taskfold: clients.Client, tmp_path: Path) -> None:
    async with await taskfold.create_from_folder(folder(tmp_path / "fix-bug")) as run:
        assert run.name.startswith("fix-bug-")
        place = await run.ready(60)
        assert (place.container, place.user, place.workdir) == ("main", "0:0", "/app")
        done = await run.exec(["bash", "-c", "echo 42 > answer.txt; pwd; echo said >&2; exit 3"])
        assert (done.returncode, done.stdout, done.stderr) == (3, b"/app\n", b"said\n")
        await run.finish("Succeeded", "done")
        found = await run.result(60)
    assert (found.phase, found.reward, found.masked, found.failure) == (Phase.SUCCEEDED, 1.0, False, None)
    assert found.status.agent is not None
    assert found.status.agent.outcome == "Succeeded"


async def test_a_spec_of_ones_own_and_a_run_that_exists(taskfold: clients.Client, namespace: str) -> None:
    files = {"task.toml": APP, "instruction.md": "x", "tests/test.sh": "echo 0.5 > /logs/verifier/reward.txt"}
    created = await taskfold.create(harness.spec(files, harness.NOP))
    again = await taskfold.get(created.name)
    assert (await again.result(60)).reward == 0.5
    with pytest.raises(clients.RunEnded, match="Succeeded"):
        await again.ready()
    await again.delete()
    await again.delete()


async def test_a_folder_that_does_not_load(taskfold: clients.Client, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"instruction\.md"):
        (folder(tmp_path / "task") / "instruction.md").unlink()
        await taskfold.create_from_folder(tmp_path / "task")


@pytest.mark.parametrize("length", [10, 200_000], ids=["in the object", "in a ConfigMap"])
async def test_a_response(taskfold: clients.Client, tmp_path: Path, length: int) -> None:
    text = "x" * length + " forty-two"
    response = {
        "object": "response",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}],
    }
    async with await taskfold.create_from_folder(folder(tmp_path / "task", SAYS)) as run:
        await run.finish("Succeeded", response)
        assert (await run.result(60)).reward == 1.0


# -- commands ------------------------------------------------------------------------------------------------------


async def test_commands(run: clients.Run) -> None:
    assert (await run.exec(["cat"], stdin=b"\x00" * 3_000_000, output_bytes=4_000_000)).stdout == b"\x00" * 3_000_000
    shown = await run.exec(
        ["bash", "-c", "id -un; echo $HOME; pwd; echo $A"], user="nobody", cwd="/tmp", env={"A": "b c"}
    )
    assert shown.stdout.split(b"\n")[0::2] == [b"nobody", b"/tmp", b""]
    assert shown.stdout.split(b"\n")[3] == b"b c"
    much = await run.exec(["head", "-c", "100000", "/dev/zero"], output_bytes=10)
    assert (much.stdout, much.stdout_bytes, much.truncated) == (b"\x00" * 10, 100_000, True)
    assert (await run.exec(["bash", "-c", "kill -9 $$"])).returncode == -9
    assert (await run.exec(["id", "-u"], user=4242)).stdout == b"4242\n"


async def test_a_command_that_cannot_start(run: clients.Run) -> None:
    with pytest.raises(errors.StartFailed, match="not found in PATH"):
        await run.exec(["no-such-program"])
    with pytest.raises(errors.StartFailed, match="unknown user"):
        await run.exec(["true"], user="nobody-here")


async def gone(run: clients.Run, mark: str) -> None:
    """No process with this word in its command line is left."""
    each = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done 2>/dev/null"
    look = f"{each} | grep -c '[s]leep {mark}' || true"
    async with asyncio.timeout(30):
        while (await run.exec(["bash", "-c", look])).stdout != b"0\n":
            await asyncio.sleep(0.1)


async def test_a_command_ends_at_its_timeout(run: clients.Run) -> None:
    with pytest.raises(TimeoutError, match="longer than 1 s"):
        await run.exec(["bash", "-c", "trap '' TERM HUP; sleep 1111 & wait; sleep 1111"], timeout=1)
    await gone(run, "1111")


async def test_a_command_ends_with_its_caller(run: clients.Run) -> None:
    work = asyncio.create_task(run.exec(["bash", "-c", "echo here > /tmp/began; sleep 2222 & wait"]))
    while (await run.exec(["cat", "/tmp/began"])).returncode != 0:
        await asyncio.sleep(0.05)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await gone(run, "2222")


async def test_what_a_command_leaves_goes_on(run: clients.Run) -> None:
    done = await run.exec(["bash", "-c", "sleep 3333 > /dev/null 2>&1 & echo $!"])
    pid = done.stdout.decode().strip()
    assert (await run.exec(["test", "-d", f"/proc/{pid}"])).returncode == 0


async def test_cancelled_at_many_points(run: clients.Run) -> None:
    """Whatever a command does then: its caller is told, and nothing of it is left on either side."""
    for number in range(25):
        work = asyncio.create_task(
            run.exec(["bash", "-c", "head -c 300000 /dev/zero; sleep 4444"], stdin=b"x" * 300_000)
        )
        await asyncio.sleep(number * 0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    await gone(run, "4444")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    assert (await run.exec(["true"])).returncode == 0
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 1


# -- copies --------------------------------------------------------------------------------------------------------


async def test_copies(run: clients.Run, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "data").write_bytes(os.urandom(3_000_000))
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    await run.upload(source, "/app/in")
    assert (await run.exec(["./in/run.sh"])).stdout == b"ran\n"
    await run.download("/app/in", tmp_path / "out")
    assert (tmp_path / "out" / "deep" / "data").read_bytes() == (source / "deep" / "data").read_bytes()
    await run.upload(source / "run.sh", "/opt/new/place.sh")
    await run.download("/opt/new/place.sh", tmp_path / "place.sh")
    assert (tmp_path / "place.sh").read_text() == "#!/bin/sh\necho ran\n"
    with pytest.raises(FileExistsError):
        await run.download("/app/in", tmp_path / "out")
    with pytest.raises(FileNotFoundError):
        await run.download("/app/nothing", tmp_path / "nothing")
    assert not list(tmp_path.glob("*.partial")), "nothing half done is left"


async def test_copies_cancelled_at_many_points(run: clients.Run, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(os.urandom(20_000_000))
    await run.upload(tmp_path / "big", "/app/big")
    for number in range(8):
        up = asyncio.create_task(run.upload(tmp_path / "big", f"/app/part-{number}"))
        down = asyncio.create_task(run.download("/app/big", tmp_path / f"part-{number}"))
        await asyncio.sleep(number * 0.02)
        for task in (up, down):
            task.cancel()
        await asyncio.wait([up, down])
        assert up.cancelled()
        assert down.cancelled()
    assert not list(tmp_path.glob(".part*")), "nothing half done is left"
    await run.download("/app/big", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "big").read_bytes()


async def test_what_is_uploaded_belongs_to_the_agent(taskfold: clients.Client, tmp_path: Path) -> None:
    toml = APP + '[agent]\nuser = "nobody"\n'
    async with await taskfold.create_from_folder(folder(tmp_path / "task", toml=toml)) as run:
        place = await run.ready(60)
        assert place.user == "nobody"
        (tmp_path / "note").write_text("x")
        await run.upload(tmp_path / "note", "/app/note")
        shown = await run.exec(["bash", "-c", "id -un; stat -c %U note; echo more >> note && echo written"])
        assert shown.stdout == b"nobody\nnobody\nwritten\n"


# -- the run's own end ---------------------------------------------------------------------------------------------


async def ended(cluster: harness.Cluster, namespace: str, name: str) -> str:
    return (await asyncio.to_thread(cluster.finished, namespace, name))["phase"]


async def test_an_error_cancels_the_run(taskfold, cluster, namespace, tmp_path) -> None:
    with pytest.raises(ValueError, match="mine"):
        async with await taskfold.create_from_folder(folder(tmp_path / "task")) as run:
            await run.ready(60)
            raise ValueError("mine")
    assert await ended(cluster, namespace, run.name) == "Cancelled"


async def test_work_that_nobody_finishes_is_cancelled(taskfold, cluster, namespace, tmp_path) -> None:
    async with await taskfold.create_from_folder(folder(tmp_path / "task")) as run:
        pass
    assert await ended(cluster, namespace, run.name) == "Cancelled"


async def test_a_run_that_is_left_alone_goes_on(taskfold, cluster, namespace, tmp_path) -> None:
    async with (await taskfold.create_from_folder(folder(tmp_path / "task"))).left_alone() as run:
        await run.ready(60)
    assert await asyncio.to_thread(cluster.status, namespace, run.name) | {
        "phase": "Running"
    } == await asyncio.to_thread(cluster.status, namespace, run.name)
    await run.finish("Failed")
    assert (await run.result(60)).reward == 0.0


@pytest.mark.parametrize("waits", ["ready", "result"])
async def test_a_cancelled_wait_cancels_the_run(taskfold, cluster, namespace, tmp_path, waits: str) -> None:
    names: list[str] = []

    async def work() -> None:
        async with await taskfold.create_from_folder(folder(tmp_path / "task")) as run:
            names.append(run.name)
            await getattr(run, waits)()
            await run.result()

    task = asyncio.create_task(work())
    while not names:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ended(cluster, namespace, names[0]) == "Cancelled"


async def test_a_cancelled_creation_leaves_no_run(taskfold, cluster, namespace, tmp_path) -> None:
    place = folder(tmp_path / "leaves-none")
    for number in range(12):
        task = asyncio.create_task(taskfold.create_from_folder(place))
        await asyncio.sleep(number * 0.005)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await task).delete()

    def left() -> list[str]:
        found = harness.kubectl(cluster, "--namespace", namespace, "get", "taskruns,configmaps", "-o", "json")
        return [
            each["metadata"]["name"] for each in json.loads(found)["items"] if "leaves-none" in each["metadata"]["name"]
        ]

    await asyncio.to_thread(cluster.until, lambda: not left(), "no run is left")
