"""The framing: whatever is written comes back however it is cut, and nothing else is accepted."""

import hashlib
import itertools
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.effects import errors, frames

cuts = st.lists(st.integers(0, 4000), max_size=20)
objects = st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.booleans()))


def pieces(data: bytes, at: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(min(cut, len(data)) for cut in at), len(data)]
    yield from (data[start:end] for start, end in itertools.pairwise(edges))


def archive(chunks: list[bytes]) -> tuple[bytes, frames.Trailer]:
    tar = b"".join(chunks)
    trailer = frames.Trailer(len(chunks), len(tar), hashlib.sha256(tar).hexdigest())
    return b"".join(frames.header(len(chunk)) + chunk for chunk in chunks) + trailer.encode(), trailer


@given(chunks=st.lists(st.binary(min_size=1, max_size=300), max_size=8), at=cuts)
def test_an_archive_comes_back_however_it_is_cut(chunks: list[bytes], at: list[int]) -> None:
    stream, trailer = archive(chunks)
    decoder = frames.ArchiveDecoder()
    got = b"".join(bytes(view) for piece in pieces(stream, at) for view in decoder.feed(piece))
    assert got == b"".join(chunks)
    assert decoder.finish() == trailer


@given(chunks=st.lists(st.binary(min_size=1, max_size=50), max_size=4), data=st.data())
def test_an_archive_that_ends_early_is_truncated(chunks: list[bytes], data: st.DataObject) -> None:
    stream, _ = archive(chunks)
    decoder = frames.ArchiveDecoder()
    list(decoder.feed(stream[: data.draw(st.integers(0, len(stream) - 1))]))
    with pytest.raises(errors.Truncated):
        decoder.finish()


@pytest.mark.parametrize(
    "stream",
    [
        b"\xff\xff\xff\xff",
        frames.END + b"\xff\xff\xff\xff",
        frames.END + b"\0\0\0\0",
        frames.END + b"\0\0\0\2{}",
        frames.END + b"\0\0\0\2[]",
        frames.END + b"\0\0\0\3{{{",
        archive([b"x"])[0] + b"y",
    ],
    ids=["huge chunk", "huge trailer", "no trailer", "empty trailer", "a list", "not JSON", "bytes behind"],
)
def test_what_is_not_an_archive(stream: bytes) -> None:
    with pytest.raises(errors.ProtocolError):
        list(frames.ArchiveDecoder().feed(stream))


def test_a_trailer_keeps_what_else_it_says() -> None:
    body = json.dumps({"entries": 1, "bytes": 2, "sha256": "x", "truncated": True}).encode()
    assert frames.Trailer.decode(body).extra == {"truncated": True}


@given(values=st.lists(objects, max_size=6), at=cuts)
def test_events_come_back_however_they_are_cut(values: list[dict[str, object]], at: list[int]) -> None:
    stream = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    decoder = frames.LineDecoder()
    assert [event for piece in pieces(stream, at) for event in decoder.feed(piece)] == values
    decoder.finish()


def test_a_line_is_bounded() -> None:
    decoder = frames.LineDecoder(limit=100)
    list(decoder.feed(b"x" * 100))
    with pytest.raises(errors.ProtocolError, match="100 bytes"):
        list(decoder.feed(b"x"))


@pytest.mark.parametrize("line", [b"hello\n", b"[1]\n", b"\xff\xfe\n"])
def test_what_is_not_an_event(line: bytes) -> None:
    with pytest.raises(errors.ProtocolError):
        list(frames.LineDecoder().feed(line))


def test_an_answer_that_ends_inside_a_line_is_truncated() -> None:
    decoder = frames.LineDecoder()
    assert list(decoder.feed(b'{"a":1}\n{"b"')) == [{"a": 1}]
    with pytest.raises(errors.Truncated):
        decoder.finish()


@given(objects)
def test_a_request_is_a_length_and_json(value: dict[str, object]) -> None:
    data = frames.request(value)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert json.loads(data[4:]) == value


def test_a_request_is_bounded() -> None:
    with pytest.raises(errors.LimitExceeded, match="environment"):
        frames.request({"env": "x" * frames.MAX_REQUEST})
