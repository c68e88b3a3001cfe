"""Layers and names of images."""

import gzip
import hashlib
import struct
import tarfile
from pathlib import Path

import pytest
from hack.images import image, layers, registry, system


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("docker.io/library/python:3.13-slim", ("library/python", "3.13-slim")),
        ("python:3.13-slim", ("library/python", "3.13-slim")),
        ("docker.io/python:3", ("library/python", "3")),
        ("ghcr.io/taskfold/helper:0.1.0", ("taskfold/helper", "0.1.0")),
        ("taskfold-test/user", ("taskfold-test/user", "latest")),
        ("taskfold.dev/pause:1", ("pause", "1")),
        ("localhost:5000/a/b:c", ("a/b", "c")),
        ("localhost:5000/a/b", ("a/b", "latest")),
    ],
)
def test_repository_of(name: str, expected: tuple[str, str]) -> None:
    assert registry.repository_of(name) == expected


ENTRIES = (
    layers.File("etc/app/config", b"x", 0o600, 5, 6),
    layers.Link("bin/app", "/app"),
    layers.Removal("usr/bin/bash"),
    layers.Folder("home/app", 0o700, 7, 8),
)


def test_a_layer_has_what_was_asked_for(tmp_path: Path) -> None:
    layers.from_entries(tmp_path / "l", ENTRIES)
    with tarfile.open(tmp_path / "l") as tar:
        names = tar.getnames()
        config, home = tar.getmember("etc/app/config"), tar.getmember("home/app")
    assert names == [
        "etc",
        "etc/app",
        "etc/app/config",
        "bin",
        "bin/app",
        "usr/bin/.wh.bash",
        "home",
        "home/app",
    ]
    assert (config.mode, config.uid, config.gid, config.mtime) == (0o600, 5, 6, 0)
    assert (home.mode, home.uid, home.gid) == (0o700, 7, 8)


def test_a_file_of_a_layer_may_have_a_capability(tmp_path: Path) -> None:
    entry = layers.File("coredns", b"", 0o755, capability=system.BIND_LOW_PORTS)
    layers.from_entries(tmp_path / "l", [entry])
    with tarfile.open(tmp_path / "l") as tar:
        found = tar.getmember("coredns").pax_headers["SCHILY.xattr.security.capability"].encode()
    assert struct.unpack("<5I", found) == (0x02000001, 1 << 10, 0, 0, 0)  # revision 2, effective; bit 10


def test_equal_content_has_equal_digests_which_are_those_of_the_bytes(tmp_path: Path) -> None:
    first, second = (layers.from_entries(tmp_path / name, ENTRIES) for name in ("a", "b"))
    assert first == second
    packed = (tmp_path / "a").read_bytes()
    assert first.digest == f"sha256:{hashlib.sha256(packed).hexdigest()}"
    assert first.diff_id == f"sha256:{hashlib.sha256(gzip.decompress(packed)).hexdigest()}"
    assert first.size == len(packed)


def test_a_root_file_system_loses_devices_and_the_unwanted(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        for name, kind in (
            ("./", tarfile.DIRTYPE),
            ("./dev/null", tarfile.CHRTYPE),
            ("./etc", tarfile.DIRTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type = kind
            tar.addfile(member)
        tar.addfile(tarfile.TarInfo("./etc/keep"))
        tar.addfile(tarfile.TarInfo("./etc/drop"))
    layers.from_root_file_system(tmp_path / "l", tmp_path / "root.tar", lambda m: m.name != "etc/drop")
    with tarfile.open(tmp_path / "l") as tar:
        assert tar.getnames() == ["etc", "etc/keep"]


def test_an_image_on_a_base_has_its_layers_first_and_is_made_once(tmp_path: Path) -> None:
    made = []

    def recipe(work: Path) -> tuple[layers.Layer, Path, dict[str, object]]:
        made.append(work)
        file = work / "l"
        return layers.from_entries(file, [layers.File(f"n{len(made)}", b"x")]), file, {"User": "1:2"}

    base = image.ensure(tmp_path, "base", "1", recipe)
    top = image.ensure(tmp_path, "top", "1", recipe, base)
    again = image.ensure(tmp_path, "top", "1", recipe, base)
    assert len(made) == 2
    assert again.digest == top.digest
    assert top.layers[0] == base.layers[0]
    assert top.config["config"] == {"User": "1:2"}
    for digest, path in top.blobs:
        assert digest == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def test_an_interrupted_recipe_leaves_nothing(tmp_path: Path) -> None:
    def recipe(work: Path) -> tuple[None, None, dict[str, object]]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        image.ensure(tmp_path, "base", "1", recipe)
    assert not list((tmp_path / "images").iterdir())
