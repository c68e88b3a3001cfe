"""The helper's protocol: the same cases for the model, for the binary on this machine, and for the binary in a pod.

What holds for the real helper is asked of the model here, so that the world of the other tests does not drift from it.
"""

import asyncio
import base64
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taskfold.contract import folder as folders
from taskfold.effects import errors, frames, sandbox, sinks, transfer
from taskfold.effects import exec as execs
from taskfold.protocol import phase as phases
from tests.effects.conftest import helper, kubeconfig  # noqa: F401  (fixtures)
from tests.world import boxes
from tests.world import files as tree
from tests.world.boxes import Box, Text
from tests.world.programs import Program, Script

CASES: dict[str, boxes.Case] = {}
FRESH: set[str] = set()
"""Cases that want a helper of their own."""
BOUNDS: dict[str, Any] = {"max_bytes": 1 << 32, "max_entries": 100_000}

TRUE = Text("true", Script(0))


def case(what: boxes.Case) -> boxes.Case:
    CASES[what.__name__] = what
    return what


def fresh(what: boxes.Case) -> boxes.Case:
    FRESH.add(what.__name__)
    return case(what)


@pytest.fixture(scope="module")
def pod(request: pytest.FixtureRequest) -> Iterator[execs.PodPin]:
    found = request.getfixturevalue("kubeconfig")
    with boxes.pod(found, request.getfixturevalue("helper")) as pin:
        yield pin


def files(**contents: bytes) -> transfer.Payload:
    return transfer.from_folder(folders.MemoryFolder({name: (content, False) for name, content in contents.items()}))


def asked(phase: str = "agent", **more: Any) -> phases.PhaseRequest:
    return phases.PhaseRequest(sandbox.new_nonce(), phase, **more)


# -- phases ------------------------------------------------------------------------------------------------------------


@case
async def a_phase_from_beginning_to_end_and_again(box: Box) -> None:
    tests, log = f"{box.folder}/tests", f"{box.folder}/main.log"

    async def model(program: Program) -> int:
        await program.print(program.files.read(f"{tests}/word"))
        program.files.write(program.env["OUT"], b"1\n")
        return 3

    text = Text(f"cat {tests}/word; echo 1 > $OUT; exit 3", model)
    request = asked(
        "verify",
        prepare=[phases.Tools(("sh", "no-such-tool")), phases.Reset(tests), phases.Unpack(tests)],
        runs=[box.run(text, env={"OUT": f"{box.folder}/reward"}, limit_seconds=30)],
        read=[phases.Read(f"{box.folder}/reward", 100), phases.Read(log, 100), phases.Read(f"{box.folder}/none", 9)],
    )
    seen: list[sandbox.Started] = []

    async def started(event: sandbox.Started) -> None:
        seen.append(event)

    result = await box.sandbox.run_phase(request, [files(word=b"hello")], on_started=started)
    again = await box.sandbox.run_phase(request, [files(word=b"hello")], on_started=started)
    assert result == again == await box.sandbox.run_phase(dataclasses.replace(request, attach_only=True))
    assert [event.attached for event in seen] == [False, True]
    assert result.missing_tools() == ("no-such-tool",)
    run = result.runs[0]
    assert (run.return_code, run.signal, run.timed_out, run.start_error) == (3, None, False, None)
    assert (run.inline, run.output_bytes, run.output_gap) == (b"hello", 5, False)
    assert {path.removeprefix(box.folder): (file.state, file.content) for path, file in result.files.items()} == {
        "/reward": (phases.FileState.REGULAR, b"1\n"),
        "/main.log": (phases.FileState.REGULAR, b"hello"),
        "/none": (phases.FileState.MISSING, b""),
    }


@case
async def an_unknown_phase_cannot_be_attached_to(box: Box) -> None:
    with pytest.raises(errors.UnknownPhase):
        await box.sandbox.run_phase(asked(attach_only=True))


@case
async def a_phase_without_programs_is_done_when_it_starts(box: Box) -> None:
    result = await box.sandbox.run_phase(asked("seed", prepare=[phases.Directory(f"{box.folder}/a")]))
    assert (result.runs, result.prepared) == ((), ({"op": "directory", "created": True},))


