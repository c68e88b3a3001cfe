import os
import socket
import tarfile

import pytest

from taskfold.contract import digest, errors, folder

FILES = {
    "task.toml": (b"x = 1\n", False),
    "tests/test.sh": (b"echo\n", True),
    "tests/data/a.bin": (bytes(range(256)) * 40, False),
    "tests/ü" + "n" * 120 + ".txt": (b"long name", False),
    "solution/solve.sh": (b"", False),
}


def _memory(tmp_path):
    return folder.MemoryFolder(FILES)


def _directory(tmp_path):
    for path, (content, executable) in FILES.items():
        file = tmp_path / "task" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(0o755 if executable else 0o640)
    return folder.DirectoryFolder(tmp_path / "task")


def _tar(tmp_path):
    with (tmp_path / "task.tar").open("wb") as out:
        digest.write_snapshot(folder.MemoryFolder(FILES), out)
    return folder.TarFolder(tmp_path / "task.tar")


@pytest.fixture(params=[_memory, _directory, _tar], ids=["memory", "directory", "tar"])
def source(request, tmp_path):
    return request.param(tmp_path)


def test_every_source_lists_the_same_entries_sorted(source):
    expected = [folder.Entry(path, x, len(content)) for path, (content, x) in sorted(FILES.items())]
    assert list(source.entries()) == expected


def test_every_source_reads_the_same_bytes(source):
    for path, (content, _) in FILES.items():
        assert source.read(path) == content
        with source.open(path) as stream:
            assert b"".join(iter(lambda: stream.read(7), b"")) == content


def test_a_read_within_the_limit_is_whole_and_one_above_it_is_refused(source):
    size = len(FILES["tests/data/a.bin"][0])
    assert len(source.read("tests/data/a.bin", size)) == size
    with pytest.raises(errors.TaskError, match=r"tests/data/a\.bin: is larger than"):
        source.read("tests/data/a.bin", size - 1)


@pytest.mark.parametrize("path", ["nothing", "tests", "tests/test.sh/x"])
def test_a_path_without_a_file_is_not_found(source, path):
    with pytest.raises(FileNotFoundError, match=path):
        source.read(path)


def test_two_files_can_be_read_at_the_same_time(source):
    with source.open("task.toml") as one, source.open("tests/data/a.bin") as other:
        assert one.read(3) + other.read(3) + one.read(3) == b"x =\x00\x01\x02 1\n"


def test_a_subtree_has_its_own_paths(source):
    tests = folder.subtree(source, "tests")
    assert [entry.path for entry in tests.entries()] == ["data/a.bin", "test.sh", "ü" + "n" * 120 + ".txt"]
    assert tests.read("test.sh") == b"echo\n"
    with pytest.raises(FileNotFoundError):
        tests.read("task.toml")


def test_a_view_hides_what_it_does_not_keep(source):
    view = folder.View(source, keep=lambda path: path != "task.toml")
    assert "task.toml" not in [entry.path for entry in view.entries()]
    with pytest.raises(FileNotFoundError):
        view.read("task.toml")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", 'a part ""'),
        ("/etc/passwd", "absolute"),
        ("a/../b", 'a part ".."'),
        ("./a", 'a part "."'),
        ("a//b", 'a part ""'),
        ("a/", 'a part ""'),
        ("a\0b", "NUL"),
        ("a\udcffb", "not UTF-8"),
        ("x" * 256, "longer than 255 bytes"),
        ("ü" * 128, "longer than 255 bytes"),
        ("/".join(["x" * 100] * 11), "longer than 1,024 bytes"),
    ],
)
def test_a_bad_path_is_refused_and_named(path, problem):
    with pytest.raises(errors.TaskError, match=problem):
        folder.MemoryFolder({path: (b"", False)})


def test_a_file_cannot_be_a_folder_too():
    with pytest.raises(errors.TaskError, match="a/b/c: lies below a, which is a file"):
        folder.MemoryFolder({"a": (b"", False), "a/b/c": (b"", False)})


def test_a_link_in_a_directory_is_refused_by_name(tmp_path):
    source = _directory(tmp_path)
    (tmp_path / "task/tests/link").symlink_to("/etc/passwd")
    with pytest.raises(errors.TaskError, match="tests/link: is a symbolic link"):
        source.entries()


