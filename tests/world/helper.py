"""`helper phase` as a model: the request, the preparation, the relay of PID 1's events.

Guarantees, as `helper/phase.go` and `prepare.go` give them: nothing starts before the client was told of the
preparation; a failed preparation lets go of the nonce before it says so; killed at any moment, either nothing was
started or PID 1 goes on without it.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.world import copies, files, packing, requests, restoring, unpacking, users
from tests.world.journal import Claim, Event, Phase, failed
from tests.world.pipes import Pipe
from tests.world.running import find_program

if TYPE_CHECKING:
    from tests.world.sandbox import Container

ALIVE_SECONDS = 20.0


async def wait(box: "Container", nonce: str) -> tuple[int, bytes]:
    """`helper wait` in another container of the pod: exit code and what it prints."""
    try:
        followed = box.init.started(nonce)
        if followed is None:
            return 1, f"helper wait: phase {nonce}: unknown\n".encode()
        await followed.done.wait()
    except asyncio.CancelledError:
        return 1, b""
    return 0, f"phase {nonce} is done\n".encode()


class FailedError(Exception):
    """The preparation ends the phase."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def phase(box: "Container", stdin: Pipe, stdout: Pipe) -> int:
    """`helper phase`: one phase, or several on one stream (`keep`)."""
    while True:
        try:
            body = await copies.frame(stdin, requests.MAX_REQUEST)
        except EOFError as error:
            if not error.args[0]:
                return 0
            await _print(stdout, failed("Protocol", "the request: unexpected EOF"))
            return 0
        except ValueError as error:
            await _print(stdout, failed("Protocol", f"the request: {error}"))
            return 0
        asked = requests.packing_instead(body)
        if asked is not None:
            code, keep = await packing.pack_asked(box, asked, stdout, None)
            if not keep or stdin.unread:
                return code
            continue
        try:
            request = requests.phase(body)
        except requests.RefusedError as error:
            await _print(stdout, failed("Protocol", f"the request: {error}"))
            return 0
        left = await _one(box, request, stdin, stdout)
        if left or not request.get("keep", False) or stdin.unread:
            return 0


async def _one(box: "Container", request: Mapping[str, Any], stdin: Pipe, stdout: Pipe) -> bool:
    """From the claim to the final event. Whether the client left a phase that goes on."""
    this = asyncio.current_task()
    assert this is not None
    attach_only = request.get("attachOnly", False)
    found = box.init.claim(request["nonce"], request["idleSeconds"], this.cancel, attach_only=attach_only)
    attached = isinstance(found, Phase)
    if isinstance(found, Claim):
        claim = found
        try:
            found = await _prepared(box, claim, request, stdin, stdout)
        finally:
            box.init.release(claim)
    if isinstance(found, Phase):
        return await _follow(found, stdin, stdout, attached=attached)
    await _print(stdout, found)
    return False


async def _prepared(
    box: "Container", claim: Claim, request: Mapping[str, Any], stdin: Pipe, stdout: Pipe
) -> Phase | Event:
    """The started phase, or the final event that says why nothing was started."""
    preparation = Preparation(box, claim, stdin, stdout)
    task = asyncio.create_task(preparation.all(request["prepare"]))
    try:
        await asyncio.wait([task, claim.lost], return_when=asyncio.FIRST_COMPLETED)
        if claim.lost.done():
            return claim.lost.result()
        await task
    except FailedError as error:
        return failed(error.reason, str(error), preparation.results)
    finally:
        task.cancel()
        await asyncio.wait([task])
    await _print(stdout, {"event": "prepared", "results": preparation.results})
    return box.init.start(claim, request.get("phase", ""), preparation.results, request)


