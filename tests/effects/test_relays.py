"""Archives that are passed on: equal, in flat memory, and with their source's own error where that breaks."""

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.effects.local_box import boxed

from taskfold.effects import errors, frames, relays, sandbox, sinks, transfer

BOUNDS = {"max_bytes": 1 << 32, "max_entries": 1000}


def relay(chunks: Sequence[bytes], *, trailer: frames.Trailer | None = None) -> relays.Relay:
    whole = b"".join(chunks)
    expected = trailer or frames.Trailer(1, len(whole), hashlib.sha256(whole).hexdigest())

    async def source() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return relays.Relay(source, lambda: expected, where="s3://bucket/object")


async def sent(payload: transfer.AnyPayload) -> bytes:
    """What the helper would take apart."""
    wire = bytearray()
    async with transfer.opened(payload) as outgoing:
        async for block in outgoing.blocks():
            assert len(block) <= frames.BLOCK_BYTES
            wire += block[1:]
        wire += outgoing.trailer.encode()
    decoder = frames.ArchiveDecoder()
    content = b"".join(bytes(part) for part in decoder.feed(wire))
    decoder.finish()
    return content


@given(
    sizes=st.lists(
        st.sampled_from([0, 1, 5, relays.PART_BYTES - 1, relays.PART_BYTES, relays.PART_BYTES + 1, 1 << 20]), max_size=6
    )
)
def test_chunks_of_any_size_arrive_equal(sizes: list[int]) -> None:
    chunks = [bytes([index]) * size for index, size in enumerate(sizes)]
    assert asyncio.run(sent(relay(chunks))) == b"".join(chunks)


@pytest.mark.parametrize(
    "trailer",
    [frames.Trailer(1, 3, "0" * 64), frames.Trailer(1, 4, hashlib.sha256(b"abc").hexdigest())],
    ids=["other bytes", "another length"],
)
async def test_no_trailer_goes_behind_other_bytes(trailer: frames.Trailer) -> None:
    with pytest.raises(errors.DigestMismatch, match="s3://bucket/object"):
        await sent(relay([b"ab", b"c"], trailer=trailer))


async def test_a_source_that_breaks_breaks_the_copy() -> None:
    async def source() -> AsyncIterator[bytes]:
        yield b"some"
        raise errors.StoreError("no answer")

    with pytest.raises(errors.StoreError, match="no answer"):
        await sent(relays.Relay(source, lambda: frames.Trailer(1, 4, "")))


async def test_a_slow_reader_stops_the_source_and_one_that_leaves_ends_it() -> None:
    given_, ended = 0, asyncio.Event()

    async def source() -> AsyncIterator[bytes]:
        nonlocal given_
        try:
            while True:
                given_ += 1
                yield bytes(10)
        finally:
            ended.set()

    async with transfer.opened(relays.Relay(source, lambda: frames.Trailer(1, 0, ""))) as outgoing:
        blocks = outgoing.blocks()
        for number in range(1, 20):
            await anext(blocks)
            for _ in range(5):
                await asyncio.sleep(0)  # whatever could go on goes on
            assert given_ <= number + 1
    assert ended.is_set()


@pytest.mark.parametrize("size", [0, 1, 300_000, 20 << 20])
async def test_out_of_one_sandbox_into_another(helper: Path, tmp_path: Path, size: int) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "file").write_bytes(bytes(range(256)) * (size // 256) + b"x" * (size % 256))

    async with boxed(helper) as one, boxed(helper) as other:

        def trailer() -> frames.Trailer:
            assert sink.trailer is not None
            return sink.trailer

        async def into(chunks: AsyncIterable[bytes]) -> sandbox.UnpackResult:
            return await other.unpack(str(tmp_path / "to"), relays.Relay(lambda: chunks, trailer), **BOUNDS)

        sink = sinks.ToConsumer(into)
        out = await one.pack([sandbox.Root(str(tmp_path / "from"), ".")], sink, **BOUNDS)
    assert sink.result is not None
    assert (sink.result.sha256, sink.result.entries) == (out.sha256, out.entries)
    assert (tmp_path / "to" / "file").read_bytes() == (tmp_path / "from" / "file").read_bytes()
