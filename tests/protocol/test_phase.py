"""protocol/phase.py: requests are what the helper's strict decoder takes; results are read with care.

The helper refuses keys that it does not know (`decodeStrict`), so its structs in helper/*.go are read here: what the
operator says and what the helper knows cannot drift apart unnoticed. `tests/effects` runs the real binary.
"""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfold import protocol
from taskfold.protocol import phase as phases
from taskfold.protocol.phase import FileState, User

HELPER = Path(__file__).parents[2] / "helper"
NONCE = "0123456789abcdef" * 2


def go_keys(struct: str) -> set[str]:
    """The JSON keys of a struct of the helper, those of embedded structs included."""
    source = "\n".join(path.read_text() for path in (HELPER / "protocol.go", HELPER / "users.go"))
    found = re.search(rf"type {struct} struct {{(.*?)\n}}", source, re.DOTALL)
    assert found is not None, f"helper/protocol.go has no struct {struct}"
    keys = set(re.findall(r'`json:"(\w+)', found[1]))
    for embedded in re.findall(r"^\t(\w+)\s*(?://.*)?$", found[1], re.MULTILINE):
        keys |= go_keys(embedded)
    return keys


OPERATIONS = {
    "tools": phases.Tools(("bash", "tar")),
    "user": phases.CheckUser(User("app")),
    "user with a group": phases.CheckUser(User("app", group="staff")),
    "uid with a group's name": phases.CheckUser(User(uid=1000, group="staff")),
    "reset": phases.Reset("/tests", ("keep.txt",)),
    "remove": phases.Remove("/logs/verifier/reward.txt"),
    "directory": phases.Directory("/app", "0755", User(name="app"), existing="keep"),
    "directory, nobody's": phases.Directory("/logs/agent", "0777"),
    "directory, the image's": phases.Directory("/var/run/app", existing="keep", links="follow"),
    "unpack": phases.Unpack("/tests", "sha256:" + "1" * 64),
    "reset, unless": phases.Reset("/tests", unless="/tests/test.sh"),
    "unpack, unless": phases.Unpack("/tests", unless="/tests/test.sh"),
    "restore": phases.Restore("/app/out", "directory", "1" * 64, 1 << 30, 1000),
    "write": phases.Write("/x", b"\x00\xff"),
}
RUN = phases.Run(
    "test",
    ("bash", "/tests/test.sh"),
    phases.Output("/logs/verifier/test-stdout.txt"),
    {"A": "1"},
    "/app",
    User(uid=1000, gid=1000, groups=(4, 24)),
    1.5,
)
CHECK = phases.Run(
    "health", ("true",), phases.Output(None), limit_seconds=30, check=phases.Check(5.0, 1.0, 60.0, 3), make_cwd=True
)
BESIDE = phases.Run("entrypoint", ("/entry",), phases.Output(None), settle_seconds=1.0, continue_on_failure=False)
REQUEST = phases.PhaseRequest(
    NONCE,
    "verify",
    tuple(OPERATIONS.values()),
    (RUN, CHECK, BESIDE),
    (phases.Read("/logs/verifier/reward.txt", 65_536),),
    limit_seconds=99.5,
)


# -- requests ------------------------------------------------------------------------------------------------------


def test_nothing_depends_on_a_file_unless_it_is_asked_for():
    for plain in (phases.Reset("/tests"), phases.Unpack("/tests")):
        assert "unless" not in plain.to_wire()
        assert dataclasses.replace(plain, unless="/x").to_wire() == {**plain.to_wire(), "unless": "/x"}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_an_operation_has_only_keys_that_the_helper_knows(operation):
    assert set(operation.to_wire()) <= go_keys("operation")


@pytest.mark.parametrize(
    ("wire", "struct"),
    [
        (REQUEST.to_wire(), "request"),
        (RUN.to_wire(), "runSpec"),
        (RUN.output.to_wire(), "outputSpec"),
        (CHECK.to_wire()["check"], "checkSpec"),
        (BESIDE.to_wire()["background"], "backgroundSpec"),
        (REQUEST.read[0].to_wire(), "readSpec"),
        (User(uid=1, gid=2, groups=(3,)).to_wire(), "userSpec"),
        (User(name="app").to_wire(), "userSpec"),
    ],
    ids=["request", "run", "output", "check", "background", "read", "user by number", "user by name"],
)
def test_a_request_has_only_keys_that_the_helper_knows(wire, struct):
    assert set(wire) <= go_keys(struct)


@pytest.mark.parametrize(
    "user",
    [User(name="app", group="staff"), User(uid=5, group="staff"), User(name="app", gid=50)],
    ids=["name and group", "uid and group", "name and gid"],
)
def test_every_spelling_of_an_images_user_is_known_to_the_helper(user):
    wire = user.to_wire()
    assert set(wire) <= go_keys("userSpec")
    assert ("name" in wire) is not ("uid" in wire)


