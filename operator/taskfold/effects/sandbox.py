"""The client side of the sandbox helper: phases, and copies in and out, over exec.

`run_phase` may be called again with the same request after any error that leaves the outcome open
(ConnectionLost, ExecTimeout, HelperFailed): the helper starts a nonce once, a later call attaches and gets
the same result. Secrets travel by stdin only. A copy counts only if bytes and sha256 agree at both ends.
Nothing that the sandbox says is trusted beyond its bounds: an agent that is root can tamper with an exec'd
process (not with PID 1).
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from taskfold import protocol
from taskfold.effects import errors, frames, packed, places, scrubbing, sinks, transfer
from taskfold.effects import exec as execs
from taskfold.effects.lines import Lines, leave
from taskfold.effects.packed import PackResult, Root, RootResult, RootType, Skipped
from taskfold.protocol import bounds, values
from taskfold.protocol import phase as phases

__all__ = ["Going", "PackResult", "Root", "RootResult", "RootType", "Sandbox", "Skipped", "Started", "UnpackResult"]

HELPER = "/.taskfold/helper"
SLACK_SECONDS = 600.0  # preparation and reading, beside the runs' own limits
IDLE_SECONDS = 90.0  # the helper says `alive` every 20 s
MOMENT_SECONDS = 1.0  # for an end that is there already to arrive right behind the start
PACK_OVERHEAD = 12 * 1024  # bytes per entry: headers, a path and a link target of 4 KiB each, padding


def new_nonce() -> str:
    """32 random hex digits."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Started:
    """The phase is running. `attached`: it was before. `prepared`: one raw result per prepare op."""

    at: str
    attached: bool
    prepared: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Going:
    """The phase goes on, and nobody is connected to it any more: attach later."""

    started_at: str


@dataclass(frozen=True, slots=True)
class UnpackResult:
    """What went in, as counted at both ends."""

    entries: int
    size: int
    sha256: str
    skipped: tuple[Skipped, ...] = ()


