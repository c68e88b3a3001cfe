"""Reading kept files through an API server that cuts, lies, limits and forgets."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from taskfold.effects import credentials, errors, results

CONTENT = bytes(range(256)) * 4096
DIGEST = hashlib.sha256(CONTENT).hexdigest()
STORED = results.Stored("a.tar", len(CONTENT), DIGEST)
SUBJECT = results.Subject("taskruns", "ns", "r")
Behaviour = Callable[["Server", web.Request], Awaitable[web.StreamResponse]]


class Server:
    """One file, served as a test wishes."""

    def __init__(self) -> None:
        self.behaviour: Behaviour = whole
        self.ranges: list[tuple[int, int]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return await self.behaviour(self, request)

    def asked(self, request: web.Request) -> bytes:
        """The range, noted."""
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers["Range"])
        assert match is not None
        start, end = int(match[1]), int(match[2]) + 1
        self.ranges.append((start, end))
        return CONTENT[start:end]


def tag(digest: str = DIGEST) -> dict[str, str]:
    return {"ETag": f'"sha256-{digest}"'}


async def whole(server: Server, request: web.Request) -> web.StreamResponse:
    return web.Response(status=206, body=server.asked(request), headers=tag())


async def cut(server: Server, request: web.Request) -> web.StreamResponse:
    """Promises all, sends a part and hangs up, as an API server does after its minute."""
    content = server.asked(request)
    response = web.StreamResponse(status=206, headers=tag())
    response.content_length = len(content)
    await response.prepare(request)
    await response.write(content[: 100_000 + len(server.ranges)])
    assert request.transport is not None
    request.transport.close()
    return response


async def gone(server: Server, request: web.Request) -> web.StreamResponse:
    server.asked(request)
    return web.json_response({"kind": "Status", "message": "no endpoints available"}, status=503)


async def busy_once(server: Server, request: web.Request) -> web.StreamResponse:
    if not server.ranges:
        server.asked(request)
        return web.json_response({"kind": "Status", "message": "busy"}, status=429, headers={"Retry-After": "0"})
    return await whole(server, request)


async def another(server: Server, request: web.Request) -> web.StreamResponse:
    return web.Response(status=206, body=server.asked(request), headers=tag("0" * 64))


async def altered(server: Server, request: web.Request) -> web.StreamResponse:
    return web.Response(status=206, body=bytes(len(server.asked(request))), headers=tag())


async def too_much(server: Server, request: web.Request) -> web.StreamResponse:
    return web.Response(status=206, body=server.asked(request) + b"x" * 10, headers=tag())


async def no_ranges(server: Server, request: web.Request) -> web.StreamResponse:
    server.asked(request)
    return web.Response(body=CONTENT, headers=tag())


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made, application = Server(), web.Application()
    application.router.add_get("/{path:.+}", made.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "PIECE_BYTES", 300_000)
    monkeypatch.setattr(results, "PAUSE_SECONDS", 0.0)


async def fetched(server: Server, target: Path, stored: results.Stored = STORED) -> None:
    async with results.Results(credentials.static(server.url), SUBJECT) as reader:
        await reader.fetch(stored, target)


async def test_in_pieces(server: Server, tmp_path: Path) -> None:
    await fetched(server, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert server.ranges == [(0, 300_000), (300_000, 600_000), (600_000, 900_000), (900_000, len(CONTENT))]


async def test_what_is_cut_goes_on_where_it_was_cut(server: Server, tmp_path: Path) -> None:
    server.behaviour = cut
    await fetched(server, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert len(server.ranges) > 8, "as long as something comes there is no limit of tries"


async def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.behaviour = busy_once
    await fetched(server, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT


async def test_a_server_that_stays_away_is_given_up_and_the_beginning_kept(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(CONTENT[:1000])
    server.behaviour = gone
    with pytest.raises(errors.Unavailable):
        await fetched(server, tmp_path / "x")
    assert server.ranges == [(1000, 301_000)] * results.TRIES
    assert (tmp_path / "x").read_bytes() == CONTENT[:1000]


async def test_a_beginning_is_gone_on_with_and_proven_with_the_rest(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(CONTENT[:900_000] + b"")
    await fetched(server, tmp_path / "x")
    assert server.ranges == [(900_000, len(CONTENT))]
    (tmp_path / "y").write_bytes(b"other" + CONTENT[5:900_000])
    with pytest.raises(errors.DigestMismatch):
        await fetched(server, tmp_path / "y")
    assert not (tmp_path / "y").exists()
    await fetched(server, tmp_path / "y")
    assert (tmp_path / "y").read_bytes() == CONTENT


async def test_more_than_the_file_is_cut_off_a_beginning(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(CONTENT + b"more")
    await fetched(server, tmp_path / "x")
    assert ((tmp_path / "x").read_bytes(), server.ranges) == (CONTENT, [])


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (another, errors.DigestMismatch),
        (altered, errors.DigestMismatch),
        (too_much, errors.DigestMismatch),
    ],
)
async def test_other_bytes_are_never_taken(
    server: Server, tmp_path: Path, behaviour: Behaviour, error: type[Exception]
) -> None:
    server.behaviour = behaviour
    with pytest.raises(error):
        await fetched(server, tmp_path / "x")
    assert not (tmp_path / "x").exists()


async def test_a_server_without_ranges_is_no_reason_to_begin_in_the_middle(server: Server, tmp_path: Path) -> None:
    server.behaviour = no_ranges
    (tmp_path / "x").write_bytes(CONTENT[:1000])
    with pytest.raises(errors.BadRequest):
        await fetched(server, tmp_path / "x")


async def test_a_link_in_the_way_is_not_followed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "x").symlink_to(tmp_path / "elsewhere")
    with contextlib.suppress(errors.EffectError), pytest.raises(OSError, match=r"symbolic links"):
        await fetched(server, tmp_path / "x")
    assert (tmp_path / "elsewhere").read_text() == "mine"


async def test_a_text_that_ends_early_is_an_error(server: Server) -> None:
    async def broken(_: Server, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half of it")
        assert request.transport is not None
        request.transport.close()
        return response

    server.behaviour = broken
    found = b""
    async with results.Results(credentials.static(server.url), SUBJECT) as reader:
        with pytest.raises(errors.Truncated):
            async for part in reader.texts(None, None, None):
                found += part
    assert found == b"half of it"