LEAST = {
    "env": {},
    "cwd": None,
    "user": None,
    "limitSeconds": None,
    "output": {"path": None, "headBytes": 10_485_760, "tailBytes": 10_485_760, "inlineBytes": 4096},
    "continueOnFailure": True,
    "check": None,
    "background": None,
    "makeCwd": False,
    "ownEnv": False,
}


def test_the_whole_request_word_for_word():
    assert REQUEST.to_wire() == {
        "protocol": 1,
        "nonce": NONCE,
        "phase": "verify",
        "attachOnly": False,
        "idleSeconds": 30,
        "keep": False,
        "limitSeconds": 99.5,
        "prepare": [
            {"op": "tools", "names": ["bash", "tar"], "required": False},
            {"op": "user", "name": "app", "required": True},
            {"op": "user", "name": "app", "group": "staff", "required": True},
            {"op": "user", "uid": 1000, "group": "staff", "required": True},
            {"op": "reset", "path": "/tests", "keep": ["keep.txt"]},
            {"op": "remove", "path": "/logs/verifier/reward.txt"},
            {
                "op": "directory",
                "path": "/app",
                "mode": "0755",
                "user": {"name": "app"},
                "existing": "keep",
                "links": "replace",
            },
            {
                "op": "directory",
                "path": "/logs/agent",
                "mode": "0777",
                "user": None,
                "existing": "own",
                "links": "replace",
            },
            {
                "op": "directory",
                "path": "/var/run/app",
                "mode": "0755",
                "user": None,
                "existing": "keep",
                "links": "follow",
            },
            {
                "op": "unpack",
                "path": "/tests",
                "digest": "sha256:" + "1" * 64,
                "maxBytes": 4 * 1024**3,
                "maxEntries": 200_000,
                "fileMode": "normalise",
            },
            {"op": "reset", "path": "/tests", "keep": [], "unless": "/tests/test.sh"},
            {
                "unless": "/tests/test.sh",
                "op": "unpack",
                "path": "/tests",
                "digest": None,
                "maxBytes": 4 * 1024**3,
                "maxEntries": 200_000,
                "fileMode": "normalise",
            },
            {
                "op": "restore",
                "path": "/app/out",
                "type": "directory",
                "digest": "1" * 64,
                "maxBytes": 1 << 30,
                "maxEntries": 1000,
            },
            {"op": "write", "path": "/x", "mode": "0644", "base64": "AP8="},
        ],
        "runs": [
            {
                "name": "test",
                "argv": ["bash", "/tests/test.sh"],
                "env": {"A": "1"},
                "cwd": "/app",
                "user": {"uid": 1000, "gid": 1000, "groups": [4, 24]},
                "limitSeconds": 1.5,
                "output": {
                    "path": "/logs/verifier/test-stdout.txt",
                    "headBytes": 10_485_760,
                    "tailBytes": 10_485_760,
                    "inlineBytes": 4096,
                },
                "continueOnFailure": True,
                "check": None,
                "background": None,
                "makeCwd": False,
                "ownEnv": False,
            },
            {
                **LEAST,
                "name": "health",
                "argv": ["true"],
                "limitSeconds": 30,
                "check": {
                    "intervalSeconds": 5.0,
                    "startIntervalSeconds": 1.0,
                    "startPeriodSeconds": 60.0,
                    "retries": 3,
                },
                "makeCwd": True,
            },
            {
                **LEAST,
                "name": "entrypoint",
                "argv": ["/entry"],
                "continueOnFailure": False,
                "background": {"settleSeconds": 1.0},
            },
        ],
        "read": [{"path": "/logs/verifier/reward.txt", "maxBytes": 65_536}],
    }


def test_both_sides_name_the_same_version():
    versions = {
        int(found[1])
        for path in HELPER.glob("*.go")
        for found in re.finditer(r"protocolVersion\s*=\s*(\d+)", path.read_text())
    }
    assert versions == {protocol.PROTOCOL}


def test_the_bounds_are_within_the_helpers():
    source = (HELPER / "protocol.go").read_text()
    assert re.search(r"maxInline\s+= 64 << 10", source)
    assert phases.INLINE_BYTES <= 64 << 10
    assert re.search(r"maxOutput\s+= 1 << 30", source)
    assert max(phases.HEAD_BYTES, phases.TAIL_BYTES) <= 1 << 30


def test_secrets_are_not_in_the_representation():
    run = phases.Run("x", ("y",), phases.Output(None), {"TOKEN": "s3cret"})
    assert "s3cret" not in repr(phases.PhaseRequest(NONCE, "agent", runs=(run,)))


# -- results -------------------------------------------------------------------------------------------------------

WIRE = {
    "startedAt": "2026-03-01T12:00:00.5Z",
    "endedAt": "2026-03-01T12:00:01Z",
    "prepared": [{"op": "tools", "missing": ["tar"]}, {"op": "reset"}],
    "runs": [
        {
            "name": "test",
            "returnCode": 0,
            "signal": None,
            "seconds": 0.5,
            "timedOut": False,
            "startError": None,
            "oomKills": 2,
            "attempts": 3,
            "output": {"bytes": 3, "kept": 3, "gap": True, "error": "full", "inline": "aGk="},
        }
    ],
    "files": [
        {"path": "/a", "state": "regular", "size": 1, "base64": "MQ=="},
        {"path": "/b", "state": "missing", "size": 0, "base64": None},
    ],
    "background": [{"nonce": "f" * 32, "run": {"name": "entrypoint", "seconds": 9, "signal": 9}}],
}


