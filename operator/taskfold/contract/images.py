"""The image configuration on record of one run: its base's, and what the task's Dockerfile makes of it.

A prebuilt `docker_image` without a Dockerfile has no record (the contract's "image configuration on record");
then there is no RecordedImage, whatever else may be known about the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from taskfold.contract.dockerfile import ImageConfig


@dataclass(frozen=True)
class RecordedImage:
    """`reference` as the task writes it, pinned to `digest`.

    `config` has the Dockerfile's settings; `base` is the image's own, with which its RUN lines begin.
    """

    reference: str
    digest: str
    config: ImageConfig
    base: ImageConfig = field(default_factory=ImageConfig)

    @property
    def pinned(self) -> str:
        """The reference that the pod uses: the tag may move, the run does not."""
        name = self.reference.partition("@")[0]
        head, slash, last = name.rpartition("/")
        return f"{head}{slash}{last.partition(':')[0]}@{self.digest}"

    def document(self) -> dict[str, Any]:
        """As JSON data, for the store."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> RecordedImage:
        """What `document` wrote. Raises KeyError or TypeError when it is something else."""
        config, base = _config(document["config"]), _config(document["base"])
        return cls(document["reference"], document["digest"], config, base)


def _config(document: Mapping[str, Any]) -> ImageConfig:
    lists = {name: tuple(document[name]) for name in ("entrypoint", "cmd", "shell")}
    return ImageConfig(**{**document, **lists})
