"""engine/sources.py: what a run names, read from a fake API server."""

import base64
import gzip
import io
import json
import tarfile
import tracemalloc

import pytest
from tests.engine.fakes import Client

from taskfold.api.common import ConfigMapKeySelector, EnvFromSource, EnvVar, SourceReference
from taskfold.api.reasons import Reason
from taskfold.api.settings import SecretSettings
from taskfold.api.task_source import FolderSource
from taskfold.contract.errors import TaskError
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine import sources as module
from taskfold.engine.outcome import Refused, Waiting
from taskfold.engine.sources import Sources


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def config_map(name="files", *, labels=None, **more):
    return {"metadata": {"name": name, "labels": labels or {}}, **more}


async def folder(source, *objects, settings=None):
    """The files of this source, as path → (content, executable)."""
    client = Client()
    for each in objects:
        client.put(api.CONFIGMAPS, each)
    reader = Sources(client, settings or SecretSettings())
    found = await reader.folder("team", FolderSource.model_validate(source))
    return {each.path: (found.read(each.path), each.executable) for each in found.entries()}


def tar_gz(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for info, content in members:
            info.size = len(content) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(content))
    return raw.getvalue()


def member(name, content=b"x", mode=0o644, kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.mode, info.type, info.linkname = mode, kind, link
    return info, content


def wrong(content: bytes, at: int) -> bytes:
    """With one byte that is another."""
    changed = bytearray(content)
    changed[at] ^= 0xFF
    return bytes(changed)


def archived(content: bytes):
    return config_map(binaryData={"task.tar.gz": encoded(content)})


FROM_MAP = {"configMap": {"name": "files"}}

# -- inline --------------------------------------------------------------------------------------------------------


async def test_inline_files_are_executable_if_the_kernel_would_start_them():
    found = await folder(
        {"inline": {"files": {"run.sh": "#!/bin/sh\n", "a/b": "x"}, "binaryFiles": {"elf": encoded(b"\x7fELF..")}}}
    )
    assert found == {"run.sh": (b"#!/bin/sh\n", True), "a/b": (b"x", False), "elf": (b"\x7fELF..", True)}


@pytest.mark.parametrize(
    "inline",
    [{"binaryFiles": {"x": "no base64!"}}, {"files": {"x": "1"}, "binaryFiles": {"x": "MQ=="}}],
    ids=["not base64", "a path twice"],
)
async def test_a_bad_inline_file_is_refused(inline):
    with pytest.raises(Refused) as caught:
        await folder({"inline": inline})
    assert caught.value.reason is Reason.INVALID_SPEC


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a//b", "a/./b"])
async def test_a_path_out_of_the_folder_is_an_error_of_the_task(path):
    with pytest.raises(TaskError):
        await folder({"inline": {"files": {path: "x"}}})


async def test_the_task_may_lie_deeper():
    source = {"inline": {"files": {"tasks/one/task.toml": "1", "tasks/two/task.toml": "2"}}, "path": "tasks/two"}
    assert await folder(source) == {"task.toml": (b"2", False)}
    with pytest.raises(TaskError, match="holds no files"):
        await folder(source | {"path": "tasks/three"})


@pytest.mark.parametrize("source", [{}, {"git": {"url": "https://x", "ref": "main"}}], ids=["none", "git"])
async def test_no_source_of_this_version_is_refused(source):
    with pytest.raises(Refused):
        await folder(source)


# -- ConfigMaps ----------------------------------------------------------------------------------------------------


async def test_each_key_is_a_file():
    given = config_map(data={"task.toml": "x"}, binaryData={"blob": encoded(b"\x00")})
    assert await folder(FROM_MAP, given) == {"task.toml": (b"x", False), "blob": (b"\x00", False)}


async def test_items_say_which_key_is_which_file():
    items = [{"key": "test", "path": "tests/test.sh"}, {"key": "toml", "path": "task.toml"}]
    given = config_map(data={"test": "#!/bin/bash", "toml": "x", "other": "y"})
    found = await folder({"configMap": {"name": "files", "items": items}}, given)
    assert found == {"task.toml": (b"x", False), "tests/test.sh": (b"#!/bin/bash", True)}


async def test_a_missing_key_is_waited_for():
    items = [{"key": "test", "path": "a"}, {"key": "here", "path": "b"}]
    with pytest.raises(Waiting, match="no key test"):
        await folder({"configMap": {"name": "files", "items": items}}, config_map(data={"here": "x"}))


async def test_a_missing_configmap_is_waited_for_and_named():
    with pytest.raises(Waiting, match="no ConfigMap files in namespace team") as caught:
        await folder(FROM_MAP)
    assert caught.value.reason is Reason.SOURCE_NOT_FOUND


async def test_a_forbidden_configmap_is_waited_for():
    client = Client()
    client.failures["get configmaps"] = errors.Forbidden("no", status=403)
    with pytest.raises(Waiting) as caught:
        await Sources(client, SecretSettings()).folder("team", FolderSource.model_validate(FROM_MAP))
    assert caught.value.reason is Reason.SOURCE_FORBIDDEN


async def test_a_label_may_be_required_and_the_message_is_the_command():
    strict = SecretSettings(require_label=True)
    with pytest.raises(Waiting, match=r"kubectl -n team label configmap files taskfold\.dev/usable=true"):
        await folder(FROM_MAP, config_map(data={"a": "x"}), settings=strict)
    labelled = config_map(data={"a": "x"}, labels={"taskfold.dev/usable": "true"})
    assert await folder(FROM_MAP, labelled, settings=strict)


# -- archives ------------------------------------------------------------------------------------------------------


async def test_an_archive_is_the_whole_folder():
    content = tar_gz(
        member("./tests", kind=tarfile.DIRTYPE), member("./tests/test.sh", b"t", 0o755), member("task.toml", b"x")
    )
    assert await folder(FROM_MAP, archived(content)) == {"task.toml": (b"x", False), "tests/test.sh": (b"t", True)}


TOO_LARGE = f"unpacks to more than {module.ARCHIVE_BYTES:,} bytes"

BAD = {
    "not gzip": (b"hello", "is not a .tar.gz archive"),
    "empty": (b"", "is not a .tar.gz archive"),
    "gzip of something else": (gzip.compress(b"hello" * 500), "is not a .tar.gz archive"),
    "cut": (tar_gz(member("a", bytes(100_000)))[:-20], "is not a .tar.gz archive"),
    "cut in its first block": (tar_gz(member("a", bytes(100_000)))[:14], "is not a .tar.gz archive"),
    "a block that is none": (
        gzip.compress(b"")[:10] + b"\xff" * 100,
        "is not a .tar.gz archive: Error -3 while decompressing data: invalid block type",
    ),
    "a wrong checksum": (wrong(tar_gz(member("a")), -8), "is not a .tar.gz archive: CRC check failed"),
    "a wrong length": (wrong(tar_gz(member("a")), -1), "is not a .tar.gz archive: Incorrect length"),
    "something behind it": (tar_gz(member("a")) + b"more", "is not a .tar.gz archive: Not a gzipped file"),
    "a link": (tar_gz(member("a", kind=tarfile.SYMTYPE, link="/etc/passwd")), "a is not a regular file"),
    "a hard link": (tar_gz(member("a", kind=tarfile.LNKTYPE, link="b")), "a is not a regular file"),
    "a device": (tar_gz(member("a", kind=tarfile.CHRTYPE)), "a is not a regular file"),
    "a bomb": (tar_gz(member("zeros", bytes(module.ARCHIVE_BYTES + 1))), TOO_LARGE),
    "two halves of a bomb": (
        tar_gz(member("a", bytes(module.ARCHIVE_BYTES // 2)), member("b", bytes(module.ARCHIVE_BYTES // 2 + 1))),
        TOO_LARGE,
    ),
}


@pytest.mark.parametrize(("content", "problem"), BAD.values(), ids=BAD)
async def test_a_bad_archive_is_refused_by_name(content, problem):
    with pytest.raises(Refused, match=r"ConfigMap files: task\.tar\.gz") as caught:
        await folder(FROM_MAP, archived(content))
    assert caught.value.reason is Reason.INVALID_TASK
    assert problem in caught.value.message


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside", "a/../../b"])
async def test_a_name_out_of_the_folder_is_an_error_of_the_task(name):
    with pytest.raises(TaskError):
        await folder(FROM_MAP, archived(tar_gz(member(name))))


@pytest.mark.parametrize("spoilt", ["first block", "in the middle"])
async def test_a_damaged_archive_is_refused(spoilt):
    content = bytearray(tar_gz(member("a", bytes(range(256)) * 400)))
    at = 12 if spoilt == "first block" else len(content) // 2
    content[at : at + 8] = b"\xff" * 8
    with pytest.raises(Refused):
        await folder(FROM_MAP, archived(bytes(content)))


def header_bomb(size: int) -> bytes:
    """A PAX header that claims, and has, `size` bytes: a kilobyte of gzip for each megabyte."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, size
    raw = io.BytesIO()
    with gzip.GzipFile(fileobj=raw, mode="wb") as out:
        out.write(info.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(size // 2**20):
            out.write(bytes(2**20))
    return raw.getvalue()


async def test_a_header_takes_no_more_memory_than_an_archive_may():
    content = header_bomb(module.ARCHIVE_BYTES * 3 // 2)
    tracemalloc.start()
    try:
        with pytest.raises(Refused):
            await folder(FROM_MAP, archived(content))
        assert tracemalloc.get_traced_memory()[1] < module.ARCHIVE_BYTES * 1.25
    finally:
        tracemalloc.stop()


# -- variables -----------------------------------------------------------------------------------------------------


def secret(name, **values):
    return {"metadata": {"name": name}, "data": {key: encoded(value.encode()) for key, value in values.items()}}


@pytest.fixture
def reader():
    client = Client()
    client.put(api.SECRETS, secret("s", A="secret", B="2"))
    client.put(api.CONFIGMAPS, config_map("c", data={"A": "map"}, binaryData={"D": encoded(b"4")}))
    client.put(api.SECRETS, {"metadata": {"name": "raw"}, "data": {"A": encoded(b"\xff\xfe")}})
    return Sources(client, SecretSettings())


async def test_later_sources_win(reader):
    sources = [
        {"secretRef": {"name": "s"}},
        {"configMapRef": {"name": "c"}},
        {"secretRef": {"name": "s"}, "prefix": "P_"},
    ]
    found = await reader.variables("team", [EnvFromSource.model_validate(each) for each in sources])
    assert found == {"A": "map", "B": "2", "D": "4", "P_A": "secret", "P_B": "2"}


async def test_secrets_come_from_secrets_only(reader):
    assert await reader.secrets("team", [SourceReference(name="s")]) == {"A": "secret", "B": "2"}
    with pytest.raises(Waiting):
        await reader.secrets("team", [SourceReference(name="c")])


async def test_an_optional_source_may_be_missing(reader):
    assert await reader.secrets("team", [SourceReference(name="none", optional=True)]) == {}


OPTIONAL = {
    "secretsFrom": lambda reader: reader.secrets("team", [SourceReference(name="s", optional=True)]),
    "envFrom": lambda reader: reader.variables(
        "team", [EnvFromSource.model_validate({"secretRef": {"name": "s", "optional": True}})]
    ),
    "env": lambda reader: reader.env("team", [from_secret(name="s", key="A", optional=True)]),
}


@pytest.mark.parametrize("read", OPTIONAL.values(), ids=OPTIONAL)
@pytest.mark.parametrize("why", ["by the API server", "for want of a label"])
async def test_an_optional_source_that_is_forbidden_is_not_taken_for_missing(read, why):
    client = Client()
    client.put(api.SECRETS, secret("s", A="secret"))
    if why == "by the API server":
        client.failures["get secrets"] = errors.Forbidden("no", status=403)
    with pytest.raises(Waiting) as caught:
        await read(Sources(client, SecretSettings(require_label=why == "for want of a label")))
    assert caught.value.reason is Reason.SOURCE_FORBIDDEN


async def test_an_optional_source_is_read_again_when_the_api_server_does_not_answer():
    client = Client()
    client.failures["get secrets"] = errors.Unavailable("no answer", sent=True)
    with pytest.raises(errors.Unavailable):
        await Sources(client, SecretSettings()).secrets("team", [SourceReference(name="s", optional=True)])


def pull_secret(name, auths, kind="kubernetes.io/dockerconfigjson"):
    return {**secret(name, **{".dockerconfigjson": json.dumps({"auths": auths})}), "type": kind}


async def test_pull_secrets_give_their_logins_in_order(reader):
    entry = {"username": "me", "password": "x"}
    for name in ("one", "two"):
        reader._client.put(api.SECRETS, pull_secret(name, {f"{name}.example": entry}))
    found = await reader.logins("team", ["two", "one"])
    assert [(each.registry, each.credential.username) for each in found] == [
        ("two.example", "me"),
        ("one.example", "me"),
    ]
    assert await reader.logins("team", []) == []


async def test_a_pull_secret_that_is_missing_is_waited_for_and_one_that_is_none_is_refused(reader):
    reader._client.put(api.SECRETS, pull_secret("odd", {"a.example": {"auth": "hunter2"}}))
    with pytest.raises(Waiting, match="no Secret none in namespace team"):
        await reader.logins("team", ["none"])
    for name in ("odd", "s"):
        with pytest.raises(Refused) as caught:
            await reader.logins("team", [name])
        assert f"spec.pod.imagePullSecrets: Secret {name}" in caught.value.message
        assert "hunter2" not in caught.value.message


async def test_a_value_that_is_no_text_is_refused_without_showing_it(reader):
    with pytest.raises(Refused, match="Secret raw holds a value that is not UTF-8 text"):
        await reader.secrets("team", [SourceReference(name="raw")])


def variable(**fields):
    return EnvVar.model_validate({"name": "X", **fields})


def from_secret(**fields):
    return variable(valueFrom={"secretKeyRef": fields})


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (variable(value="1"), {"X": "1"}),
        (variable(), {"X": ""}),
        (from_secret(name="s", key="B"), {"X": "2"}),
        (variable(valueFrom={"configMapKeyRef": {"name": "c", "key": "A"}}), {"X": "map"}),
        (from_secret(name="s", key="no", optional=True), {}),
        (from_secret(name="none", key="no", optional=True), {}),
        (variable(valueFrom={}), {}),
    ],
    ids=["value", "empty", "secret", "config map", "optional key", "optional object", "from nothing"],
)
async def test_a_list_of_variables(reader, entry, expected):
    assert await reader.env("team", [entry]) == expected


async def test_a_missing_key_names_object_key_and_variable(reader):
    with pytest.raises(Waiting, match=r"Secret s has no key no \(wanted for X\)"):
        await reader.env("team", [from_secret(name="s", key="no")])


# -- one key -------------------------------------------------------------------------------------------------------


async def value(*objects, **selector):
    client = Client()
    for each in objects:
        client.put(api.CONFIGMAPS, each)
    wanted = ConfigMapKeySelector.model_validate({"name": "files", "key": "answer", **selector})
    return await Sources(client, SecretSettings()).text("team", wanted)


@pytest.mark.parametrize("data", [{"data": {"answer": "42"}}, {"binaryData": {"answer": encoded(b"42")}}], ids=str)
async def test_the_text_of_a_key(data):
    assert await value(config_map(**data)) == "42"


@pytest.mark.parametrize(
    ("objects", "words"), [((), "there is no ConfigMap files"), ((config_map(data={"x": ""}),), "no key answer")]
)
async def test_a_key_that_is_not_there_yet(objects, words):
    with pytest.raises(Waiting, match=words) as caught:
        await value(*objects)
    assert caught.value.reason is Reason.SOURCE_NOT_FOUND
    assert await value(*objects, optional=True) is None


async def test_a_key_that_holds_no_text():
    with pytest.raises(Refused, match="not UTF-8"):
        await value(config_map(binaryData={"answer": encoded(b"\xff")}))