def test_a_result_is_read_whole():
    result = phases.parse_result(NONCE, WIRE)
    assert (result.nonce, result.started_at, result.ended_at) == (NONCE, WIRE["startedAt"], WIRE["endedAt"])
    assert result.missing_tools() == ("tar",)
    run = result.run("test")
    assert run is not None
    assert (run.return_code, run.output_bytes, run.output_gap, run.output_error) == (0, 3, True, "full")
    assert (run.inline, run.succeeded, run.oom_kills, run.attempts) == (b"hi", True, 2, 3)
    (beside,) = result.background
    assert (beside.nonce, beside.run.name, beside.run.signal) == ("f" * 32, "entrypoint", 9)
    assert result.run("other") is None
    assert (result.files["/a"].state, result.files["/a"].content) == (FileState.REGULAR, b"1")
    assert (result.files["/b"].state, result.files["/b"].content) == (FileState.MISSING, b"")


@pytest.mark.parametrize(
    "wire",
    [
        WIRE | {"later": 1},
        {key: WIRE[key] for key in ("startedAt", "endedAt")},
        WIRE | {"prepared": None, "runs": None, "files": None, "background": None},
        WIRE | {"runs": [{"name": "test", "seconds": 0}]},
    ],
    ids=["an unknown key", "without lists", "lists of Go's nil", "a run with the least"],
)
def test_what_may_be_missing_may(wire):
    assert phases.parse_result(NONCE, wire).ended_at == WIRE["endedAt"]


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"startedAt": "x"},
        WIRE | {"runs": [{"seconds": 1}]},
        WIRE | {"runs": [{"name": "test"}]},
        WIRE | {"runs": [{"name": "test", "seconds": "soon"}]},
        WIRE | {"runs": ["test"]},
        WIRE | {"runs": 5},
        WIRE | {"files": [{"path": "/a", "state": "odd"}]},
        WIRE | {"files": [{"state": "regular"}]},
        WIRE | {"files": [{"path": "/a", "state": "regular", "base64": "x"}]},
        WIRE | {"files": {"/a": 1}},
        WIRE | {"prepared": 5},
        WIRE | {"background": [{"run": WIRE["runs"][0]}]},
        WIRE | {"background": [{"nonce": NONCE}]},
    ],
    ids=[
        "empty",
        "no end",
        "run without name",
        "run without seconds",
        "seconds in words",
        "run is a text",
        "runs is a number",
        "unknown file state",
        "file without path",
        "broken base64",
        "files is a table",
        "prepared is a number",
        "background without nonce",
        "background without run",
    ],
)
def test_another_shape_is_an_error(wire):
    with pytest.raises(phases.ProtocolError):
        phases.parse_result(NONCE, wire)


@pytest.mark.parametrize(
    "wire",
    [
        WIRE | {"startedAt": 5},
        WIRE | {"endedAt": None},
        WIRE | {"endedAt": "soon"},
        WIRE | {"runs": [{"name": "test", "seconds": float("nan")}]},
        WIRE | {"runs": [{"name": "test", "seconds": 1, "returnCode": "0"}]},
        WIRE | {"runs": [{"name": "test", "seconds": 1, "oomKills": "2"}]},
        WIRE | {"prepared": ["tools"]},
        WIRE | {"files": [{"path": "/a", "state": "regular", "base64": "MQ?=="}]},
    ],
    ids=[
        "no time",
        "null time",
        "not a time",
        "NaN",
        "a code in quotes",
        "a count in quotes",
        "prepared of texts",
        "base64 with a stain",
    ],
)
def test_a_wrong_type_is_an_error_here_and_not_later(wire):
    with pytest.raises(phases.ProtocolError):
        phases.parse_result(NONCE, wire)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WIRE, "name", "path"]), inner),
    max_leaves=8,
)


@settings(deadline=None, max_examples=80)
@given(st.dictionaries(st.sampled_from([*WIRE]), JSON))
def test_parsing_either_gives_a_result_or_a_protocol_error(wire):
    try:
        phases.parse_result(NONCE, wire)
    except phases.ProtocolError as error:
        assert "unexpected shape" in str(error)


@given(st.integers(-1, 2), st.booleans(), st.sampled_from([None, "no bash"]))
def test_success_is_return_code_zero_within_the_limit(code, timed_out, start_error):
    wire = {"name": "x", "seconds": 1, "returnCode": code, "timedOut": timed_out, "startError": start_error}
    run = phases.parse_result(NONCE, WIRE | {"runs": [json.loads(json.dumps(wire))]}).runs[0]
    assert run.succeeded is (code == 0 and not timed_out and start_error is None)