@case
async def a_failed_preparation_starts_nothing_and_frees_the_nonce(box: Box) -> None:
    missing = phases.Tools(("no-such-tool",), required=True)
    mark = f"{box.folder}/ran"
    text = Text(f"echo x >> {mark}", Script(0, files={mark: b"x\n"}))
    request = asked(prepare=[missing], runs=[box.run(text)], read=[phases.Read(mark, 9)])
    with pytest.raises(errors.PhaseFailed) as caught:
        await box.sandbox.run_phase(request)
    assert (caught.value.reason, caught.value.results) == (
        "MissingTools",
        ({"op": "tools", "missing": ["no-such-tool"]},),
    )
    unpack = phases.Unpack(f"{box.folder}/u", digest="0" * 64)
    with pytest.raises(errors.PhaseFailed) as wrong:
        await box.sandbox.run_phase(dataclasses.replace(request, prepare=[unpack]), [files(x=b"x")])
    assert wrong.value.reason == "Digest"
    result = await box.sandbox.run_phase(dataclasses.replace(request, prepare=[]))
    assert result.files[mark].content == b"x\n", "started once"


@case
async def users_are_looked_up_in_the_sandbox(box: Box) -> None:
    known = phases.CheckUser(phases.User(name="nobody"))
    unknown = phases.CheckUser(phases.User(name="nobody-at-all"), required=False)
    result = await box.sandbox.run_phase(asked("seed", prepare=[known, unknown]))
    assert result.prepared[0]["uid"] == 65534
    assert result.prepared[1] == {"op": "user", "error": 'unknown user "nobody-at-all"'}
    required = phases.CheckUser(phases.User(name="nobody-at-all"))
    owned = phases.Directory(f"{box.folder}/d", user=phases.User(name="nobody-at-all"))
    for operation in (required, owned):
        with pytest.raises(errors.PhaseFailed) as caught:
            await box.sandbox.run_phase(asked("seed", prepare=[operation]))
        assert caught.value.reason == "UnknownUser"
    run = box.run(Text("exit 9", Script(0, 9)), user=phases.User(name="nobody-at-all"))
    ended = (await box.sandbox.run_phase(asked(runs=[run]))).runs[0]
    assert (ended.return_code, ended.start_error) == (None, 'unknown user "nobody-at-all"')


@case
async def root_of_the_node_is_no_proof_of_a_user_namespace(box: Box) -> None:
    with pytest.raises(errors.PhaseFailed) as caught:
        await box.sandbox.run_phase(asked("seed", prepare=[phases.UserNamespace()]))
    assert caught.value.reason == "NoUserNamespace"


@case
async def programs_end_in_each_way(box: Box) -> None:
    long = Text("sleep 600", Script(600))
    runs = [
        box.run(TRUE, "true"),
        box.run(Text("kill -9 $$", Script(0, signal=9)), "killed"),
        box.run(long, "long", limit_seconds=1),
        phases.Run("none", ("no-such-program",), phases.Output(None)),
        box.run(TRUE, "nowhere", cwd=f"{box.folder}/none"),
        box.run(Text("exit 4", Script(0, 4)), "last", continue_on_failure=False),
        box.run(TRUE, "never"),
    ]
    result = await box.sandbox.run_phase(asked(runs=runs))
    assert [(run.name, run.return_code, run.signal, run.timed_out) for run in result.runs] == [
        ("true", 0, None, False),
        ("killed", None, 9, False),
        ("long", None, 9, True),
        ("none", None, None, False),
        ("nowhere", None, None, False),
        ("last", 4, None, False),
    ]
    assert result.runs[2].seconds >= 1
    assert result.runs[3].start_error == "no-such-program: not found in PATH"
    assert result.runs[4].start_error == f"working directory {box.folder}/none: not a directory that exists"


def counted(box: Box, text: str, code: int, **numbers: Any) -> tuple[phases.Run, str]:
    """A check whose attempts leave an x each in a file, and that file. `code`: how each attempt of the model ends."""
    mark = f"{box.folder}/attempts"

    async def model(program: Program) -> int:
        found = program.files.find(mark)
        before = found.content if isinstance(found, tree.File) else b""
        program.files.write(mark, before + b"x\n")
        return 0 if code == 0 or (code < 0 and len(before) >= -2 * (code + 1)) else 1

    check = phases.Check(
        **{"interval_seconds": 0.01, "start_interval_seconds": 0.01, "start_period_seconds": 0.0, **numbers}
    )
    return box.run(
        Text(f"echo x >> {mark}; {text.format(mark)}", model), name="check", check=check, limit_seconds=60
    ), mark


