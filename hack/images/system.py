"""The two images the cluster itself needs: the pause image and CoreDNS, each one static binary."""

from pathlib import Path
from typing import Any

from hack.images import image, layers


def single_binary(
    cache: Path,
    name: str,
    binary: Path,
    path: str,
    settings: dict[str, Any],
    *more: layers.Entry,
    mode: int = 0o755,
    group: int = 0,
    capability: bytes = b"",
) -> image.Image:
    """An image from scratch with one static `binary` at `path`, which is its entry point."""
    entries = [layers.File(path, binary, mode, group=group, capability=capability), *more]

    def recipe(work: Path) -> tuple[layers.Layer, Path, dict[str, Any]]:
        file = work / "layer.tar.gz"
        return layers.from_entries(file, entries), file, {"Entrypoint": [path], "WorkingDir": "/", **settings}

    # The binary lies in a folder whose name is the hash of its sources.
    key = image.key_of(str(binary.resolve().parent.name), binary.stat().st_size, path, settings, more, mode, group)
    if capability:
        key = image.key_of(key, capability)
    return image.ensure(cache, name, key, recipe)


BIND_LOW_PORTS = bytes.fromhex("01000002" + "00040000" + "00000000" * 3)
"""CAP_NET_BIND_SERVICE, permitted and effective, as the kernel keeps it (revision 2). Upstream's CoreDNS has it: it is
not started in a container that may not have that capability, and this one must not be either."""


def images(cache: Path, programs: dict[str, Path]) -> dict[str, image.Image]:
    """Images by the file name of their program."""
    return {
        "pause": single_binary(cache, "pause", programs["pause"] / "pause", "/pause", {"User": "65535:65535"}),
        "coredns": single_binary(
            cache,
            "coredns",
            programs["coredns"] / "coredns",
            "/coredns",
            {"User": "65532:65532"},
            capability=BIND_LOW_PORTS,
        ),
    }
