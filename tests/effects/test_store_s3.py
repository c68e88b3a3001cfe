"""The store against a real S3 server, which is slow, refuses, breaks off and restarts."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests import s3

from taskfold.effects import backends, errors, local_copies, store

pytestmark = [pytest.mark.cluster, pytest.mark.alone]  # the server is built with the local cluster, and restarted
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[s3.Server, s3.Proxy]]:
    with s3.served(tmp_path_factory.mktemp("s3")) as both:
        yield both


@pytest.fixture
def server(running: tuple[s3.Server, s3.Proxy]) -> s3.Server:
    return running[0]


@pytest.fixture
def proxy(running: tuple[s3.Server, s3.Proxy]) -> Iterator[s3.Proxy]:
    running[1].requests.clear()
    yield running[1]
    running[1].troubles.clear()


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Keys of this test alone."""
    return f"c/n/{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]}/"


def connect(endpoint: str, *, folder: Path | None = None, secret: str = s3.SECRET_KEY, **options: str) -> store.Store:
    copies = local_copies.LocalCopies(folder) if folder is not None else None
    return store.Store(f"s3://{s3.BUCKET}/base", options={**s3.options(endpoint, secret), **options}, cache=copies)


@pytest.fixture
def kept(proxy: s3.Proxy, tmp_path: Path) -> store.Store:
    return connect(proxy.endpoint, folder=tmp_path / "copies")