@case
async def a_check_counts_failures_by_when_they_began(box: Box) -> None:
    third = "[ $(wc -l < {}) -ge 3 ]"
    for text, code, numbers, attempts, return_code in (
        ("true", 0, {"retries": 3}, 1, 0),
        ("false", 1, {"retries": 3}, 3, 1),
        ("false", 1, {"retries": 0}, 1, 1),
        (third, -3, {"retries": 3}, 3, 0),
        (third, -3, {"retries": 2}, 2, 1),
        (third, -3, {"retries": 0, "start_period_seconds": 600.0}, 3, 0),
    ):
        run, mark = counted(box, text, code, **numbers)
        clear = phases.Write(mark, b"")
        request = asked("seed", prepare=[clear], runs=[run], read=[phases.Read(mark, 100)], limit_seconds=60)
        result = await box.sandbox.run_phase(request)
        ended = result.runs[0]
        assert (ended.attempts, ended.return_code) == (attempts, return_code), (text, numbers)
        assert result.files[mark].content == b"x\n" * attempts


@case
async def a_check_gives_up_when_its_phase_has_no_time_left(box: Box) -> None:
    run, _ = counted(box, "false", 1, retries=9, interval_seconds=6000.0)
    ended = (await box.sandbox.run_phase(asked("seed", runs=[run], limit_seconds=60))).runs[0]
    assert (ended.attempts, ended.return_code, ended.timed_out) == (1, 1, True)


@case
async def a_phase_has_a_limit_for_all_of_its_runs(box: Box) -> None:
    runs = [box.run(Text("sleep 600", Script(600)), "long"), box.run(TRUE, "late"), box.run(TRUE, "never")]
    result = await box.sandbox.run_phase(asked(runs=runs, limit_seconds=0.5))
    assert [(run.name, run.signal, run.timed_out) for run in result.runs] == [("long", 9, True), ("late", None, False)]
    assert (result.runs[1].start_error, result.runs[1].attempts) == ("the limit of its phase has passed", 0)


@case
async def a_run_goes_on_beside_the_phases(box: Box) -> None:
    stop = f"{box.folder}/stop"

    async def until_told(program: Program) -> int:
        while program.files.find(stop) is None:
            await program.sleep(0.05)
        return 7

    beside = box.run(
        Text(f"while [ ! -e {stop} ]; do sleep 0.05; done; exit 7", until_told), "beside", settle_seconds=0.0
    )
    first = asked("seed", runs=[beside, box.run(TRUE)])
    began = await box.sandbox.run_phase(first)
    assert ([run.name for run in began.runs], began.background) == (["main"], ())
    await box.sandbox.run_phase(asked(prepare=[phases.Write(stop, b"")]))
    for _ in range(600):
        told = (await box.sandbox.run_phase(asked(runs=[box.run(Text("sleep 0.1", Script(0.1)))]))).background
        if told:
            break
    own = [end for end in told if end.nonce == first.nonce]
    assert [(end.run.name, end.run.return_code) for end in own] == [("beside", 7)]
    assert await box.sandbox.run_phase(dataclasses.replace(first, attach_only=True)) == began


@case
async def what_fails_beside_a_phase_ends_it(box: Box) -> None:
    fails = Text("exit 3", Script(0, 3))
    for beside, runs in (
        (box.run(fails, "beside", settle_seconds=600.0, continue_on_failure=False), []),
        (box.run(fails, "beside", settle_seconds=600.0), ["main"]),
        (box.run(TRUE, "beside", settle_seconds=600.0, continue_on_failure=False), ["main"]),
        (
            phases.Run(
                "beside", ("no-such-program",), phases.Output(None), settle_seconds=600.0, continue_on_failure=False
            ),
            [],
        ),
    ):
        request = asked("seed", runs=[beside, box.run(TRUE)])
        result = await box.sandbox.run_phase(request)
        assert [run.name for run in result.runs] == runs
        assert [end.run.name for end in result.background if end.nonce == request.nonce] == ["beside"]


@case
async def a_run_may_have_variables_of_its_own(box: Box) -> None:
    out = f"{box.folder}/env"

    async def model(program: Program) -> int:
        program.files.write(out, "".join(f"{name}={value}\n" for name, value in sorted(program.env.items())).encode())
        return 0

    text = Text(f"env | sort | grep -Ev '^(_|SHLVL|PWD|OLDPWD)=' > {out}", model)
    env = {"PATH": "/usr/bin:/bin", "A": "1"}
    run = box.run(text, env=env, own_env=True)
    result = await box.sandbox.run_phase(asked(runs=[run], read=[phases.Read(out, 1000)]))
    assert result.files[out].content == b"A=1\nPATH=/usr/bin:/bin\n"


@case
async def a_folder_is_made_for_a_run(box: Box) -> None:
    folder = f"{box.folder}/a/b"
    mark = f"{folder}/here"
    run = box.run(Text("echo x > here", Script(0, files={mark: b"x\n"})), cwd=folder, make_cwd=True)
    result = await box.sandbox.run_phase(asked(runs=[run], read=[phases.Read(mark, 9)]))
    assert result.files[mark].content == b"x\n"