class Sandbox:
    """One pinned container with the helper in it."""

    def __init__(
        self, exec_: execs.Exec, pin: execs.PodPin, *, lines: Lines | None = None, helper: str = HELPER
    ) -> None:
        """`lines`: streams that are kept between the phases of a pod; without them each phase has its own."""
        self.pin = pin
        self._exec = exec_
        self._lines = lines or Lines(exec_)
        self._helper = helper

    async def run_phase(
        self,
        request: phases.PhaseRequest,
        payloads: Sequence[transfer.AnyPayload] = (),
        *,
        on_started: Callable[[Started], Awaitable[None]] | None = None,
        total_seconds: float | None = None,
        checked: bool = False,
    ) -> phases.PhaseResult:
        """`begin_phase`, and stay until the end."""
        found = await self.begin_phase(
            request, payloads, on_started=on_started, total_seconds=total_seconds, checked=checked
        )
        if isinstance(found, Going):
            raise errors.ConnectionLost("the sandbox let go of a phase that goes on", where=self.pin.where)
        return found

    async def begin_phase(
        self,
        request: phases.PhaseRequest,
        payloads: Sequence[transfer.AnyPayload] = (),
        *,
        on_started: Callable[[Started], Awaitable[None]] | None = None,
        stay_seconds: float | None = None,
        total_seconds: float | None = None,
        checked: bool = False,
    ) -> phases.PhaseResult | Going:
        """Claim, prepare and start, or attach; then stay for the end.

        `payloads`: one per `Unpack` or `Restore`, in order; sent only if the helper does not know the nonce.
        `stay_seconds`: how long to stay once the phase runs, if there is a place to wait, else a moment; None: to its
        end. `total_seconds`: by default the phase's limit, else the runs', and ten minutes; none without a run's limit.
        Raises PhaseFailed (nothing was started), UnknownPhase (`attach_only`), any ExecError, HelperFailed,
        ProtocolError, and what reading a payload raises.
        """
        archives = sum(isinstance(op, phases.Unpack | phases.Restore) for op in request.prepare)
        if not request.attach_only and archives != len(payloads):
            raise ValueError(f"{archives} operations take an archive, {len(payloads)} payloads")
        limits = execs.Limits(total_seconds or bounds.of_runs(request, SLACK_SECONDS), IDLE_SECONDS)
        copy = await self._exec.copies.take(self.pin.node) if payloads else places.Place()
        try:
            line = await self._lines.take(self.pin, [self._helper, "phase"], limits, checked=checked)
            try:
                final = await self._on(line.stream, request, payloads, _Start(on_started, copy, stay_seconds))
            except BaseException:
                await self._lines.drop(line)
                raise
        finally:
            copy.release()
        # The answer is complete: whatever becomes of the line now is not on anybody's way.
        if isinstance(final, Going):
            self._lines.end(line)
            return final
        if request.keep and final.get("event") == "done":
            self._lines.give(line)
        else:
            self._lines.end(line)
        return self._final(request, final)

    async def pack(
        self,
        roots: Sequence[Root],
        sink: sinks.Sink,
        *,
        max_bytes: int,
        max_entries: int,
        max_file_bytes: int | None = None,
        scrub: Sequence[bytes] = (),
        scrub_except: Sequence[str] = (),
        keep: bool = False,
        total_seconds: float | None = 3600.0,
        checked: bool = False,
    ) -> PackResult:
        """Copy files out. Missing and unreadable things are listed, not errors. The sink is ended in any
        case.

        `scrub`: secrets; the helper writes `*` for each of their bytes, in the contents of regular files that are
        not at or below a path of `scrub_except`. ValueError for values beyond the bounds of
        `scrubbing`. `keep`: the stream is kept for what is asked of this pod next.
        """
        wire = {
            "protocol": protocol.PROTOCOL,
            "roots": [root.to_wire() for root in roots],
            "maxBytes": max_bytes,
            "maxEntries": max_entries,
            "maxFileBytes": max_file_bytes,
            "scrub": scrubbing.encoded(scrub),
            "scrubExcept": list(scrub_except),
            "keep": True,
        }
        bound = max_bytes + PACK_OVERHEAD * (max_entries + 256)
        limits = execs.Limits(total_seconds, IDLE_SECONDS)
        try:
            async with self._exec.copies.at(self.pin.node):
                async with self._packing(wire, limits, checked, keep=keep) as stream:
                    trailer = await self._receive(stream, sink, bound)
                found = packed.result(trailer, roots)
                await sink.finish(trailer)  # it may hold much of the archive until then
        except BaseException:
            await sink.abort()
            raise
        return found

    async def unpack(
        self,
        path: str,
        payload: transfer.AnyPayload,
        *,
        max_bytes: int,
        max_entries: int,
        file_mode: Literal["normalise", "keep"] = "keep",
        total_seconds: float | None = 3600.0,
        checked: bool = False,
    ) -> UnpackResult:
        """Copy files in, below `path`. `DigestMismatch` if the two ends counted differently."""
        wire = {
            "protocol": protocol.PROTOCOL,
            "path": path,
            "fileMode": file_mode,
            "maxBytes": max_bytes,
            "maxEntries": max_entries,
        }
        sent: list[frames.Trailer] = []
        limits = execs.Limits(total_seconds, IDLE_SECONDS)
        async with self._exec.copies.at(self.pin.node), self._call("unpack", wire, limits, checked) as stream:
            async with execs.alongside(_send(stream, [payload], sent)):
                answer = await anext(_events(stream), None)
            if answer is None:
                raise self._failed("unpack", await stream.wait())
            await leave(stream)
        return self._unpacked(answer, sent)

    @contextlib.asynccontextmanager
    async def _packing(
        self, wire: Mapping[str, Any], limits: execs.Limits, checked: bool, *, keep: bool
    ) -> AsyncIterator[execs.ExecStream]:
        """A stream on which the archive comes: the pod's waiting one, else a new one, which waits too if it is kept.

        Its helper stays until it is let go of: with the end of a command a server may drop what it has not sent yet
        (seen with a large archive and a slow reader: success, and the end was missing).
        """
        line = await self._lines.take(self.pin, [self._helper, "phase"], limits, checked=checked)
        try:
            with contextlib.suppress(errors.InputRefused):  # `wait()` tells why
                await line.stream.send(frames.request({"pack": wire}))
            yield line.stream
        except BaseException:
            await self._lines.drop(line)
            raise
        if keep:
            self._lines.give(line)
        else:
            self._lines.end(line)

    @contextlib.asynccontextmanager
    async def _call(
        self, command: str, wire: Mapping[str, Any], limits: execs.Limits, checked: bool
    ) -> AsyncIterator[execs.ExecStream]:
        body = frames.request(wire)
        argv = [self._helper, command]
        async with self._exec.open(self.pin, argv, stdin=True, limits=limits, checked=checked) as stream:
            with contextlib.suppress(errors.InputRefused):  # `wait()` tells why
                await stream.send(body)
            yield stream

    async def _on(
        self,
        stream: execs.ExecStream,
        request: phases.PhaseRequest,
        payloads: Sequence[transfer.AnyPayload],
        start: "_Start",
    ) -> Mapping[str, Any] | Going:
        with contextlib.suppress(errors.InputRefused):  # `wait()` tells why
            await stream.send(frames.request(request.to_wire()))
        # stdin stays open to the end: the helper takes its end for the client's.
        async with contextlib.AsyncExitStack() as sending:
            final = await self._until_final(stream, request, payloads, start, sending)
        if final is None:
            raise self._failed("phase", await stream.wait())
        return final

    async def _until_final(
        self,
        stream: execs.ExecStream,
        request: phases.PhaseRequest,
        payloads: Sequence[transfer.AnyPayload],
        start: "_Start",
        sending: contextlib.AsyncExitStack,
    ) -> Mapping[str, Any] | Going | None:
        decoder, leaves = frames.LineDecoder(), None
        try:
            async with asyncio.timeout(None) as patience:
                async for chunk in stream.stdout():
                    for event in decoder.feed(chunk):
                        match event:
                            case {"event": "alive"}:
                                pass
                            case {"event": "send"}:
                                await sending.enter_async_context(execs.alongside(_send(stream, payloads, [])))
                            case {"event": "prepared"}:
                                start.prepared = tuple(event.get("results") or ())
                            case {"event": "started", "startedAt": str(at)}:
                                patience.reschedule(None)
                                leaves = await start.seen(self._time(at), event, stream, runs=bool(request.runs))
                            case {"event": "running"} if start.at is not None:
                                return Going(start.at)
                            case {"event": "done" | "failed" | "unknown"}:
                                return event
                            case _:
                                raise errors.ProtocolError(f"unknown event {str(event)[:200]}", where=self.pin.where)
                    # Half a line is the end on its way: it is waited for, within the stream's own limits.
                    patience.reschedule(None if decoder.pending else leaves)
        except TimeoutError:
            if not patience.expired() or start.at is None:
                raise
            return Going(start.at)
        return None

    def _time(self, at: str) -> str:
        try:
            return values.parse_time(at)
        except ValueError as error:
            raise errors.ProtocolError(f"a start at {at[:100]!r}, which is no time", where=self.pin.where) from error

    def _final(self, request: phases.PhaseRequest, event: Mapping[str, Any]) -> phases.PhaseResult:
        where = f"{self.pin.where}, phase {request.phase}"
        match event:
            case {"event": "done", "result": dict(result)}:
                try:
                    return phases.parse_result(request.nonce, result)
                except phases.ProtocolError as error:
                    raise errors.ProtocolError(str(error), where=where) from error
            case {"event": "failed", "reason": str(reason)}:
                text = str(event.get("message") or reason)
                raise errors.PhaseFailed(text, reason=reason, results=event.get("results") or (), where=where)
            case {"event": "unknown"}:
                raise errors.UnknownPhase(f"the sandbox does not know nonce {request.nonce}", where=where)
        raise errors.ProtocolError(f"a final event without its fields: {str(event)[:200]}", where=where)

    async def _receive(self, stream: execs.ExecStream, sink: sinks.Sink, bound: int) -> frames.Trailer:
        """The archive, into the sink. Its trailer is the end, not that of the stream."""
        decoder, size = frames.ArchiveDecoder(), 0
        async for chunk in stream.stdout():
            size += len(chunk)
            if size > bound:
                raise errors.LimitExceeded(f"the sandbox sent more than {bound} bytes", where=self.pin.where)
            for part in decoder.feed(chunk):
                await sink.write(part)
            if decoder.trailer is not None:
                return decoder.trailer
        exited = await stream.wait()
        if exited.code != 0:
            raise self._failed("pack", exited)
        return decoder.finish()

    def _unpacked(self, answer: Mapping[str, Any], sent: Sequence[frames.Trailer]) -> UnpackResult:
        match answer:
            case {"ok": True, "entries": int(entries), "bytes": int(size), "sha256": str(sha256)} if sent:
                sinks.check(sinks.Received(size, sha256, entries), sent[0], self.pin.where)
                return UnpackResult(entries, size, sha256, packed.skipped(answer))
            case {"ok": False, "reason": str(reason)}:
                kind = errors.DigestMismatch if reason == "Digest" else errors.TransferError
                raise kind(f"{answer.get('message') or reason}", where=self.pin.where)
        raise errors.ProtocolError(f"unknown answer to unpack: {str(answer)[:200]}", where=self.pin.where)

    def _failed(self, command: str, exited: execs.Exited) -> errors.SandboxError:
        if exited.code == 0:
            return errors.ProtocolError(f"helper {command} ended without an answer", where=self.pin.where)
        text = exited.stderr[-2000:].decode(errors="replace").strip()
        return errors.HelperFailed(
            f"helper {command} ended with code {exited.code}: {text or 'no message'}",
            code=exited.code,
            where=self.pin.where,
        )


