"""The store in memory answers as the real one: each case asks both."""

import hashlib
from collections.abc import AsyncIterator

import pytest

from taskfold.effects import errors
from taskfold.effects import store as stores
from tests.world import store as world_store

KEY, OTHER = "cluster/team/uid/1/row.json", "cluster/team/uid/2/row.json"


@pytest.fixture(params=["real", "world"])
def store(request: pytest.FixtureRequest, tmp_path):
    if request.param == "real":
        return stores.Store(f"file://{tmp_path}/store")
    return world_store.Store(world_store.Bucket())


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_the_first_writer_wins(store):
    assert await store.put_new(KEY, b"first") is True
    assert await store.put_new(KEY, b"first") is False, "as after a request whose answer was lost"
    with pytest.raises(stores.AlreadyStored):
        await store.put_new(KEY, b"second")
    assert await store.get(KEY, limit=100) == b"first"


async def test_a_stream_replaces_and_tells_its_digest(store):
    await store.put_stream(KEY, chunks(b"old"))
    written = await store.put_stream(KEY, chunks(b"ab", b"", b"c"))
    assert written == stores.Written(3, f"sha256:{hashlib.sha256(b'abc').hexdigest()}")
    assert await store.get(KEY, limit=3) == b"abc"


async def test_a_stream_that_breaks_leaves_what_was_there(store):
    async def breaks() -> AsyncIterator[bytes]:
        yield b"half"
        raise errors.ConnectionLost("gone")

    await store.put_stream(KEY, chunks(b"old"))
    with pytest.raises(errors.ConnectionLost):
        await store.put_stream(KEY, breaks())
    with pytest.raises(stores.TooLarge):
        await store.put_stream(KEY, chunks(b"four"), limit=3)
    assert await store.get(KEY, limit=100) == b"old"


async def test_what_is_not_there(store):
    assert await store.exists(KEY) is False
    with pytest.raises(stores.NotStored):
        await store.get(KEY, limit=100)
    with pytest.raises(stores.NotStored):
        async with store.local_copy(KEY, f"sha256:{'0' * 64}"):
            pass


async def test_more_bytes_than_allowed(store):
    await store.put_new(KEY, b"four")
    with pytest.raises(stores.TooLarge):
        await store.get(KEY, limit=3)


async def test_a_local_copy_is_proven(store):
    await store.put_new(KEY, b"abc")
    async with store.local_copy(KEY, f"sha256:{hashlib.sha256(b'abc').hexdigest()}") as path:
        assert path.read_bytes() == b"abc"
    with pytest.raises(errors.StoreError):
        async with store.local_copy(KEY, f"sha256:{hashlib.sha256(b'other').hexdigest()}"):
            pass


async def test_listing_and_deleting(store):
    await store.put_new(KEY, b"a")
    await store.put_new(OTHER, b"bb")
    found = [stored async for stored in store.list("cluster/team/")]
    assert sorted((stored.key, stored.size) for stored in found) == [(KEY, 1), (OTHER, 2)]
    assert await store.delete("cluster/team/uid/") == 2
    assert await store.exists(KEY) is False


async def test_reading_piece_by_piece(store):
    content = bytes(range(256)) * 1000
    await store.put_stream(KEY, chunks(content))
    reader = await store.open(KEY)
    assert reader.size == len(content)
    assert b"".join([bytes(chunk) async for chunk in reader]) == content
    with pytest.raises(stores.NotStored):
        await store.open(OTHER)


async def test_what_is_removed_is_gone_whether_it_was_there_or_not(store):
    await store.put_new(KEY, b"a")
    await store.remove([KEY, OTHER])
    assert await store.exists(KEY) is False


@pytest.mark.parametrize("key", ["a//b", "../a", "a/b#1", "a\nb"])
async def test_keys_that_no_backend_can_hold(store, key):
    with pytest.raises(errors.StoreError):
        await store.put_new(key, b"")


async def test_a_prefix_that_is_too_wide(store):
    with pytest.raises(errors.StoreError):
        await store.delete("cluster/team/")