@case
async def output_is_bounded_to_head_and_tail(box: Box) -> None:
    async def model(program: Program) -> int:
        await program.print(b"".join(b"%04d" % number for number in range(100)))
        return 0

    text = Text("i=0; while [ $i -lt 100 ]; do printf '%04d' $i; i=$((i+1)); done", model)
    output = phases.Output(f"{box.folder}/out", head_bytes=8, tail_bytes=12, inline_bytes=6)
    result = await box.sandbox.run_phase(
        asked(runs=[box.run(text, output=output)], read=[phases.Read(f"{box.folder}/out", 1000)])
    )
    run = result.runs[0]
    assert (run.output_bytes, run.output_gap, run.inline) == (400, True, b"980099")
    kept = b"00000001\n[taskfold: 380 bytes left out]\n009700980099"
    assert result.files[f"{box.folder}/out"].content == kept


@case
async def files_are_read_for_what_they_are(box: Box) -> None:
    folder = box.folder

    async def model(program: Program) -> int:
        program.files.write(f"{folder}/large", bytes(11))
        program.files.make(f"{folder}/link", tree.Link(target="large"))
        program.files.make(f"{folder}/pipe", tree.Special())
        program.files.make(f"{folder}/over", tree.Link(target="."))
        return 0

    text = Text(f"cd {folder}; head -c 11 /dev/zero > large; ln -s large link; mkfifo pipe; ln -s . over", model)
    names = ("large", "link", "pipe", "over/large", "large/below", "")
    reads = [phases.Read(f"{folder}/{name}", 10) for name in names]
    result = await box.sandbox.run_phase(asked(runs=[box.run(text)], read=reads))
    states = [result.files[f"{folder}/{name}"].state.value for name in names]
    assert states == ["tooLarge", "notRegular", "notRegular", "notRegular", "notRegular", "notRegular"]


@case
async def folders_are_made_kept_and_owned(box: Box) -> None:
    path = f"{box.folder}/d"

    async def modes(program: Program) -> int:
        for each in ("d", "d/e"):
            node = program.files.entry(f"{box.folder}/{each}")
            await program.print(b"%o:%d " % (node.mode, node.uid))
        return 0

    text = Text(f"cd {box.folder}; for f in d d/e; do stat -c '%a:%u' $f | tr '\\n' ' '; done", modes)
    nobody = phases.User(uid=65534)
    made = [
        phases.Directory(path, "0700"),
        phases.Directory(path, "1777", nobody, existing="keep"),
        phases.Directory(f"{path}/e", "1777", nobody),
    ]
    result = await box.sandbox.run_phase(asked(prepare=made, runs=[box.run(text)]))
    assert [each["created"] for each in result.prepared] == [True, False, True]
    assert result.runs[0].inline == b"700:0 1777:65534 "
    again = await box.sandbox.run_phase(asked(prepare=[phases.Directory(path, "0711", nobody)], runs=[box.run(text)]))
    assert again.runs[0].inline == b"711:65534 1777:65534 "


@case
async def links_on_the_way_are_replaced_or_followed(box: Box) -> None:
    folder = box.folder

    async def build(program: Program) -> int:
        program.files.make(f"{folder}/run")
        program.files.make(f"{folder}/var", tree.Link(target="run"))
        program.files.write(f"{folder}/file", b"precious")
        return 0

    text = Text(f"cd {folder}; mkdir run; ln -s run var; printf precious > file", build)
    await box.sandbox.run_phase(asked(runs=[box.run(text)]))
    follow = phases.Directory(f"{folder}/var/app", existing="keep", links="follow")
    write = phases.Write(f"{folder}/run/app/proof", b"here")
    result = await box.sandbox.run_phase(
        asked(prepare=[follow, write], read=[phases.Read(f"{folder}/run/app/proof", 10)])
    )
    assert result.prepared[0]["created"] is True
    blocked = phases.Directory(f"{folder}/file/x", existing="keep", links="follow")
    with pytest.raises(errors.PhaseFailed, match=f"{folder}/file") as failed:
        await box.sandbox.run_phase(asked(prepare=[blocked]))
    assert failed.value.reason == "Prepare"
    replace = phases.Write(f"{folder}/var/x", b"new")
    reads = [phases.Read(f"{folder}/{name}", 10) for name in ("var/x", "run/x", "run/app/proof", "file")]
    result = await box.sandbox.run_phase(asked(prepare=[replace], read=reads))
    states = {path.removeprefix(folder): file.content for path, file in result.files.items()}
    assert states == {"/var/x": b"new", "/run/x": b"", "/run/app/proof": b"here", "/file": b"precious"}


