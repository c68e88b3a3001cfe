"""The image configuration on record of one run: what a pull-mode Dockerfile makes of its base.

A prebuilt `docker_image` without a Dockerfile has no record (the contract's "image configuration on record");
then there is no RecordedImage, whatever else may be known about the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taskfold.contract.dockerfile import ImageConfig


@dataclass(frozen=True)
class RecordedImage:
    """`reference` as the task writes it, pinned to `digest`; `config` has the Dockerfile's settings."""

    reference: str
    digest: str
    config: ImageConfig

    @property
    def pinned(self) -> str:
        """The reference that the pod uses: the tag may move, the run does not."""
        name = self.reference.partition("@")[0]
        head, slash, last = name.rpartition("/")
        return f"{head}{slash}{last.partition(':')[0]}@{self.digest}"

    def document(self) -> dict[str, Any]:
        """As JSON data, for the store."""
        return {
            "reference": self.reference,
            "digest": self.digest,
            "env": dict(self.config.env),
            "workdir": self.config.workdir,
            "user": self.config.user,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> RecordedImage:
        """What `document` wrote. Raises KeyError when it is something else."""
        config = ImageConfig(env=document["env"], workdir=document["workdir"], user=document["user"])
        return cls(document["reference"], document["digest"], config)