async def stream(content: bytes, size: int = 300_000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def read(kept: store.Store, key: str) -> bytes:
    return b"".join([chunk async for chunk in await kept.open(key)])


# -- what works ------------------------------------------------------------------------------------------------------


async def test_check_passes_and_leaves_nothing(kept: store.Store, server: s3.Server) -> None:
    await kept.check()
    assert not [key for key in s3.objects(server) if "taskfold-check" in key]


@pytest.mark.parametrize("size", [0, 1, MIB, store.PART_BYTES, store.PART_BYTES + 1, 20 * MIB + 1])
async def test_a_stream_comes_back_equal(kept: store.Store, prefix: str, size: int) -> None:
    content = os.urandom(size)
    written = await kept.put_stream(f"{prefix}1/big", stream(content))
    assert written == store.Written(size, f"sha256:{hashlib.sha256(content).hexdigest()}")
    assert await read(kept, f"{prefix}1/big") == content
    async with kept.local_copy(f"{prefix}1/big", written.digest) as path:
        assert path.read_bytes() == content


async def test_put_new_has_one_winner_among_two_operators(proxy: s3.Proxy, kept: store.Store, prefix: str) -> None:
    """Two processes write the same document at the same moment, many times: one wins, and both read that one."""
    other = connect(proxy.endpoint)
    for number in range(25):
        key = f"{prefix}1/row-{number}.json"
        results = await asyncio.gather(
            kept.put_new(key, b"first"), other.put_new(key, b"second"), return_exceptions=True
        )
        assert sorted(map(str, map(type, results))) == sorted(map(str, (bool, store.AlreadyStored)))
        winner = b"first" if results[0] is True else b"second"
        assert await kept.get(key, limit=10) == await other.get(key, limit=10) == winner


async def test_put_new_has_one_winner_among_twenty(kept: store.Store, prefix: str) -> None:
    contents = [str(number).encode() for number in range(20)]
    results = await asyncio.gather(*(kept.put_new(f"{prefix}1/row", each) for each in contents), return_exceptions=True)
    assert results.count(True) == 1
    assert sum(isinstance(each, store.AlreadyStored) for each in results) == 19
    assert await kept.get(f"{prefix}1/row", limit=10) == contents[results.index(True)]


async def test_unusual_names_come_back_as_they_were(kept: store.Store, prefix: str) -> None:
    keys = sorted(f"{prefix}{name}" for name in ("a b", "ü", "100%25", "~x", "a:b", "a*?[1]", "#", "-", "'\"", "a+b"))
    for key in keys:
        await kept.put_new(key, key.encode())
    assert sorted([each.key async for each in kept.list(prefix)]) == keys
    for key in keys:
        assert await kept.get(key, limit=100) == key.encode()
    assert await kept.delete(prefix) == len(keys)


async def test_list_goes_by_whole_segments_and_says_when(kept: store.Store, prefix: str) -> None:
    for key in ("u/1/a", "u/10/b", "u2/1/c"):
        await kept.put_new(prefix + key, b"xy")
    assert [(each.key, each.size) async for each in kept.list(f"{prefix}u/1/")] == [(f"{prefix}u/1/a", 2)]
    times = [each.modified async for each in kept.list(prefix)]
    assert len(times) == 3
    assert max(times) - min(times) < 600


@pytest.mark.bulk
async def test_ten_thousand_keys(server: s3.Server, kept: store.Store, prefix: str) -> None:
    folder = server.folder / s3.BUCKET / "base" / prefix / "1"
    folder.mkdir(parents=True)
    for number in range(10_000):  # as the server keeps them: putting them one by one would take its time
        (folder / f"{number:05}").write_bytes(b"x")
    assert len([1 async for _ in kept.list(prefix)]) == 10_000
    assert await kept.delete(prefix, limit=4_000) == 4_000
    assert await kept.delete(prefix) == 6_000
    assert [1 async for _ in kept.list(prefix)] == []


# -- trouble ---------------------------------------------------------------------------------------------------------


async def test_a_few_503_are_nothing(kept: store.Store, proxy: s3.Proxy, prefix: str) -> None:
    trouble = proxy.meet(s3.Trouble(status=503, times=3))
    content = os.urandom(20 * MIB)
    written = await kept.put_stream(f"{prefix}1/big", stream(content))
    assert trouble.met == 3
    assert written.size == len(content)
    assert await read(kept, f"{prefix}1/big") == content


async def test_many_503_end_in_an_error_after_bounded_tries(kept: store.Store, proxy: s3.Proxy, prefix: str) -> None:
    proxy.meet(s3.Trouble(status=503))
    for call in (kept.put_new(f"{prefix}row", b"x"), kept.get(f"{prefix}row", limit=1), kept.exists(f"{prefix}row")):
        proxy.requests.clear()
        with pytest.raises(errors.StoreError) as caught:
            await call
        assert f"{prefix}row" in str(caught.value)
        assert len(proxy.requests) == backends.RETRIES["max_retries"] + 1


@pytest.mark.parametrize("method", ["PUT", "POST", "GET"])
async def test_an_answer_that_is_lost_is_asked_for_again(
    kept: store.Store, proxy: s3.Proxy, prefix: str, method: str
) -> None:
    """Of a part, of the end of an upload, of a read: the server had done it, and nobody was told."""
    trouble = proxy.meet(s3.Trouble(method=method, lost=True, times=1))
    content = os.urandom(20 * MIB)
    await kept.put_stream(f"{prefix}1/big", stream(content))
    assert await read(kept, f"{prefix}1/big") == content
    assert trouble.met == 1


async def test_put_new_whose_answer_is_lost_was_its_own(kept: store.Store, proxy: s3.Proxy, prefix: str) -> None:
    trouble = proxy.meet(s3.Trouble(method="PUT", lost=True, times=1))
    await kept.put_new(f"{prefix}row", b"mine")
    assert trouble.met == 1
    with pytest.raises(store.AlreadyStored):
        await kept.put_new(f"{prefix}row", b"other")
    assert await kept.get(f"{prefix}row", limit=10) == b"mine"


@pytest.mark.parametrize("cut", [0, 100, 5 * MIB])
async def test_a_download_that_breaks_off_is_whole_or_an_error(
    kept: store.Store, proxy: s3.Proxy, prefix: str, cut: int
) -> None:
    content = os.urandom(20 * MIB)
    await kept.put_stream(f"{prefix}big", stream(content))
    trouble = proxy.meet(s3.Trouble(method="GET", path="/big", cut=cut, times=2))
    try:
        found = await read(kept, f"{prefix}big")
    except errors.StoreError:
        found = await read(kept, f"{prefix}big")
    assert found == content
    assert trouble.met == 2


async def test_an_upload_that_breaks_off_is_whole_or_nothing(kept: store.Store, proxy: s3.Proxy, prefix: str) -> None:
    content = os.urandom(20 * MIB)
    trouble = proxy.meet(s3.Trouble(method="PUT", cut_request=3 * MIB, times=2))
    written = await kept.put_stream(f"{prefix}big", stream(content))
    assert trouble.met == 2
    assert written.size == len(content)
    assert await read(kept, f"{prefix}big") == content


async def test_an_upload_that_always_breaks_off_is_nothing(kept: store.Store, proxy: s3.Proxy, prefix: str) -> None:
    proxy.meet(s3.Trouble(method="PUT", cut_request=3 * MIB))
    with pytest.raises(errors.StoreError):
        await kept.put_stream(f"{prefix}big", stream(os.urandom(20 * MIB)))
    proxy.troubles.clear()
    assert not await kept.exists(f"{prefix}big")
    assert [1 async for _ in kept.list(prefix)] == []


async def test_a_slow_store_is_waited_for(kept: store.Store, proxy: s3.Proxy, prefix: str) -> None:
    trouble = proxy.meet(s3.Trouble(delay=1.0))
    content = os.urandom(9 * MIB)
    await kept.put_stream(f"{prefix}big", stream(content))
    assert await read(kept, f"{prefix}big") == content
    assert trouble.met >= 6


async def test_a_store_that_never_answers_has_a_limit(
    kept: store.Store, proxy: s3.Proxy, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "CALL_SECONDS", 1.0)
    proxy.meet(s3.Trouble(delay=60.0))
    for call in (kept.exists(f"{prefix}row"), kept.put_new(f"{prefix}row", b"x"), kept.get(f"{prefix}row", limit=1)):
        with pytest.raises(errors.StoreError, match="no answer"):
            await call


async def test_credentials_that_are_wrong_are_said(proxy: s3.Proxy) -> None:
    wrong = connect(proxy.endpoint, secret="wrong-wrong-wrong")
    with pytest.raises(errors.StoreError) as caught:
        await wrong.check()
    assert "identity" in caught.value.remedy
    assert "wrong-wrong" not in str(caught.value)


async def test_a_403_is_not_tried_again(kept: store.Store, proxy: s3.Proxy, prefix: str) -> None:
    trouble = proxy.meet(s3.Trouble(status=403))
    with pytest.raises(errors.StoreError) as caught:
        await kept.put_new(f"{prefix}row", b"x")
    assert "read, write and delete" in caught.value.remedy
    assert trouble.met == 1


async def test_a_bucket_that_is_not_there_is_said(proxy: s3.Proxy) -> None:
    nowhere = store.Store("s3://nowhere/base", options=s3.options(proxy.endpoint))
    with pytest.raises(errors.StoreError, match=r"bucket") as caught:
        await nowhere.check()
    assert "s3://nowhere" in str(caught.value)


async def test_no_server_at_all_is_an_error_within_bounds(prefix: str, tmp_path: Path) -> None:
    away = connect(s3.Server(tmp_path / "none", tmp_path / "log").endpoint)
    with pytest.raises(errors.StoreError, match="s3://"):
        await away.exists(f"{prefix}row")


async def test_the_server_restarts_in_the_middle_of_an_upload(
    kept: store.Store, server: s3.Server, prefix: str
) -> None:
    content = os.urandom(40 * MIB)

    async def interrupted() -> AsyncIterator[bytes]:
        async for chunk in stream(content[: 20 * MIB]):
            yield chunk
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        async for chunk in stream(content[20 * MIB :]):
            yield chunk

    await kept.put_stream(f"{prefix}big", interrupted())
    assert await read(kept, f"{prefix}big") == content


async def test_the_server_restarts_in_the_middle_of_a_download(
    kept: store.Store, server: s3.Server, prefix: str
) -> None:
    content = os.urandom(40 * MIB)
    await kept.put_stream(f"{prefix}big", stream(content))
    found = b""
    async for chunk in await kept.open(f"{prefix}big"):
        if not found:
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        found += chunk
    assert found == content


async def test_the_server_ends_in_the_middle_of_an_upload_and_nothing_is_there(
    kept: store.Store, server: s3.Server, prefix: str
) -> None:
    async def interrupted() -> AsyncIterator[bytes]:
        yield os.urandom(20 * MIB)
        await asyncio.to_thread(server.kill)
        yield os.urandom(20 * MIB)

    try:
        with pytest.raises(errors.StoreError):
            await kept.put_stream(f"{prefix}big", interrupted())
    finally:
        await asyncio.to_thread(server.start)
    assert not await kept.exists(f"{prefix}big")
    await kept.put_stream(f"{prefix}big", stream(b"again"))
    assert await read(kept, f"{prefix}big") == b"again"


async def test_a_stream_that_fails_leaves_no_object(kept: store.Store, prefix: str) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield bytes(20 * MIB)
        raise FileNotFoundError("the source's own error")

    with pytest.raises(FileNotFoundError, match="own error"):
        await kept.put_stream(f"{prefix}failing", failing())
    assert not await kept.exists(f"{prefix}failing")


# -- two operators, two attempts -------------------------------------------------------------------------------------


async def test_two_operators_that_keep_the_same_run_cannot_clobber_each_other(
    proxy: s3.Proxy, kept: store.Store, prefix: str
) -> None:
    """Bulk under a nonce of its writer, then the document that names it: whoever reads the document finds its bulk."""
    other = connect(proxy.endpoint)

    async def collect(at: store.Store, nonce: str) -> bool:
        content = os.urandom(9 * MIB)
        written = await at.put_stream(f"{prefix}1/files-{nonce}.tar", stream(content))
        try:
            return await at.put_new(f"{prefix}1/collected.json", f"{nonce} {written.digest}".encode())
        except store.AlreadyStored:
            return False

    assert sorted(await asyncio.gather(collect(kept, "aa"), collect(other, "bb"))) == [False, True]
    nonce, digest = (await kept.get(f"{prefix}1/collected.json", limit=200)).decode().split()
    named = await read(other, f"{prefix}1/files-{nonce}.tar")
    assert f"sha256:{hashlib.sha256(named).hexdigest()}" == digest


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "header", "value"),
    [
        ({"server_side_encryption": "AES256"}, "x-amz-server-side-encryption", "AES256"),
        ({"server_side_encryption": "aws:kms"}, "x-amz-server-side-encryption", "aws:kms"),
        (
            {"server_side_encryption": "aws:kms", "sse_kms_key_id": "key-1"},
            "x-amz-server-side-encryption-aws-kms-key-id",
            "key-1",
        ),
        ({"server_side_encryption": "aws:kms:dsse"}, "x-amz-server-side-encryption", "aws:kms:dsse"),
        (
            {"server_side_encryption": "aws:kms", "sse_bucket_key_enabled": "true"},
            "x-amz-server-side-encryption-bucket-key-enabled",
            "true",
        ),
        (
            {
                "server_side_encryption": "sse-c",
                "sse_customer_key_base64": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
            },
            "x-amz-server-side-encryption-customer-algorithm",
            "AES256",
        ),
    ],
)
async def test_encryption_is_asked_for_with_each_new_object(
    proxy: s3.Proxy, prefix: str, options: dict[str, str], header: str, value: str
) -> None:
    """What is asked for: the server under test keeps objects as they are, or refuses."""
    proxy.meet(s3.Trouble(status=501))
    kept = connect(proxy.endpoint, **options)
    for call in (kept.put_new(f"{prefix}row", b"x"), kept.put_stream(f"{prefix}big", stream(bytes(9 * MIB)))):
        proxy.requests.clear()
        with pytest.raises(errors.StoreError):
            await call
        _, _, headers = proxy.requests[0]
        assert {name.lower(): text for name, text in headers.items()}[header] == value