@case
async def a_reset_keeps_what_it_is_told_to(box: Box) -> None:
    top = f"{box.folder}/top"

    async def build(program: Program) -> int:
        for name in ("keep", "drop", "sub/keep"):
            program.files.write(f"{top}/{name}", name.encode())
        return 0

    text = Text(f"mkdir -p {top}/sub; cd {top}; for f in keep drop sub/keep; do printf $f > $f; done", build)
    await box.sandbox.run_phase(asked(runs=[box.run(text)]))
    reads = [phases.Read(f"{top}/{name}", 10) for name in ("keep", "drop", "sub/keep")]
    kept = await box.sandbox.run_phase(asked(prepare=[phases.Reset(top, keep=("keep", "sub"))], read=reads))
    assert [kept.files[read.path].content for read in reads] == [b"keep", b"", b""]
    assert kept.dropped() == ("sub",)
    empty = await box.sandbox.run_phase(asked(prepare=[phases.Reset(top)], read=reads))
    assert [empty.files[read.path].content for read in reads] == [b"", b"", b""]


@case
async def what_is_removed_is_gone_whatever_it_was(box: Box) -> None:
    top = f"{box.folder}/top"
    paths = (f"{top}/file", f"{top}/folder", f"{top}/none", f"{top}/deep/none")
    reads = [phases.Read(path, 9) for path in (*paths[:1], f"{top}/folder/in", f"{top}/stays")]
    made = [phases.Write(each.path, b"here") for each in reads]
    there = await box.sandbox.run_phase(asked(prepare=made, read=reads))
    assert [there.files[read.path].content for read in reads] == [b"here"] * 3
    gone = await box.sandbox.run_phase(asked(prepare=[phases.Remove(path) for path in paths], read=reads))
    assert [gone.files[read.path].content for read in reads] == [b"", b"", b"here"]


# -- who may ask -------------------------------------------------------------------------------------------------------


def waits_for_an_archive(box: Box, idle_seconds: int = 30) -> phases.PhaseRequest:
    unpack = phases.Unpack(f"{box.folder}/u")
    return asked(prepare=[unpack], runs=[box.run(TRUE)], idle_seconds=idle_seconds)


async def freed(box: Box, request: phases.PhaseRequest) -> phases.PhaseResult:
    """The phase, as soon as its nonce is free."""
    for _ in range(200):
        try:
            return await box.sandbox.run_phase(request, [files(x=b"x")])
        except errors.PhaseFailed as error:
            assert error.reason == "Busy"
            await asyncio.sleep(0.1)
    raise AssertionError("the nonce is still held")


@case
async def a_nonce_is_prepared_by_one_at_a_time(box: Box) -> None:
    request = waits_for_an_archive(box)
    async with box.raw() as first:
        await first.ask(request)
        await first.until("send")
        for attach_only in (False, True):
            with pytest.raises(errors.PhaseFailed) as caught:
                await box.sandbox.run_phase(dataclasses.replace(request, attach_only=attach_only), [files(x=b"x")])
            assert caught.value.reason == "Busy"
    assert (await freed(box, request)).runs[0].succeeded, "it was left, and is free again"


@case
async def a_claim_without_progress_is_lost(box: Box) -> None:
    request = waits_for_an_archive(box, idle_seconds=1)
    async with box.raw() as idle:
        await idle.ask(request)
        await idle.until("send")
        lost = await idle.until("failed")
        assert lost["reason"] == "Idle"
        assert await idle.event() == {}
        assert (await idle.stream.wait()).code == 0
    assert (await freed(box, request)).runs[0].succeeded


@case
async def an_archive_that_ends_early_starts_nothing(box: Box) -> None:
    request = waits_for_an_archive(box)
    async with box.raw() as early:
        await early.ask(request)
        await early.until("send")
        await early.stream.send(frames.header(1000) + bytes(10))
        await early.stream.close_stdin()
        assert (await early.until("failed"))["reason"] == "Unpack"
    with pytest.raises(errors.UnknownPhase):
        await box.sandbox.run_phase(dataclasses.replace(request, attach_only=True))


