"""What the sandbox helper accepts: the rules of `helper/validate.go`, for its model.

Guarantees: a key, a type or a number that the real helper refuses is refused here with the same reason; nothing is
looked at that it does not look at.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

from tests.world import files

MAX_REQUEST = 1 << 20
MAX_OPERATIONS, MAX_RUNS, MAX_READS = 256, 64, 64
MAX_READ_BYTES = 9 << 20
MAX_INLINE = 64 << 10
MAX_OUTPUT = 1 << 30
MAX_IDLE_SECONDS = 3600
IDLE_SECONDS = 30
MAX_UNLESS, MAX_UNLESS_BYTES = 8, 256
MAX_EXCLUDES, MAX_PATTERN = 256, 1024
MIN_SCRUB, MAX_SCRUB, MAX_SCRUBS, MAX_SCRUB_BYTES, MAX_ROOTS = 8, 64 << 10, 256, 512 << 10, 1024


class RefusedError(ValueError):
    """It is no request."""


_USER = {"name": str, "group": str, "uid": int, "gid": int, "groups": [int]}
_OPERATION = {
    "op": str, "required": bool, "names": [str], "path": str, "to": str, "keep": [str], "mode": str, "user": _USER,
    "existing": str, "links": str, "digest": str, "maxBytes": int, "maxEntries": int, "fileMode": str,
    "base64": bytes, "type": str, "unless": str, **_USER,
}  # fmt: skip
_OUTPUT = {"path": str, "headBytes": int, "tailBytes": int, "inlineBytes": int}
_CHECK = {
    "intervalSeconds": float, "startIntervalSeconds": float, "startPeriodSeconds": float, "retries": int,
}  # fmt: skip
_RUN = {
    "name": str, "argv": [str], "env": {str: str}, "cwd": str, "user": _USER, "limitSeconds": float,
    "output": _OUTPUT, "continueOnFailure": bool, "check": _CHECK, "background": {"settleSeconds": float},
    "makeCwd": bool, "ownEnv": bool,
}  # fmt: skip
_PHASE = {
    "protocol": int, "nonce": str, "phase": str, "attachOnly": bool, "idleSeconds": float, "keep": bool,
    "prepare": [_OPERATION], "limitSeconds": float, "runs": [_RUN], "read": [{"path": str, "maxBytes": int}],
}  # fmt: skip
_PACK = {
    "protocol": int, "roots": [{"path": str, "as": str, "only": bool, "exclude": [str]}], "maxBytes": int,
    "maxEntries": int, "maxFileBytes": int, "scrub": [bytes], "scrubExcept": [str], "keep": bool,
}  # fmt: skip
_UNPACK = {"protocol": int, "path": str, "fileMode": str, "maxBytes": int, "maxEntries": int}


def phase(body: bytes) -> dict[str, Any]:
    """A request of `helper phase`, its defaults filled in."""
    request = _decoded(body, _PHASE)
    _protocol(request)
    _check(
        re.fullmatch("[0-9a-f]{32}", request.get("nonce") or "") is not None,
        "nonce: 32 lower-case hexadecimal digits wanted",
    )
    request["idleSeconds"] = request.get("idleSeconds") or IDLE_SECONDS
    idle = request["idleSeconds"]
    _check(0 <= idle <= MAX_IDLE_SECONDS, f"idleSeconds: {idle} is not between 0 and {MAX_IDLE_SECONDS}")
    operations = request.setdefault("prepare", [])
    _check(len(operations) <= MAX_OPERATIONS, f"prepare: more than {MAX_OPERATIONS} operations")
    for index, operation in enumerate(operations):
        with _about(f"prepare[{index}] ({operation.get('op', '')[:20]})"):
            _operation(operation)
    _unless(operations)
    _work(request)
    return request


def pack(body: bytes) -> dict[str, Any]:
    """A request of `helper pack`; `scrub` as bytes."""
    request = _decoded(body, _PACK)
    _protocol(request)
    roots = request.get("roots") or []
    fits = 0 < len(roots) <= MAX_ROOTS and request.get("maxBytes", 0) >= 0 and request.get("maxEntries", 0) >= 0
    _check(fits, "roots, maxBytes or maxEntries: out of range")
    for root in roots:
        _check(root.get("path", "") != "", "roots: a root without a path")
        _relative(root["path"].lstrip("/"))
        _relative(root.get("as", ""))
        _exclude(root.get("exclude") or [])
    values = request.setdefault("scrub", [])
    many = len(values) > MAX_SCRUBS or len(request.setdefault("scrubExcept", [])) > MAX_ROOTS
    _check(not many, f"scrub or scrubExcept: more than {MAX_SCRUBS} values or {MAX_ROOTS} paths")
    for index, value in enumerate(values):
        text = f"scrub[{index}]: {len(value)} bytes are not between {MIN_SCRUB} and {MAX_SCRUB}"
        _check(MIN_SCRUB <= len(value) <= MAX_SCRUB, text)
    total = sum(map(len, values))
    _check(total <= MAX_SCRUB_BYTES, f"scrub: {total} bytes, more than {MAX_SCRUB_BYTES}")
    for path in request["scrubExcept"]:
        with _about("scrubExcept"):
            _path(path)
    return request


def unpack(body: bytes) -> dict[str, Any]:
    """A request of `helper unpack`."""
    request = _decoded(body, _UNPACK)
    _protocol(request)
    _unpacking(request)
    return request


def packing_instead(body: bytes) -> bytes | None:
    """The request of a copy in place of a phase, `{"pack": …}`; None if it is none."""
    try:
        value = json.loads(body)
    except ValueError:
        return None
    asked = value.get("pack") if isinstance(value, dict) else None
    return json.dumps(asked).encode() if asked is not None else None


def mode(text: str) -> int:
    """An octal mode without setuid and setgid bits."""
    if not re.fullmatch("[0-7]+", text) or int(text, 8) & ~0o1777:
        raise RefusedError(f'mode: "{text[:20]}" is not an octal mode up to 1777')
    return int(text, 8)


def _operation(operation: dict[str, Any]) -> None:
    if operation.get("user") is not None:
        _user(operation["user"])
    depends = operation.get("unless") is not None
    _check(not depends or operation.get("op") in ("reset", "unpack"), "unless: only of a reset or an unpack")
    match operation.get("op"):
        case "tools" | "userNamespace":
            return
        case "user":
            _user(operation)
            return
        case "reset" | "remove":
            pass
        case "move":
            with _about("to"):
                _path(operation.get("to", ""))
        case "directory" | "write" as op:
            mode(operation.get("mode", ""))
            if op == "directory":
                existing, links = operation.get("existing", ""), operation.get("links", "")
                _check(existing in ("", "keep", "own"), f'existing: "{existing[:20]}" is neither keep nor own')
                _check(links in ("", "replace", "follow"), f'links: "{links[:20]}" is neither replace nor follow')
        case "unpack":
            links, owned = operation.get("links", ""), operation.get("user") is not None
            _check(links in ("", "replace", "follow"), f'links: "{links[:20]}" is neither replace nor follow')
            _check(not owned or operation.get("fileMode") == "normalise", "user: only with fileMode normalise")
            here = links == "follow" and not operation.get("path")  # the working directory
            _unpacking({**operation, "path": "/"} if here else operation)
            return
        case "restore":
            kind = operation.get("type", "")
            _check(kind in ("file", "directory"), f'type: "{kind[:20]}" is neither file nor directory')
            _unpacking({**operation, "fileMode": "keep"})
            return
        case _:
            raise RefusedError("unknown operation")
    _path(operation.get("path", ""))


def _unpacking(options: Mapping[str, Any]) -> None:
    file_mode = options.get("fileMode", "")
    _check(file_mode in ("normalise", "keep"), f'fileMode: "{file_mode[:20]}" is neither normalise nor keep')
    fits = 0 <= options.get("maxBytes", 0) <= 1 << 50 and 0 <= options.get("maxEntries", 0) <= 100_000_000
    _check(fits, "maxBytes or maxEntries: out of range")
    _path(options.get("path", ""))


def _unless(operations: list[dict[str, Any]]) -> None:
    paths = {each["unless"] for each in operations if each.get("unless") is not None}
    for path in paths:
        text = f'unless: "{path[:100]}" is not an absolute path of at most {MAX_UNLESS_BYTES} bytes'
        _check(len(path.encode()) <= MAX_UNLESS_BYTES, text)
        try:
            files.split(path)
        except ValueError as error:
            raise RefusedError(text) from error
    _check(len(paths) <= MAX_UNLESS, f"unless: more than {MAX_UNLESS} paths")


def _exclude(patterns: list[str]) -> None:
    _check(len(patterns) <= MAX_EXCLUDES, f"exclude: more than {MAX_EXCLUDES} patterns")
    fits = all(len(each.encode()) <= MAX_PATTERN and "\0" not in each for each in patterns)
    _check(fits, "exclude: a pattern is too long, or has a NUL byte")


def _user(user: Mapping[str, Any]) -> None:
    name, uid, gid, groups = (user.get(key) for key in ("name", "uid", "gid", "groups"))
    _check((name is None) != (uid is None), "a user has either a name or a uid")
    _check(name is None or groups is None, "a user with a name has no groups of its own")
    own = user.get("group") is not None
    _check(not own or (gid is None and groups is None), "a user has either a group or a gid with groups")
    for number in (uid, gid, *(groups or ())):
        _check(number is None or 0 <= number < (1 << 32) - 1, f"{number} is not a user or group number")


def _work(request: dict[str, Any]) -> None:
    runs, reads = request.setdefault("runs", []), request.setdefault("read", [])
    few = len(runs) <= MAX_RUNS and len(reads) <= MAX_READS
    _check(few, f"more than {MAX_RUNS} runs or {MAX_READS} files to read")
    _limit(request.get("limitSeconds"))
    for index, run in enumerate(runs):
        with _about(f"runs[{index}] ({run.get('name', '')[:40]})"):
            _run(run)
    total = 0
    for read in reads:
        size = read.get("maxBytes", 0)
        with _about("read"):
            _path(read.get("path", ""))
            _check(0 <= size <= MAX_READ_BYTES, f"maxBytes {size} is not between 0 and {MAX_READ_BYTES}")
        total += size
    _check(total <= MAX_READ_BYTES, f"read: {total} bytes asked for, more than {MAX_READ_BYTES}")


def _run(run: Mapping[str, Any]) -> None:
    argv = run.get("argv") or []
    _check(bool(argv) and argv[0] != "", "argv: a program is needed")
    _check(not any("\0" in word for word in argv), "argv: a NUL byte")
    for key, value in (run.get("env") or {}).items():
        fits = key != "" and not re.search("[=\0]", key) and "\0" not in value
        _check(fits, f'env: "{key[:40]}" cannot be a variable')
    cwd = run.get("cwd")
    _check(cwd is None or (cwd.startswith("/") and "\0" not in cwd), f"cwd: {cwd!r:.100} is not an absolute path")
    _limit(run.get("limitSeconds"))
    _course(run.get("check"), run.get("background"))
    if run.get("user") is not None:
        _user(run["user"])
    output = run.get("output")
    if output is None:
        return
    kept = (output.get("headBytes", 0), output.get("tailBytes", 0))
    _check(
        all(0 <= size <= MAX_OUTPUT for size in kept), f"output: headBytes and tailBytes are between 0 and {MAX_OUTPUT}"
    )
    _check(0 <= output.get("inlineBytes", 0) <= MAX_INLINE, f"output: inlineBytes is between 0 and {MAX_INLINE}")
    if output.get("path") is not None:
        _path(output["path"])


def _limit(limit: float | None) -> None:
    _check(limit is None or limit > 0, f"limitSeconds: {limit} is not greater than 0")


def _course(check: Mapping[str, Any] | None, background: Mapping[str, Any] | None) -> None:
    _check(check is None or background is None, "a check cannot go on in the background")
    for number in (check or {}).values():
        _check(number >= 0, f"check: {number} is less than 0")
    settle = (background or {}).get("settleSeconds", 0)
    _check(settle >= 0, f"settleSeconds: {settle} is less than 0")


def _protocol(request: Mapping[str, Any]) -> None:
    number = request.get("protocol", 0)
    _check(number == 1, f"protocol {number}; this helper speaks 1")


def _path(path: str) -> None:
    try:
        files.split(path)
    except ValueError as error:
        raise RefusedError(str(error)) from error


def _relative(path: str) -> None:
    try:
        files.split_relative(path)
    except ValueError as error:
        raise RefusedError(str(error)) from error


def _check(holds: bool, text: str) -> None:
    if not holds:
        raise RefusedError(text)


class _about:  # noqa: N801  (reads like a function)
    """What a refusal inside is about."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RefusedError):
            raise RefusedError(f"{self._what}: {error}") from error