async def test_requests_name_the_bucket_in_their_path(kept: store.Store, proxy: s3.Proxy, prefix: str) -> None:
    await kept.exists(f"{prefix}row")
    assert proxy.requests[0][1] == f"/{s3.BUCKET}/base/{prefix}row"


async def test_http_must_be_allowed(proxy: s3.Proxy, prefix: str) -> None:
    options = s3.options(proxy.endpoint)
    del options["allow_http"]
    with pytest.raises(errors.StoreError):
        await store.Store(f"s3://{s3.BUCKET}/base", options=options).exists(f"{prefix}row")
    assert proxy.requests == []


async def test_credentials_and_the_key_of_encryption_come_from_the_environment(
    proxy: s3.Proxy, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in s3.environment().items():
        monkeypatch.setenv(name, text)
    options = {k: v for k, v in s3.options(proxy.endpoint).items() if k not in ("access_key_id", "secret_access_key")}
    kept = store.Store(f"s3://{s3.BUCKET}/base", options=options)
    await kept.put_new(f"{prefix}row", b"x")
    assert await kept.get(f"{prefix}row", limit=1) == b"x"
    monkeypatch.setenv("AWS_SSE_CUSTOMER_KEY_BASE64", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
    proxy.requests.clear()
    proxy.meet(s3.Trouble(status=501))
    with pytest.raises(errors.StoreError):
        await store.Store(f"s3://{s3.BUCKET}/base", options={**options, "server_side_encryption": "sse-c"}).put_new(
            f"{prefix}other", b"x"
        )
    assert "x-amz-server-side-encryption-customer-key" in {name.lower() for name in proxy.requests[0][2]}


async def test_an_address_for_others_reads_the_object(kept: store.Store, prefix: str) -> None:
    await kept.put_new(f"{prefix}row", b"content")
    address = await kept.presigned(f"{prefix}row", 60)
    assert address is not None
    async with s3.aiohttp.ClientSession() as session, session.get(address) as answer:
        assert await answer.read() == b"content"