@case
async def a_phase_goes_on_without_its_client(box: Box) -> None:
    mark = f"{box.folder}/ran"

    async def model(program: Program) -> int:
        await program.sleep(1)
        before = program.files.read(mark) if program.files.exists(mark) else b""
        program.files.write(mark, before + b"x\n")
        return 0

    request = asked(runs=[box.run(Text(f"sleep 1; echo x >> {mark}", model))], read=[phases.Read(mark, 100)])
    async with box.raw() as gone:
        await gone.ask(request)
        await gone.until("started")
    async with box.raw() as second:
        await second.ask(request)
        assert (await second.until("started"))["attached"] is True
    result = await box.sandbox.run_phase(request)
    assert result.files[mark].content == b"x\n"


@case
async def a_client_that_ends_its_input_is_let_go(box: Box) -> None:
    request = asked(runs=[box.run(Text("sleep 2", Script(2)))])
    async with box.raw() as leaving:
        await leaving.ask(request)
        await leaving.until("started")
        await leaving.stream.close_stdin()
        assert await leaving.event() == {"event": "running"}
        assert (await leaving.stream.wait()).code == 0
    assert (await box.sandbox.run_phase(request)).runs[0].succeeded


@case
async def logs_are_moved_out_of_the_way(box: Box) -> None:
    folder = f"{box.folder}/from"
    await box.sandbox.unpack(folder, files(a=b"1", b=b"2", kept=b"3"), **BOUNDS)
    move = phases.Move(folder, f"{box.folder}/steps/one", keep=("kept",))
    for moved in (2, 0):
        result = await box.sandbox.run_phase(asked(prepare=[move]))
        assert result.prepared == ({"op": "move", "moved": moved, "error": ""},)
    paths = ("steps/one/a", "steps/one/b", "from/kept", "from/a")
    reads = [phases.Read(f"{box.folder}/{path}", 10) for path in paths]
    found = (await box.sandbox.run_phase(asked(read=reads))).files
    assert [file.content for file in found.values()] == [b"1", b"2", b"3", b""]


@case
async def files_for_a_user_and_where_a_link_leads(box: Box) -> None:
    """Only the model and the real helper's own tests can plant a link of somebody else's."""
    unpack = phases.Unpack(f"{box.folder}/work", user=phases.User(uid=os.geteuid()), links="follow")
    await box.sandbox.run_phase(asked(prepare=[unpack]), [files(file=b"x")])
    read = phases.Read(f"{box.folder}/work/file", 10)
    found = (await box.sandbox.run_phase(asked(read=[read]))).files
    assert found[read.path].content == b"x"


@case
async def a_kept_stream_serves_phase_after_phase_and_the_copy(box: Box) -> None:
    async with box.raw() as line:
        for word in ("one", "two"):
            await line.ask(
                asked(runs=[box.run(Text(f"echo {word}", Script(0, output=f"{word}\n".encode())))], keep=True)
            )
            result = (await line.until("done"))["result"]
            assert base64.b64decode(result["runs"][0]["output"]["inline"]) == f"{word}\n".encode()
        await line.ask(asked(attach_only=True, keep=True))
        await line.until("unknown")
        pack = {"protocol": 1, "roots": [{"path": f"{box.folder}/none", "as": "x"}], "maxBytes": 0, "maxEntries": 9}
        await line.ask({"pack": pack})
        decoder = frames.ArchiveDecoder()
        async for chunk in line.stream.stdout():
            for _ in decoder.feed(chunk):
                pass
        assert decoder.finish().extra["skipped"] == [{"path": f"{box.folder}/none", "reason": "missing"}]
        assert (await line.stream.wait()).code == 0


@case
async def a_kept_stream_ends_when_nothing_more_is_wanted(box: Box) -> None:
    async with box.raw() as line:
        await line.ask(asked(keep=True))
        await line.until("done")
        assert await line.leave() == 0