def _decoded(body: bytes, shape: Mapping[str, Any]) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError as error:
        raise RefusedError(str(error)) from error
    found: dict[str, Any] = _shaped(value, shape, "")
    return found


def _shaped(value: Any, shape: Any, where: str) -> Any:
    """The value with null keys left out and base64 decoded, as the zero values of the real one are."""
    match shape:
        case dict() if str in shape:
            _check(isinstance(value, dict), f"{where}: an object wanted")
            return {key: _shaped(each, shape[str], where) for key, each in value.items() if each is not None}
        case dict():
            _check(isinstance(value, dict), f"{where or 'request'}: an object wanted")
            for key in value:
                _check(key in shape, f'unknown field "{key}"')
            return {key: _shaped(each, shape[key], key) for key, each in value.items() if each is not None}
        case list():
            _check(isinstance(value, list), f"{where}: a list wanted")
            return [_shaped(each, shape[0], where) for each in value]
    if shape is bytes:
        _check(isinstance(value, str), f"{where}: a string wanted")
        try:
            return base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise RefusedError(f"{where}: {error}") from error
    kinds = (int, float) if shape is float else (shape,)
    _check(isinstance(value, kinds) and (shape is bool) == isinstance(value, bool), f"{where}: {shape.__name__} wanted")
    return value