@dataclass
class _Start:
    """The moment a phase runs: what is told then, given back, and decided about staying."""

    tell: Callable[[Started], Awaitable[None]] | None
    copy: places.Place
    stay_seconds: float | None
    prepared: tuple[Mapping[str, Any], ...] = ()
    at: str | None = None

    async def seen(self, at: str, event: Mapping[str, Any], stream: execs.ExecStream, *, runs: bool) -> float | None:
        """The loop's time at which to leave; None: stay. `runs`: there is something to wait for."""
        self.at = at
        self.copy.release()
        attached = event.get("attached") is True
        waits = runs or attached  # else it is done already
        rests = waits and stream.rest()
        if self.tell is not None:
            await self.tell(Started(at, attached, self.prepared))
        if self.stay_seconds is None or not waits:
            return None
        seconds = self.stay_seconds if rests else min(MOMENT_SECONDS, self.stay_seconds)
        return asyncio.get_running_loop().time() + seconds


async def _events(stream: execs.ExecStream) -> AsyncIterator[dict[str, Any]]:
    decoder = frames.LineDecoder()
    async for chunk in stream.stdout():
        for event in decoder.feed(chunk):
            yield event


async def _send(stream: execs.ExecStream, payloads: Sequence[transfer.AnyPayload], sent: list[frames.Trailer]) -> None:
    """Runs beside the reading: a helper that fails early says so while we still send."""
    try:
        for payload in payloads:
            async with transfer.opened(payload) as archive:
                async for block in archive.blocks():
                    await stream.send_block(block)
                trailer = archive.trailer
            sent.append(trailer)
            await stream.send(trailer.encode())
    except errors.InputRefused:
        pass  # the reading side tells how it ended
    except Exception as error:  # reported by the reading side, which waits for an answer that cannot come
        stream.abandon(error)