@fresh
async def old_phases_give_way_and_never_start_again(box: Box) -> None:
    first, last = asked(), asked()
    await box.sandbox.run_phase(first)
    for _ in range(64):
        await box.sandbox.run_phase(asked())
    await box.sandbox.run_phase(last)
    with pytest.raises(errors.PhaseFailed) as caught:
        await box.sandbox.run_phase(first)
    assert caught.value.reason == "Forgotten"
    assert (await box.sandbox.run_phase(last)).nonce == last.nonce


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another protocol": ({"protocol": 2}, "protocol 2; this helper speaks 1"),
    "no nonce": ({"nonce": "x"}, "nonce: 32 lower-case hexadecimal digits wanted"),
    "an unknown key": ({"limit": 1}, 'unknown field "limit"'),
    "a key unknown inside": ({"runs": [{"argv": ["a"], "timeout": 1}]}, 'unknown field "timeout"'),
    "too patient": ({"idleSeconds": 3601}, "idleSeconds: 3601 is not between 0 and 3600"),
    "an unknown operation": ({"prepare": [{"op": "dance"}]}, "prepare[0] (dance): unknown operation"),
    "a path with dots": ({"prepare": [{"op": "reset", "path": "/a/../b"}]}, 'has a ".."'),
    "a relative path": ({"prepare": [{"op": "reset", "path": "a"}]}, '"a" is not an absolute path'),
    "a mode with setuid": (
        {"prepare": [{"op": "directory", "path": "/a", "mode": "4755"}]},
        'mode: "4755" is not an octal mode up to 1777',
    ),
    "both user and uid": (
        {"prepare": [{"op": "user", "name": "a", "uid": 1}]},
        "prepare[0] (user): a user has either a name or a uid",
    ),
    "an unknown file mode": (
        {"prepare": [{"op": "unpack", "path": "/a", "fileMode": "x"}]},
        'fileMode: "x" is neither normalise nor keep',
    ),
    "no program": ({"runs": [{"name": "r", "argv": []}]}, "runs[0] (r): argv: a program is needed"),
    "a limit of nothing": (
        {"runs": [{"name": "r", "argv": ["a"], "limitSeconds": 0}]},
        "runs[0] (r): limitSeconds: 0 is not greater than 0",
    ),
    "a variable with an equals sign": (
        {"runs": [{"argv": ["a"], "env": {"A=B": ""}}]},
        'env: "A=B" cannot be a variable',
    ),
    "too much inline": (
        {"runs": [{"argv": ["a"], "output": {"inlineBytes": 65_537}}]},
        "output: inlineBytes is between 0 and 65536",
    ),
    "too much to read": (
        {"read": [{"path": "/a", "maxBytes": 9 << 20}, {"path": "/b", "maxBytes": 1}]},
        "more than 9437184",
    ),
}


@case
async def what_is_no_request_is_refused_with_the_reason(box: Box) -> None:
    good = {"protocol": 1, "nonce": "0" * 32, "phase": "x"}
    for title, (change, message) in REFUSED.items():
        async with box.raw() as stream:
            await stream.ask({**good, **change})
            event = await stream.event()
            assert (event["event"], event["reason"]) == ("failed", "Protocol"), title
            assert message in event["message"], title
            assert await stream.leave() == 0


# -- copies ------------------------------------------------------------------------------------------------------------


@case
async def a_file_goes_in_and_out(box: Box) -> None:
    for size in (0, 1, 32_767, 32_768, 1 << 20, (1 << 20) + 1):
        content = bytes(index % 251 for index in range(size))
        inside = f"{box.folder}/{size}"
        there = await box.sandbox.unpack(inside, files(file=content), **BOUNDS)
        assert there.entries == 1
        target = box.local / str(size)
        back = await box.sandbox.pack([sandbox.Root(inside, "r")], sinks.ToDirectory(target, **BOUNDS), **BOUNDS)
        assert (target / "r" / "file").read_bytes() == content
        assert (back.entries, back.truncated, back.skipped_count) == (2, False, 0)


@case
async def a_root_may_be_packed_in_its_own_place_only(box: Box) -> None:
    await box.sandbox.unpack(f"{box.folder}/logs", files(own=b"1", other=b"2"), **BOUNDS)
    for only, more in ((True, {}), (False, {"logs/own": b"1"})):
        own = sandbox.Root(f"{box.folder}/logs/own", "logs/below/kept", only=only)
        target = box.local / str(only)
        roots = [sandbox.Root(f"{box.folder}/logs", "logs"), own]
        await box.sandbox.pack(roots, sinks.ToDirectory(target, **BOUNDS), **BOUNDS)
        found = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
        assert found == {"logs/other": b"2", "logs/below/kept": b"1", **more}


@case
async def what_is_not_packed_is_listed(box: Box) -> None:
    folder = box.folder

    async def build(program: Program) -> int:
        for name, size in (("a", 10), ("b", 200), ("c", 60)):
            program.files.write(f"{folder}/d/{name}", bytes(size))
        program.files.make(f"{folder}/d/pipe", tree.Special())
        program.files.make(f"{folder}/l", tree.Link(target="d"))
        return 0

    text = Text(
        f"cd {folder}; mkdir d; cd d; for n in a:10 b:200 c:60; do head -c ${{n#*:}} /dev/zero > ${{n%:*}}; done; "
        "mkfifo pipe; ln -s d ../l",
        build,
    )
    await box.sandbox.run_phase(asked(runs=[box.run(text, output=phases.Output(None))]))
    roots = [sandbox.Root(f"{folder}/{name}", name) for name in ("d", "none", "l/a")]
    sink = sinks.ToFile(box.local / "x.tar")
    result = await box.sandbox.pack(roots, sink, max_bytes=65, max_entries=100, max_file_bytes=100)
    found = {(each.path.removeprefix(folder), each.reason) for each in result.skipped}
    assert found == {
        ("/d/b", "tooLarge"),
        ("/d/c", "limit"),
        ("/d/pipe", "special"),
        ("/none", "missing"),
        ("/l/a", "link"),
    }
    assert (result.entries, result.truncated, result.skipped_count) == (2, True, 5)


