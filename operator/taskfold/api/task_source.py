"""`spec.task`: where a task folder comes from. Exactly one source; beside it the path inside the source and
the row's data.

Also the source of a VerifierRun's own tests, which has the same five variants. References stay inside the
run's namespace.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from .common import Key, Model, Name, SourceReference
from .rules import MAX_PATH, NOT_RELATIVE, exactly_one, relative_path, rule, rules

MAX_FILES = 512
MAX_FILE_TEXT = 1_048_576  # an object may hold about 1.5 MiB in all

ARCHIVE_KEY = "task.tar.gz"
"""The key of a ConfigMap whose value is the whole folder."""
ARCHIVE_BYTES = 64 * 1024 * 1024
"""What a ConfigMap's megabyte may unpack to."""
EXECUTABLE_MAGIC = (b"#!", b"\x7fELF")
"""Objects of the API have no modes: what the kernel would start is executable."""

_PATHS_ARE_RELATIVE = rules(rule(f"self.all(path, {relative_path('path')})", NOT_RELATIVE))
_PATH_IS_RELATIVE = rules(rule(relative_path("self"), NOT_RELATIVE))

FileText = Annotated[str, Field(max_length=MAX_FILE_TEXT)]
BASE64 = r"^[A-Za-z0-9+/]*={0,2}$"
"""Not `format: byte`: a rule that compares two versions of the spec reads such text as base64url there, and fails at
every `/` and `+`.
"""
Base64Text = Annotated[str, Field(max_length=MAX_FILE_TEXT * 4 // 3 + 4, json_schema_extra={"pattern": BASE64})]


class InlineSource(Model):
    """The task folder's files, written in the object itself."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.files) || !has(self.binaryFiles) || self.files.all(path, !(path in self.binaryFiles))",
                "a path stands in files or in binaryFiles, not in both",
            )
        )
    )

    files: dict[str, FileText] = Field(
        default_factory=dict,
        max_length=MAX_FILES,
        description=(
            "Text files of the task folder: relative path to content, for example tests/test.sh. At most "
            "512 files; the whole "
            "object must stay below about 1.5 MiB, and below 256 KiB for client-side kubectl apply."
        ),
        json_schema_extra=_PATHS_ARE_RELATIVE,
    )
    binary_files: dict[str, Base64Text] = Field(
        default_factory=dict,
        max_length=MAX_FILES,
        description=(
            "Files that are not text: relative path to content in base64. A path may not stand in `files` too."
        ),
        json_schema_extra=_PATHS_ARE_RELATIVE,
    )


class KeyToPath(Model):
    """One key of a ConfigMap and the file it becomes."""

    key: Key = Field(description="Key inside the ConfigMap.")
    path: str = Field(
        min_length=1,
        max_length=MAX_PATH,
        description="Relative path of the file in the task folder, for example tests/test.sh.",
        json_schema_extra=_PATH_IS_RELATIVE,
    )


class ConfigMapSource(Model):
    """The task folder's files, kept in a ConfigMap of the run's namespace."""

    name: Name = Field(description="Name of the ConfigMap, in the run's own namespace.")
    items: list[KeyToPath] | None = Field(
        default=None,
        max_length=MAX_FILES,
        description=(
            "Which key becomes which file. Unset: a key task.tar.gz is unpacked as the whole folder, else "
            "each key is a file "
            "name at the folder's top. At most 512 entries."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]},
    )


class ArchiveSource(Model):
    """A .tar.gz of the task folder behind a URL, fixed by its checksum."""

    url: str = Field(
        max_length=2048, pattern=r"^(https|s3)://.+", description="Address of the archive: https:// or s3://."
    )
    sha256: str = Field(
        max_length=64,
        pattern=r"^[0-9a-f]{64}$",
        description="Checksum of the archive's bytes, 64 hexadecimal digits.",
    )
    secret_ref: SourceReference | None = Field(
        default=None, description="Secret with the credentials for the address. Unset: the address is public."
    )


class OciSource(Model):
    """The task folder as an OCI artifact or image in a registry."""

    reference: str = Field(
        min_length=1,
        max_length=1024,
        description="Reference of the artifact, best with a digest: registry.example/tasks@sha256:….",
    )
    pull_secret: SourceReference | None = Field(
        default=None,
        description="Secret of type kubernetes.io/dockerconfigjson for the registry. Unset: public.",
    )


class GitSource(Model):
    """The task folder in a git repository."""

    url: str = Field(max_length=2048, pattern=r"^https://.+", description="https address of the repository.")
    ref: str = Field(min_length=1, max_length=255, description="Branch, tag or, best, the full commit id to check out.")
    secret_ref: SourceReference | None = Field(
        default=None,
        description="Secret with the credentials for the repository. Unset: the repository is public.",
    )


_EXACTLY_ONE = exactly_one(("inline", "configMap", "archive", "oci", "git"))


class FolderSource(Model):
    """A folder from exactly one source."""

    model_config = ConfigDict(json_schema_extra=_EXACTLY_ONE)

    inline: InlineSource | None = Field(
        default=None, description="The files themselves, in this object. For small tasks and first steps."
    )
    config_map: ConfigMapSource | None = Field(
        default=None, description="The files from a ConfigMap in the run's namespace, up to 1 MiB."
    )
    archive: ArchiveSource | None = Field(
        default=None, description="A .tar.gz behind an https:// or s3:// address. Not supported yet."
    )
    oci: OciSource | None = Field(default=None, description="An OCI artifact in a registry. Not supported yet.")
    git: GitSource | None = Field(default=None, description="A git repository. Not supported yet.")
    path: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description=(
            "Folder inside the source that is the task folder, for example tasks/fix-bug. Unset: the source's top."
        ),
        json_schema_extra=_PATH_IS_RELATIVE,
    )


class TaskSource(FolderSource):
    """The task of a run: a folder from exactly one source, and how the row names it."""

    model_config = ConfigDict(json_schema_extra=_EXACTLY_ONE)

    id: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description=("Name of the task in results. Unset: the folder's name from `path`, else the name of the run."),
    )
    data: dict[str, Any] | None = Field(
        default=None,
        description=(
            "The row's own fields, which a Python verifier gets as task_data. The task's task_data.json must equal "
            "them; a folder without one takes them in its place."
        ),
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
