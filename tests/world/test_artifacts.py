"""Artifacts out of a sandbox and into another: the same cases for model and real helper, as in `test_helper`."""

import hashlib
import tarfile
from pathlib import Path

import pytest

from taskfold.effects import errors, sandbox, sinks, transfer
from taskfold.protocol import phase as phases
from tests.effects.conftest import helper, kubeconfig  # noqa: F401  (fixtures)
from tests.world import boxes
from tests.world import files as tree
from tests.world.boxes import Box, Text
from tests.world.programs import Program
from tests.world.test_helper import BOUNDS, asked, files, pod  # noqa: F401  (a fixture)

CASES: dict[str, boxes.Case] = {}
LIMITS = {"max_bytes": 1 << 20, "max_entries": 100}


def case(what: boxes.Case) -> boxes.Case:
    CASES[what.__name__] = what
    return what


async def _plant(box: Box) -> str:
    """A folder with a file, a closed folder, a link and a pipe in it."""
    folder = f"{box.folder}/out"

    async def model(program: Program) -> int:
        program.files.write(f"{folder}/sub/f", b"word\n", mode=0o640)
        program.files.write(f"{folder}/skip.pyc", b"")
        program.files.make(f"{folder}/l", tree.Link(target="sub/f"))
        program.files.make(f"{folder}/p", tree.Special())
        program.files.find(folder).mode = 0o750
        program.files.make(f"{box.folder}/way", tree.Link(target="out"))
        return 0

    text = Text(
        f"umask 022; mkdir -p {folder}/sub; cd {folder}; echo word > sub/f; chmod 640 sub/f; : > skip.pyc; "
        "ln -s sub/f l; mkfifo p; chmod 750 .; ln -s out ../way",
        model,
    )
    await box.sandbox.run_phase(asked(runs=[box.run(text, output=phases.Output(None))]))
    return folder


async def _packed(box: Box, root: sandbox.Root, name: str = "x.tar") -> tuple[Path, sandbox.PackResult]:
    archive = box.local / name
    return archive, await box.sandbox.pack([root], sinks.ToFile(archive), keep=True, **BOUNDS)


@case
async def each_root_is_told_of(box: Box) -> None:
    folder = await _plant(box)
    paths = (
        folder,
        f"{folder}/sub/f",
        f"{folder}/none",
        f"{folder}/l",
        f"{box.folder}/way/sub",
        f"{folder}/p",
        "no/such",
    )
    roots = [sandbox.Root(path, f"r{index}", exclude=("*.pyc",)) for index, path in enumerate(paths)]
    found = (await box.sandbox.pack(roots, sinks.ToFile(box.local / "x.tar"), **BOUNDS)).roots
    kinds = ["directory", "file", "missing", "link", "link", "special", "missing"]
    assert [each.type for each in found] == kinds
    assert [each.entries for each in found] == [4, 1, 0, 0, 0, 0, 0]
    assert [each.size for each in found] == [5, 5, 0, 0, 0, 0, 0]
    assert [each.skipped_count for each in found] == [1, 0, 1, 1, 1, 1, 1]
    assert [each.sha256 for each in found] == [None, hashlib.sha256(b"word\n").hexdigest(), *[None] * 5]
    assert [each.path for each in found[:-1]] == list(paths[:-1])
    assert found[-1].path.startswith("/")
    assert found[-1].path.endswith("/no/such")


@case
async def what_is_excluded_is_neither_packed_nor_listed(box: Box) -> None:
    folder = await _plant(box)
    for pattern, kept in (
        ("sub", {"./", "l", "skip.pyc"}),
        ("sub/f", {"./", "sub/", "l", "skip.pyc"}),
        ("s*", {"./", "l"}),
        ("f", {"./", "sub/", "l", "skip.pyc"}),
        ("./l", {"./", "sub/", "sub/f", "skip.pyc"}),
        ("sub/", {"./", "sub/", "sub/f", "l", "skip.pyc"}),
        ("*", {"./"}),
    ):
        archive, result = await _packed(box, sandbox.Root(folder, ".", exclude=(pattern, "p")))
        with tarfile.open(archive) as tar:
            names = {"./" if member.name in ("", ".") else member.name + "/" * member.isdir() for member in tar}
        assert (names, result.skipped_count) == (kept, 0), pattern


@case
async def a_folder_is_restored_as_it_was(box: Box) -> None:
    folder = await _plant(box)
    archive, packed = await _packed(box, sandbox.Root(folder, "."))
    await box.sandbox.unpack(f"{box.folder}/there/old", files(file=b"old"), **BOUNDS)
    restore = phases.Restore(f"{box.folder}/there", "directory", packed.sha256, **LIMITS)
    done = await box.sandbox.run_phase(asked(prepare=[restore], keep=True), [transfer.from_archive(archive)])
    result = dict(done.prepared[0])
    assert done.upload_seconds is not None
    assert {key: result[key] for key in ("op", "entries", "bytes", "skipped", "skippedCount", "owners")} == {
        "op": "restore", "entries": packed.entries, "bytes": packed.size, "skipped": [], "skippedCount": 0, "owners": 0,
    }  # fmt: skip
    again, second = await _packed(box, sandbox.Root(f"{box.folder}/there", "."), "again.tar")
    with tarfile.open(archive) as before, tarfile.open(again) as after:
        members = [
            [(each.name, each.mode, each.uid, each.gid, each.mtime, each.linkname, each.size) for each in tar]
            for tar in (before, after)
        ]
    assert sorted(members[0]) == sorted(members[1])
    assert second.entries == 5


