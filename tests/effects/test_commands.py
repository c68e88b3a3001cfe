"""effects/commands.py without a cluster: what is sent, what is taken for an end, and what is not."""

import json
import struct
from typing import Any

import pytest

from taskfold.effects import commands, errors
from taskfold.protocol.phase import User


def frame(channel: int, content: bytes) -> bytes:
    return struct.pack(">I", len(content) + 1) + bytes([channel]) + content


def test_a_command_on_the_wire():
    command = commands.Command(["a", "b"], User(name="app"), "/app", {"KEY": "secret"})
    assert command.to_wire(10) == {
        "protocol": 1,
        "argv": ["a", "b"],
        "env": {"KEY": "secret"},
        "cwd": "/app",
        "user": {"name": "app"},
        "maxBytes": 10,
    }


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_in_any_pieces(size):
    data = frame(1, b"out" * 10) + frame(2, b"") + frame(3, b"{}")
    decoder, found = commands._Decoder(), []
    for start in range(0, len(data), size):
        found += decoder.feed(memoryview(data[start : start + size]))
    assert found == [(1, b"out" * 10), (2, b""), (3, b"{}")]


@pytest.mark.parametrize("size", [0, (1 << 20) + 2, 0xFFFFFFFF])
def test_a_frame_of_no_size_of_ours(size):
    with pytest.raises(errors.ProtocolError):
        list(commands._Decoder().feed(memoryview(struct.pack(">I", size))))


END: dict[str, Any] = {"returnCode": 3, "signal": None, "startError": None} | dict.fromkeys(
    ("stdoutBytes", "stderrBytes", "uid", "gid"), 0
)
OUTPUTS = {commands.STDOUT: bytearray(b"out"), commands.STDERR: bytearray()}


@pytest.mark.parametrize(
    ("changes", "code", "truncated"),
    [({"stdoutBytes": 3}, 3, False), ({"returnCode": None, "signal": 9, "stdoutBytes": 4}, -9, True)],
    ids=["a code", "a signal"],
)
def test_an_end(changes, code, truncated):
    found = commands._ended(END | changes, OUTPUTS, "pod")
    assert (found.returncode, found.stdout, found.truncated) == (code, b"out", truncated)


def test_what_did_not_start():
    with pytest.raises(errors.StartFailed, match="no such file"):
        commands._ended(END | {"returnCode": None, "startError": "x: no such file"}, OUTPUTS, "pod")


NO_ENDS: dict[str, Any] = {
    "nothing": {},
    "neither code nor signal": END | {"returnCode": None},
    "a code that is none": END | {"returnCode": "3"},
    "no counts": END | {"stdoutBytes": None},
}


@pytest.mark.parametrize("end", NO_ENDS.values(), ids=NO_ENDS)
def test_what_is_no_end(end):
    with pytest.raises(errors.ProtocolError):
        commands._ended(end, OUTPUTS, "pod")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", json.dumps("x").encode()])
def test_an_end_that_is_no_object(content):
    with pytest.raises(errors.ProtocolError):
        commands._object(content, "pod")
