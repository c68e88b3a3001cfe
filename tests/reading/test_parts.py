"""Ranges, texts out of archives, whose output a file is, turns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.api import results
from taskfold.api.results import Of, Source
from taskfold.effects import errors
from taskfold.effects import store as stores
from taskfold.reading import answers, logs, sending, turns
from tests.reading import stored


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, (0, 100, True)),
        ("bytes=0-", (0, 100, False)),
        ("bytes=10-19", (10, 20, False)),
        ("bytes=90-1000", (90, 100, False)),
        ("bytes=-10", (90, 100, False)),
        ("bytes=-1000", (0, 100, False)),
        ("bytes=99-99", (99, 100, False)),
        ("bytes=0-1,5-6", (0, 100, True)),
        ("bytes=a-b", (0, 100, True)),
        ("bytes=-", (0, 100, True)),
        ("lines=1-2", (0, 100, True)),
    ],
)
def test_ranges(header: str | None, expected: tuple[int, int, bool]) -> None:
    found = sending.span(header, 100)
    assert (found.start, found.end, found.whole) == expected


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=1000-2000", "bytes=20-10", "bytes=-0"])
def test_ranges_that_are_not_there(header: str) -> None:
    with pytest.raises(answers.Refusal) as refused:
        sending.span(header, 100)
    assert (refused.value.code, refused.value.headers["Content-Range"]) == (416, "bytes */100")


@given(st.text(max_size=30), st.integers(0, 1000))
def test_a_range_is_never_outside(header: str, size: int) -> None:
    try:
        found = sending.span(header, size)
    except answers.Refusal:
        return
    assert 0 <= found.start <= found.end <= size


@pytest.mark.parametrize(
    ("name", "of", "sources"),
    [
        ("logs/agent/stdout.txt", Of.SANDBOX, {Source.AGENT}),
        ("logs/agent/deep/er/run.log", Of.AGENT, {Source.AGENT}),
        ("logs/agent/stdout.txt", Of.VERIFIER, set()),
        ("logs/agent/trajectory.json", Of.SANDBOX, set()),
        ("logs/agent/../verifier/test-stdout.txt", Of.SANDBOX, {Source.AGENT}),
        ("logs/steps/one/agent/stdout.txt", Of.SANDBOX, {Source.AGENT}),
        ("logs/verifier/test-stdout.txt", Of.SANDBOX, {Source.VERIFIER}),
        ("logs/verifier/test-stdout.txt", Of.VERIFIER, {Source.VERIFIER}),
        ("logs/verifier/test-stdout.txt", Of.AGENT, set()),
        ("logs/steps/one/verifier/test-stdout.txt", Of.AGENT, set()),
        ("logs/entrypoint-stdout.txt", Of.SANDBOX, {Source.ENTRYPOINT}),
        ("logs/verifier/entrypoint-stdout.txt", Of.AGENT, {Source.ENTRYPOINT}),
        ("logs/verifier/verifier-entrypoint-stdout.txt", Of.VERIFIER, {Source.ENTRYPOINT}),
        ("logs/verifier/reward.txt", Of.SANDBOX, set()),
        ("etc/passwd", Of.SANDBOX, set()),
    ],
)
def test_whose_output_a_file_is(name: str, of: Of, sources: set[Source]) -> None:
    assert {each for each in Source if results.printed(name, of, [each])} == sources


def test_a_step_of_several() -> None:
    one = "logs/steps/one/agent/stdout.txt"
    assert results.printed(one, Of.SANDBOX, [Source.AGENT], "one")
    assert not results.printed(one, Of.SANDBOX, [Source.AGENT], "two")
    assert results.printed("logs/agent/stdout.txt", Of.SANDBOX, [Source.AGENT], "two"), "an archive of this step alone"


class Counting(stores.Store):
    """A store that counts what is read of it."""

    read = 0

    async def get_range(self, key: str, start: int, end: int, *, etag: str | None = None) -> bytes:
        self.read += end - start
        return await super().get_range(key, start, end, etag=etag)


async def texts(tmp_path: Path, content: bytes, tail: int | None = None) -> tuple[bytes, int]:
    """What is shown of an archive, and how much of it was read."""
    (tmp_path / "a").mkdir(exist_ok=True)
    (tmp_path / "a/x.tar").write_bytes(content)
    store = Counting(f"file://{tmp_path}")
    archive = logs.Archive(store, "a/x.tar", len(content))
    with ThreadPoolExecutor(1) as threads:
        found = [part async for part in logs.texts(archive, lambda name: name.endswith(".txt"), tail, threads)]
    return b"".join(found), store.read


async def test_what_is_not_wanted_is_jumped_over(tmp_path: Path) -> None:
    files = {"a.bin": bytes(8 << 20), "b.txt": b"text\n", "c.bin": bytes(8 << 20), "d.txt": b"no end"}
    shown, read = await texts(tmp_path, stored.tar(files))
    assert shown == b"==> /b.txt <==\ntext\n\n==> /d.txt <==\nno end\n\n"
    assert read < 5 * logs.WINDOW_BYTES


async def test_the_end_of_a_large_text_costs_its_end(tmp_path: Path) -> None:
    content = b"x" * (16 << 20) + b"the end\n"
    shown, read = await texts(tmp_path, stored.tar({"a.txt": content}), tail=8)
    assert shown.endswith(b"bytes are left out)\nthe end\n\n")
    assert read < 3 * logs.WINDOW_BYTES


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, logs.PART_BYTES, logs.WINDOW_BYTES, logs.WINDOW_BYTES + 1])
@pytest.mark.parametrize("tail", [None, 0, 1, 512])
async def test_texts_of_any_size(tmp_path: Path, size: int, tail: int | None) -> None:
    content = bytes(97 + number % 26 for number in range(size))
    shown, _ = await texts(tmp_path, stored.tar({"a.txt": content, "b.txt": b"b\n"}), tail)
    expected = content if tail is None or tail >= size else content[size - tail :]
    assert expected in shown
    assert shown.endswith(b"==> /b.txt <==\nb\n\n" if tail in (None, 512) else b"b\n\n"[-(tail or 0) - 1 :])


async def test_a_damaged_archive_is_an_error(tmp_path: Path) -> None:
    whole = stored.tar({"a.txt": b"text\n", "b.txt": b"more\n"})
    for broken in (whole[:700], whole[:1500] + b"\xff" * 512 + whole[2012:], b""):
        with pytest.raises(errors.TransferError):
            await texts(tmp_path, broken)


async def test_hostile_names_do_not_break_the_text(tmp_path: Path) -> None:
    shown, _ = await texts(tmp_path, stored.tar({"a\n==> b <==.txt": b"x", "\udcff.txt": b"y"}))
    assert [line for line in shown.decode().splitlines() if line] == [
        "==> /a\\n==> b <==.txt <==",
        "x",
        "==> /\\udcff.txt <==",
        "y",
    ]


def test_turns_of_all_and_of_each() -> None:
    made = turns.Turns(4)
    with made.turn("ada"), made.turn("ada"):
        with pytest.raises(answers.Refusal, match="of yours"), made.turn("ada"):
            pass
        with made.turn("bob"), made.turn("bob"), pytest.raises(answers.Refusal, match="of everybody"), made.turn("eve"):
            pass
        with made.turn("eve"):
            pass
    with made.turn("ada"):
        pass