@case
async def a_file_is_restored_in_place_of_anything(box: Box) -> None:
    folder = await _plant(box)
    archive, packed = await _packed(box, sandbox.Root(f"{folder}/sub/f", "whatever"))
    for name in ("new/deep/f", "sub", "l", "skip.pyc"):
        restore = phases.Restore(f"{folder}/{name}", "file", packed.sha256, **LIMITS)
        read = phases.Read(f"{folder}/{name}", 10)
        done = await box.sandbox.run_phase(asked(prepare=[restore], read=[read]), [transfer.from_archive(archive)])
        assert done.files[read.path].content == b"word\n"


@case
async def no_artifact_goes_where_it_may_not(box: Box) -> None:
    folder = await _plant(box)
    archive, _ = await _packed(box, sandbox.Root(f"{folder}/sub/f", "f"))
    for path in (
        "/",
        "/tests",
        "/tests/x",
        "/logs",
        "/logs/verifier/reward.txt",
        "/proc/x",
        "/sys",
        "/dev/shm/x",
        "/.taskfold/helper",
    ):
        restore = phases.Restore(path, "file", None, **LIMITS)
        with pytest.raises(errors.PhaseFailed, match=f": {path}: ") as failed:
            await box.sandbox.run_phase(asked(prepare=[restore]), [transfer.from_archive(archive)])
        assert failed.value.reason == "Prepare"


@case
async def an_artifact_redirects_no_other(box: Box) -> None:
    folder = await _plant(box)
    archive, _ = await _packed(box, sandbox.Root(folder, "."))
    for path in ("there/l/x", "there", "."):
        into = [phases.Restore(f"{box.folder}/{name}", "directory", None, **LIMITS) for name in ("there", path)]
        with pytest.raises(errors.PhaseFailed) as failed:
            await box.sandbox.run_phase(asked(prepare=into), [transfer.from_archive(archive)] * 2)
        assert failed.value.reason == "Prepare"
    into = [
        phases.Restore(f"{box.folder}/{name}", "directory", None, **LIMITS)
        for name in ("there", "way/x", "there/sub/y")
    ]
    await box.sandbox.run_phase(asked(prepare=into), [transfer.from_archive(archive)] * 3)


@case
async def an_archive_that_is_no_file_or_folder_is_refused(box: Box) -> None:
    def link(tar: transfer.TarWriter) -> None:
        tar.symlink("f", "g")

    def climbing(tar: transfer.TarWriter) -> None:
        tar.symlink("../f", "g")

    for kind, payload, reason in (
        ("file", files(), "Unpack"),
        ("file", files(a=b"", b=b""), "Unpack"),
        ("file", link, "Unpack"),
        ("directory", climbing, "Unpack"),
        ("directory", files(**{f"f{index}": b"" for index in range(101)}), "Unpack"),
        ("directory", files(a=bytes(1 << 20), b=b"x"), "Unpack"),
        ("file", files(a=b"x"), "Digest"),
    ):
        restore = phases.Restore(f"{box.folder}/x", kind, "0" * 64 if reason == "Digest" else None, **LIMITS)
        with pytest.raises(errors.PhaseFailed, match=f"{box.folder}/x: ") as failed:
            await box.sandbox.run_phase(asked(prepare=[restore]), [payload])
        assert failed.value.reason == reason


@case
async def nothing_is_done_if_the_image_has_the_file(box: Box) -> None:
    folder = f"{box.folder}/suite"
    guard = f"{folder}/test.sh"
    prepare = [
        phases.Reset(folder, unless=guard),
        phases.Unpack(folder, unless=guard),
        phases.Unpack(folder, unless=guard),
    ]
    read = [phases.Read(guard, 10), phases.Read(f"{folder}/more", 10)]
    given = [files(**{"test.sh": b"given"}), files(more=b"more")]
    for _ in range(2):  # the second time what the first one brought is there, which is not the image's
        done = await box.sandbox.run_phase(asked(prepare=prepare, read=read), given)
        assert [file.content for file in done.files.values()] == [b"given", b"more"]
        assert not any("unless" in result for result in done.prepared)
    shipped = f"{folder}/more"
    prepare = [phases.Reset(folder, unless=shipped), phases.Unpack(folder, unless=shipped)]
    done = await box.sandbox.run_phase(asked(prepare=prepare, read=read), [files(**{"test.sh": b"other"})])
    assert [file.content for file in done.files.values()] == [b"given", b"more"]
    assert [(result["op"], result["unless"]) for result in done.prepared] == [("reset", True), ("unpack", True)]
    assert done.prepared[1]["entries"] == 1
    wrong = [phases.Unpack(folder, "0" * 64, unless=shipped)]
    with pytest.raises(errors.PhaseFailed) as failed:
        await box.sandbox.run_phase(asked(prepare=wrong), [files(x=b"")])
    assert failed.value.reason == "Digest"


@pytest.mark.parametrize("name", [pytest.param(name, id=name.replace("_", "-")) for name in CASES])
@pytest.mark.parametrize(
    "where", ["model", "binary", pytest.param("pod", marks=[pytest.mark.cluster, pytest.mark.timeout(300)])]
)
def test_artifacts(where: str, name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    match where:
        case "model":
            boxes.in_model(CASES[name], tmp_path)
        case "binary":
            boxes.on_this_machine(CASES[name], request.getfixturevalue("helper"), tmp_path)
        case _:
            pin = request.getfixturevalue("pod")
            boxes.in_a_pod(CASES[name], request.getfixturevalue("kubeconfig"), pin, tmp_path)