@case
async def secrets_stay_inside(box: Box) -> None:
    secret, folder = b"hunter22" * 2, f"{box.folder}/s"
    content = b"so " + secret + b"hunter22 and " + secret[:9]
    await box.sandbox.unpack(folder, files(log=content, free=content), **BOUNDS)
    result = await box.sandbox.pack(
        [sandbox.Root(folder, ".")],
        sinks.ToDirectory(box.local / "s", **BOUNDS),
        scrub=[secret, b"another one"],
        scrub_except=[f"{folder}/free"],
        **BOUNDS,
    )
    assert (box.local / "s/log").read_bytes() == b"so " + b"*" * 24 + b" and " + secret[:9]
    assert (box.local / "s/free").read_bytes() == content
    assert result.scrubbed == 2


@case
async def a_copy_in_that_is_too_much_is_refused(box: Box) -> None:
    many = files(**{f"f{index}": bytes(10) for index in range(5)})
    with pytest.raises(errors.TransferError, match="more than 3 entries"):
        await box.sandbox.unpack(f"{box.folder}/x", many, max_bytes=1 << 20, max_entries=3)
    with pytest.raises(errors.TransferError, match="more than 25 bytes of files"):
        await box.sandbox.unpack(f"{box.folder}/x", many, max_bytes=25, max_entries=100)


def _links(tar: transfer.TarWriter) -> None:
    tar.directory("d", 0o755)
    tar.symlink("d/up", "../file")
    tar.symlink("d/out", "../../file")
    tar.symlink("d/far", "/etc/passwd")
    tar.symlink("d/odd", "x/../..")


@case
async def links_that_lead_out_stay_out(box: Box) -> None:
    result = await box.sandbox.unpack(f"{box.folder}/x", _links, **BOUNDS)
    assert {(each.path, each.reason) for each in result.skipped} == {
        (f"d/{name}", "link") for name in ("out", "far", "odd")
    }
    assert result.entries == 5


@case
async def members_that_lead_out_end_the_copy(box: Box) -> None:
    for name in ("../x", "/x", "a/../../x"):
        with pytest.raises(errors.TransferError):
            await box.sandbox.unpack(f"{box.folder}/x", lambda tar, name=name: tar.directory(name, 0o755), **BOUNDS)


@case
async def requests_for_copies_are_strict(box: Box) -> None:
    for command, body, text in (
        ("pack", {"protocol": 1, "roots": [], "maxBytes": 1, "maxEntries": 1}, "out of range"),
        ("pack", {"protocol": 1, "rots": []}, 'unknown field "rots"'),
        ("unpack", {"protocol": 1, "path": "/x", "fileMode": "keep", "mode": 1}, 'unknown field "mode"'),
    ):
        done = await box.exec_.run(box.pin, [sandbox.HELPER, command], stdin=frames.request(body))
        if command == "pack":
            assert (done.code, done.stdout) == (1, b"")
            assert text in done.stderr.decode()
        else:
            answer = json.loads(done.stdout)
            assert (done.code, answer["ok"], answer["reason"]) == (0, False, "Protocol")
            assert text in answer["message"]


# -- all of it ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [pytest.param(name, id=name.replace("_", "-")) for name in CASES])
@pytest.mark.parametrize(
    "where", ["model", "binary", pytest.param("pod", marks=[pytest.mark.cluster, pytest.mark.timeout(300)])]
)
def test_the_helper(where: str, name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    match where:
        case "model":
            boxes.in_model(CASES[name], tmp_path)
        case "binary":
            boxes.on_this_machine(CASES[name], request.getfixturevalue("helper"), tmp_path)
        case _ if name in FRESH:
            with boxes.pod(request.getfixturevalue("kubeconfig"), request.getfixturevalue("helper")) as pin:
                boxes.in_a_pod(CASES[name], request.getfixturevalue("kubeconfig"), pin, tmp_path)
        case _:
            pin = request.getfixturevalue("pod")
            boxes.in_a_pod(CASES[name], request.getfixturevalue("kubeconfig"), pin, tmp_path)
