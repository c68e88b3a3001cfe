import hashlib
import io
import os
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfold.contract import digest, errors, folder

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=40).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 200
)
TOP = st.sampled_from(["environment", "tests", "solution", "steps"])
PATHS = st.one_of(
    st.sampled_from(sorted(digest.USED_FILES)),
    st.tuples(TOP, NAMES).map("/".join),
    st.tuples(TOP, NAMES, NAMES).map("/".join),
)
FILES = st.dictionaries(PATHS, st.tuples(st.binary(max_size=2000), st.booleans()), max_size=8).filter(
    lambda files: not any(other.startswith(path + "/") for path in files for other in files)
)


def snapshot(source):
    out = io.BytesIO()
    return digest.write_snapshot(source, out), out.getvalue()


def test_the_digest_is_the_hash_of_sorted_lines():
    files = {"tests/test.sh": (b"echo", True), "task.toml": (b"", False)}
    lines = b""
    for path, mode, content in ((b"task.toml", b"0644", b""), (b"tests/test.sh", b"0755", b"echo")):
        lines += path + b"\0" + mode + b"\0" + hashlib.sha256(content).hexdigest().encode() + b"\n"
    expected = "sha256:" + hashlib.sha256(lines).hexdigest()
    assert digest.task_digest(folder.MemoryFolder(files)) == expected


@given(FILES, st.randoms(use_true_random=False))
def test_the_order_in_which_files_are_given_does_not_matter(files, random):
    shuffled = list(files.items())
    random.shuffle(shuffled)
    assert snapshot(folder.MemoryFolder(dict(shuffled))) == snapshot(folder.MemoryFolder(files))


@settings(max_examples=40, deadline=None)
@given(FILES, st.integers(0, 2**31), st.sampled_from([0o000, 0o022, 0o077]))
def test_times_umask_and_group_bits_do_not_matter(tmp_path_factory, files, mtime, umask):
    root = tmp_path_factory.mktemp("task")
    before = os.umask(umask)
    try:
        for path, (content, executable) in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod((0o700 if executable else 0o600) | (mtime & 0o077))
            os.utime(file, (mtime, mtime))
    finally:
        os.umask(before)
    assert snapshot(folder.DirectoryFolder(root)) == snapshot(folder.MemoryFolder(files))


@settings(max_examples=60, deadline=None)
@given(FILES)
def test_a_snapshot_reads_back_as_the_same_task(tmp_path_factory, files):
    path = tmp_path_factory.mktemp("snapshot") / "task.tar"
    source = folder.MemoryFolder(files)
    with path.open("wb") as out:
        written = digest.write_snapshot(source, out)
    again = folder.TarFolder(path)
    assert list(again.entries()) == list(source.entries())
    assert {entry.path: again.read(entry.path) for entry in again.entries()} == {
        file: content for file, (content, _) in files.items()
    }
    assert digest.task_digest(again) == written == digest.task_digest(source)


@given(FILES.filter(bool), st.data())
def test_any_change_of_a_path_a_byte_or_an_x_bit_changes_the_digest(files, data):
    before = digest.task_digest(folder.MemoryFolder(files))
    path = data.draw(st.sampled_from(sorted(files)))
    content, executable = files[path]
    changed = data.draw(st.sampled_from(["bytes", "x bit", "path", "gone"]))
    other = {name: file for name, file in files.items() if name != path}
    match changed:
        case "bytes":
            other[path] = (content + b"x", executable)
        case "x bit":
            other[path] = (content, not executable)
        case "path":
            other["tests/a name that no strategy makes: " + "n" * 60] = (content, executable)
    assert digest.task_digest(folder.MemoryFolder(other)) != before


def test_a_snapshot_is_a_plain_tar_of_root_owned_files_at_time_0():
    files = {
        "task.toml": (b"a", False),
        "tests/test.sh": (b"b" * 1000, True),
        "tests/" + "ü" * 100: (b"", False),
    }
    with tarfile.open(fileobj=io.BytesIO(snapshot(folder.MemoryFolder(files))[1])) as tar:
        found = [(m.name, m.mode, m.uid, m.gid, m.uname, m.gname, m.mtime, m.isreg()) for m in tar]
    assert found == [
        ("task.toml", 0o644, 0, 0, "", "", 0, True),
        ("tests/test.sh", 0o755, 0, 0, "", "", 0, True),
        ("tests/" + "ü" * 100, 0o644, 0, 0, "", "", 0, True),
    ]


def test_a_readme_and_other_files_at_the_top_are_neither_in_the_digest_nor_in_the_snapshot():
    task = {"task.toml": (b"a", False), "tests/test.sh": (b"b", False)}
    beside = {"README.md": (b"c", False), ".gitignore": (b"d", False), "testsuite/x": (b"e", False)}
    assert snapshot(folder.MemoryFolder(task | beside)) == snapshot(folder.MemoryFolder(task))


class _Changing(folder.MemoryFolder):
    """Says another size than it gives."""

    def __init__(self, files, by):
        super().__init__(files)
        self.by = by

    def entries(self):
        return [folder.Entry(e.path, e.executable, e.size + self.by) for e in super().entries()]


@pytest.mark.parametrize("by", [-1, 1, digest.CHUNK], ids=["grew", "shrank", "shrank by a chunk"])
@pytest.mark.parametrize("function", [digest.task_digest, snapshot], ids=["digest", "snapshot"])
def test_a_file_that_changes_while_it_is_read_is_an_error(function, by):
    with pytest.raises(errors.TaskError, match="tests/x: changed while it was read"):
        function(_Changing({"tests/x": (b"x" * 100, False)}, by))


class _Endless:
    """A file that is larger than any memory we may use, made as it is read."""

    size = 512 * 2**20

    def entries(self):
        return [folder.Entry("tests/big", False, self.size)]

    def open(self, path):
        return self._Stream(self.size)

    class _Stream(io.RawIOBase):
        def __init__(self, left):
            super().__init__()
            self.left = left

        def readable(self):
            return True

        def read(self, size=-1):
            count = min(self.left, size)
            assert 0 <= size <= 2**20
            self.left -= count
            return bytes(count)


def test_a_large_file_is_streamed_in_small_pieces():
    class Sink:
        total = 0
        largest = 0

        def write(self, data):
            self.total += len(data)
            self.largest = max(self.largest, len(data))

    sink = Sink()
    digest.write_snapshot(_Endless(), sink)
    assert sink.total > _Endless.size
    assert sink.largest <= 2**20
