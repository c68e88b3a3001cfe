"""An image: layers and a configuration, kept in the cache under a hash of what it is made from."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.images.layers import Layer

DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
_DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
_DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class ImageError(Exception):
    """An image could not be made; the message has the reason."""


@dataclass(frozen=True)
class Image:
    folder: Path
    manifest: bytes
    config: dict[str, Any]

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.manifest).hexdigest()}"

    @property
    def blobs(self) -> list[tuple[str, Path]]:
        """Digest and file of everything the manifest names, the configuration last."""
        content = json.loads(self.manifest)
        return [(part["digest"], self.blob(part["digest"])) for part in [*content["layers"], content["config"]]]

    @property
    def layers(self) -> list[Layer]:
        parts = json.loads(self.manifest)["layers"]
        diff_ids = self.config["rootfs"]["diff_ids"]
        return [Layer(part["digest"], diff_id, part["size"]) for part, diff_id in zip(parts, diff_ids, strict=True)]

    def blob(self, digest: str) -> Path:
        return self.folder / digest.removeprefix("sha256:")


# What makes an image: given an empty folder to work in, its own layer file (or None) and the `config` part.
Recipe = Callable[[Path], tuple[Layer | None, Path | None, dict[str, Any]]]


def key_of(*parts: object) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update((part if isinstance(part, bytes) else repr(part).encode()) + b"\0")
    return digest.hexdigest()[:16]


def ensure(cache: Path, name: str, key: str, recipe: Recipe, base: Image | None = None) -> Image:
    """The image `name` from the cache, or made now: at most one layer on top of `base`."""
    folder = cache / "images" / f"{name}-{key}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            work = temporary / "work"
            work.mkdir()
            layer, file, settings = recipe(work)
            if layer and file:
                file.rename(temporary / layer.digest.removeprefix("sha256:"))
            shutil.rmtree(work)
            _write(temporary, base, [layer] if layer else [], settings)
            temporary.chmod(0o755)
            temporary.rename(folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return _read(folder)


def _read(folder: Path) -> Image:
    manifest = (folder / "manifest.json").read_bytes()
    digest = json.loads(manifest)["config"]["digest"].removeprefix("sha256:")
    return Image(folder, manifest, json.loads((folder / digest).read_text()))


def _write(folder: Path, base: Image | None, own: Sequence[Layer], settings: dict[str, Any]) -> None:
    layers = [*(base.layers if base else []), *own]
    for layer in base.layers if base else []:
        # A hard link: the base's blob costs no space twice, and may leave the cache first.
        (folder / layer.digest.removeprefix("sha256:")).hardlink_to(base.blob(layer.digest))  # type: ignore[union-attr]
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "hack/images"} for _ in layers],
        },
        sort_keys=True,
    ).encode()
    digest = hashlib.sha256(config).hexdigest()
    (folder / digest).write_bytes(config)
    manifest = {
        "schemaVersion": 2,
        "mediaType": DOCKER,
        "config": {"mediaType": _DOCKER_CONFIG, "digest": f"sha256:{digest}", "size": len(config)},
        "layers": [{"mediaType": _DOCKER_LAYER, "digest": part.digest, "size": part.size} for part in layers],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
