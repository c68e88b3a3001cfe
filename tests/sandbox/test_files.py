"""sandbox/nemo_gym/verifiers/files.py: what is read of a workspace, and what is not."""

import os
import socket
from functools import partial

import pytest

from taskfold.sandbox.nemo_gym.verifiers.files import file_exists, read_text, text_file_equals


@pytest.fixture
def workspace(tmp_path):
    """/app beside /secret, with everything an agent may leave there."""
    folder = tmp_path / "app"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "apple").mkdir()
    (tmp_path / "apple" / "secret").write_text("secret")
    (folder / "answer.txt").write_text("42\n")
    (folder / "inner" / "deep.txt").write_text("deep")
    (folder / "inside").symlink_to("inner/deep.txt")
    (folder / "absolute").symlink_to(folder / "answer.txt")
    (folder / "outside").symlink_to("../secret")
    (folder / "away").symlink_to("..")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nothing")
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(folder / "fifo")
    (folder / "device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        listener.bind(f"/proc/self/fd/{here}/socket")  # a short name: a socket's may have 108 bytes
        os.close(here)
    return folder


READ = {
    "answer.txt": "42",
    "inner/deep.txt": "deep",
    "./inner/../answer.txt": "42",
    "inside": "deep",
    "absolute": "42",
    "away/app/answer.txt": "42",
}


@pytest.mark.parametrize(("path", "text"), READ.items(), ids=READ)
def test_what_is_inside_is_read(workspace, path, text):
    assert read_text(workspace, path) == read_text(str(workspace), path) == text
    assert file_exists(workspace, path)
    assert text_file_equals(workspace, path, text) == 1.0
    assert text_file_equals(workspace, path, text + "!") == 0.0


ABSENT = [
    "nothing", "inner", "", ".", "..", "../secret", "inner/../../secret", "../apple/secret", "outside", "away/secret",
    "loop", "dangling", "fifo", "device", "socket", "/etc/passwd", "a\0b", "x" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("path", ABSENT, ids=lambda path: repr(path[:20]))
def test_what_leaves_the_workspace_or_is_no_file_reads_as_absent(workspace, path):
    assert read_text(workspace, path) is None
    assert not file_exists(workspace, path)
    assert text_file_equals(workspace, path, "secret") == 0.0


def test_an_absolute_path_counts_by_where_it_leads(workspace):
    assert read_text(workspace, workspace / "answer.txt") == "42"
    assert read_text(workspace, workspace.parent / "secret") is None


def test_the_workspace_may_be_a_link(workspace, tmp_path):
    (tmp_path / "link").symlink_to(workspace)
    assert read_text(tmp_path / "link", "answer.txt") == "42"
    assert read_text(tmp_path / "link", tmp_path / "link" / "answer.txt") == "42"


def test_the_root_may_be_the_workspace():
    assert file_exists("/", "/proc/self/status")


@pytest.mark.parametrize(
    ("content", "text", "whole"),
    [
        (b"a", "a", "a"),
        (b"a\n", "a", "a\n"),
        (b"a\n\n", "a\n", "a\n\n"),
        (b"a\r\n", "a", "a\n"),
        (b"\n", "", "\n"),
        (b"", "", ""),
        ("ß\n".encode(), "ß", "ß\n"),
    ],
    ids=str,
)
def test_one_newline_at_the_end_is_dropped(workspace, content, text, whole):
    (workspace / "file").write_bytes(content)
    assert read_text(workspace, "file") == text
    assert read_text(workspace, "file", strip_trailing_newline=False) == whole
    assert text_file_equals(workspace, "file", text) == 1.0
    assert text_file_equals(workspace, "file", whole) == 1.0
    assert text_file_equals(workspace, "file", whole + "\n") == 0.0


def test_bytes_that_are_no_text_are_no_text(workspace):
    assert read_text(workspace, "binary") is None
    assert file_exists(workspace, "binary")
    assert read_text(workspace, "binary", encoding="latin-1") == "ÿþ\x00"


def test_an_encoding_that_there_is_not_is_the_verifiers_mistake(workspace):
    with pytest.raises(LookupError):
        read_text(workspace, "answer.txt", encoding="no-such")


def test_a_partial_is_a_whole_verifier(workspace):
    verify = partial(text_file_equals, path="answer.txt", content="42")
    assert verify(workspace=workspace) == 1.0