def test_a_linked_folder_is_refused_by_name(tmp_path):
    source = _directory(tmp_path)
    (tmp_path / "task/environment").symlink_to(tmp_path)
    with pytest.raises(errors.TaskError, match="environment: is a symbolic link"):
        source.entries()


def test_a_file_that_became_a_link_since_the_listing_is_not_followed(tmp_path):
    source = _directory(tmp_path)
    assert source.entries()
    (tmp_path / "task/task.toml").unlink()
    (tmp_path / "task/task.toml").symlink_to("/etc/passwd")
    with pytest.raises(errors.TaskError, match=r"task\.toml: is a symbolic link"):
        source.read("task.toml")


def test_a_file_that_became_a_fifo_does_not_hang(tmp_path):
    source = _directory(tmp_path)
    (tmp_path / "task/task.toml").unlink()
    os.mkfifo(tmp_path / "task/task.toml")
    with pytest.raises(errors.TaskError, match="is not a regular file"):
        source.read("task.toml")


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_a_special_file_is_refused_by_name(tmp_path, kind):
    source = _directory(tmp_path)
    path = tmp_path / "task/tests/special"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as unix:
            unix.bind(str(path))
    with pytest.raises(errors.TaskError, match="tests/special: is not a regular file"):
        source.entries()


def test_a_name_that_is_not_utf_8_is_refused(tmp_path):
    source = _directory(tmp_path)
    (tmp_path / "task/tests" / os.fsdecode(b"bad-\xff")).write_bytes(b"")
    with pytest.raises(errors.TaskError, match="not UTF-8") as caught:
        source.entries()
    assert str(caught.value).encode()


def test_a_git_folder_at_the_top_is_no_part_of_a_task(tmp_path):
    source = _directory(tmp_path)
    (tmp_path / "task/.git").mkdir()
    (tmp_path / "task/.git/link").symlink_to("x")
    assert [entry.path for entry in source.entries()] == sorted(FILES)


def test_an_empty_directory_is_no_part_of_a_task(tmp_path):
    source = _directory(tmp_path)
    (tmp_path / "task/tests/empty").mkdir()
    assert [entry.path for entry in source.entries()] == sorted(FILES)


def test_a_directory_with_too_many_files_is_refused(tmp_path, monkeypatch):
    source = _directory(tmp_path)
    monkeypatch.setattr(folder, "MAX_FILES", len(FILES) - 1)
    with pytest.raises(errors.TaskError, match="holds more than 4 files"):
        source.entries()


def _raw_tar(tmp_path, *members):
    path = tmp_path / "raw.tar"
    with tarfile.open(path, "w") as tar:
        for member in members:
            tar.addfile(member)
    return path


def _member(name, **fields):
    member = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(member, key, value)
    return member


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ([_member("tests/l", type=b"2", linkname="/etc/passwd")], "tests/l: is not a regular file"),
        ([_member("tests/h", type=b"1", linkname="x")], "tests/h: is not a regular file"),
        ([_member("tests/p", type=b"6")], "tests/p: is not a regular file"),
        ([_member("../x")], 'a part ".."'),
        ([_member("/x")], "absolute"),
        ([_member("x"), _member("x")], "x: is in the archive twice"),
    ],
    ids=["link", "hard link", "fifo", "leaves the folder", "absolute", "twice"],
)
def test_an_archive_with_anything_but_files_is_refused(tmp_path, members, problem):
    with pytest.raises(errors.TaskError, match=problem):
        folder.TarFolder(_raw_tar(tmp_path, *members))


def test_directories_in_an_archive_are_passed_over(tmp_path):
    path = _raw_tar(tmp_path, _member("tests", type=b"5"), _member("tests/x"))
    assert [entry.path for entry in folder.TarFolder(path).entries()] == ["tests/x"]


@pytest.mark.parametrize("content", [b"no tar", b"", b"x" * 512], ids=["short", "empty", "a block"])
def test_what_is_no_archive_is_refused(tmp_path, content):
    path = tmp_path / "bad.tar"
    path.write_bytes(content)
    with pytest.raises(errors.TaskError, match=r"bad\.tar: is not a tar archive"):
        folder.TarFolder(path)