async def _follow(followed: Phase, stdin: Pipe, stdout: Pipe, *, attached: bool) -> bool:
    """Until the end, or until the client ends its input: then the phase goes on without it (True)."""
    await _print(stdout, {"event": "started", "startedAt": followed.started_at, "attached": attached})
    ends = [asyncio.create_task(followed.done.wait()), asyncio.create_task(stdin.hung_up())]
    try:
        while not followed.done.is_set():
            done, _ = await asyncio.wait(ends, timeout=ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if ends[1] in done and not followed.done.is_set():
                await _print(stdout, {"event": "running"})
                return True
            if not done:
                await _print(stdout, {"event": "alive"})
    finally:
        for task in ends:
            task.cancel()
    await _print(stdout, {"event": "done", "result": followed.result})
    return False


async def _print(stdout: Pipe, event: Event) -> None:
    await stdout.write(json.dumps(event).encode() + b"\n")


class Preparation:
    """The operations of one phase, in order."""

    def __init__(self, box: "Container", claim: Claim, stdin: Pipe, stdout: Pipe) -> None:
        self._box = box
        self._claim = claim
        self._stdin = stdin
        self._stdout = stdout
        self._sent = False
        self._shipped: set[str] = set()
        self._restorer = restoring.Restorer(box.files)
        self.results: list[Event] = []

    async def all(self, operations: list[dict[str, Any]]) -> None:
        """`FailedError` at the first that fails; `results` has one result for each before it."""
        paths = {each["unless"] for each in operations if each.get("unless") is not None}
        self._shipped = {path for path in paths if self._box.init.ships(path)}
        for operation in operations:
            self._claim.beat()
            try:
                result = await self._one(operation)
            except users.UnknownUserError as error:
                raise FailedError("UnknownUser", str(error)) from error
            except copies.CopyError as error:
                raise FailedError(error.reason, str(error)) from error
            except OSError as error:
                raise FailedError("Prepare", f"{operation['op']}: {error.strerror or error}") from error
            self.results.append({"op": operation["op"], **result})

    async def _one(self, operation: dict[str, Any]) -> Event:
        match operation["op"]:
            case "tools":
                return self._tools(operation)
            case "user":
                return self._user(operation)
            case "userNamespace":  # no model of a kernel: its sandboxes are root of their node
                raise FailedError("NoUserNamespace", "the sandbox's users are all users of its node")
            case "reset":
                if self._unless(operation):
                    return {"dropped": [], "unless": True}
                return {"dropped": self._reset(operation["path"], operation.get("keep") or [])}
            case "remove":
                folder, name = self._box.files.parent(operation["path"], replace=True)
                folder.children.pop(name, None)
                return {}
            case "move":
                return self._move(operation)
            case "directory":
                return self._directory(operation)
            case "unpack":
                await self._ask()
                if self._unless(operation):
                    taken = await unpacking.take(files.FileSystem(), operation, self._stdin, self._claim.beat)
                    return {"seconds": 0.0, "unless": True, **taken, "skipped": [], "skippedCount": 0}
                options = self._unpacking(operation)
                taken = await unpacking.take(self._box.files, options, self._stdin, self._claim.beat)
                return {"seconds": 0.0, **taken}
            case "restore":
                await self._ask()
                taken = await self._restorer.restore(operation, self._stdin, self._claim.beat)
                return {"seconds": 0.0, **taken}
        self._write(operation)
        return {}

    async def _ask(self) -> None:
        """The archives, once."""
        if not self._sent:
            self._sent = True
            await _print(self._stdout, {"event": "send"})

    def _unless(self, operation: Mapping[str, Any]) -> bool:
        return operation.get("unless") in self._shipped

    def _tools(self, operation: Mapping[str, Any]) -> Event:
        missing = []
        for name in operation.get("names") or []:
            try:
                find_program(self._box.files, name, self._box.env.get("PATH", ""))
            except FileNotFoundError:
                missing.append(name)
        if missing and operation.get("required"):
            self.results.append({"op": "tools", "missing": missing})
            raise FailedError("MissingTools", f"not found in PATH: {', '.join(missing)}")
        return {"missing": missing}

    def _user(self, operation: Mapping[str, Any]) -> Event:
        try:
            return users.lookup(self._box.files, operation).wire()
        except users.UnknownUserError as error:
            if operation.get("required"):
                self.results.append({"op": "user", "error": str(error)})
                raise
            return {"error": str(error)}

    def _owner(self, operation: Mapping[str, Any]) -> tuple[int, int]:
        if operation.get("user") is None:
            return 0, 0
        found = users.lookup(self._box.files, operation["user"])
        return found.uid, found.gid

    def _reset(self, path: str, keep: list[str]) -> list[str]:
        """The names that were to stay, of what was no regular file."""
        folder, name = self._box.files.parent(path, replace=True)
        old = folder.children.get(name)
        kept: dict[str, files.Node] = {}
        dropped: list[str] = []
        if isinstance(old, files.Folder):
            kept = {each: old.children[each] for each in keep if isinstance(old.children.get(each), files.File)}
            dropped = sorted(set(keep) & set(old.children) - set(kept))
            mounts = [each for each, node in old.children.items() if isinstance(node, files.Folder) and node.mounted]
            if mounts:
                raise OSError(16, f'{path}: "{mounts[0]}": something is mounted there')
            if old.mounted or kept:
                old.children = kept
                old.mode, old.uid, old.gid = 0o755, 0, 0
                return dropped
        folder.children[name] = files.Folder(children=kept)
        return dropped

    def _move(self, operation: Mapping[str, Any]) -> Event:
        found = self._box.files
        try:
            source = found.walk(files.split(operation["path"]), replace=False)
        except (FileNotFoundError, NotADirectoryError):
            return {"moved": 0, "error": ""}
        into = found.walk(files.split(operation["to"]), replace=True)
        into.mode, into.uid, into.gid = 0o700, 0, 0
        keep = operation.get("keep") or []
        names = [n for n, node in source.children.items() if not (n in keep and isinstance(node, files.File))]
        for name in names:
            found.place(into, name, source.children.pop(name))
        return {"moved": len(names), "error": ""}

    def _unpacking(self, operation: Mapping[str, Any]) -> dict[str, Any]:
        """The operation as `unpacking.take` wants it: whose the files are, and which folder it is."""
        options = {**operation, "path": operation["path"] or self._box.image.cwd, "owner": self._owner(operation)}
        if operation.get("links") == "follow":
            options["root"] = self._box.files.follow(options["path"], trusted=True)
        return options

    def _directory(self, operation: Mapping[str, Any]) -> Event:
        found, path = self._box.files, operation["path"]
        mode, (uid, gid) = requests.mode(operation["mode"]), self._owner(operation)
        before = {id(node) for _, node in found.tree()} | {id(found.root)}
        follow = operation.get("links") == "follow"
        made = found.follow(path) if follow else found.walk(files.split(path), replace=True)
        created = id(made) not in before
        if created or operation.get("existing") == "own":
            made.mode, made.uid, made.gid = mode, uid, gid
        return {"created": created}

    def _write(self, operation: Mapping[str, Any]) -> None:
        uid, gid = self._owner(operation)
        folder, name = self._box.files.parent(operation["path"], replace=True)
        content = operation.get("base64", b"")
        self._box.files.place(folder, name, files.File(requests.mode(operation["mode"]), uid, gid, 0, content))
