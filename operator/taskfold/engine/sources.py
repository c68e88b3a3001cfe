"""Where a run's task folder and variables come from: the object itself, ConfigMaps and Secrets of its namespace.

Guarantees: only objects that the run names, by name, in its own namespace; every size is bounded; a missing object
is a wait, a forbidden or malformed one an answer that names it and what to do.
"""

import base64
import binascii
import contextlib
import gzip
import io
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import BinaryIO

from taskfold.api import names
from taskfold.api.common import ConfigMapKeySelector, EnvFromSource, EnvVar, SourceReference
from taskfold.api.reasons import Reason
from taskfold.api.settings import SecretSettings
from taskfold.api.task_source import (
    ARCHIVE_BYTES,
    ARCHIVE_KEY,
    EXECUTABLE_MAGIC,
    ConfigMapSource,
    FolderSource,
    InlineSource,
    TaskSource,
)
from taskfold.contract import effective
from taskfold.contract import errors as contract_errors
from taskfold.contract import folder as folders
from taskfold.effects import client as api
from taskfold.effects import errors, pull_secrets
from taskfold.engine.outcome import Refused, Waiting

CHUNK = 256 * 1024


class Sources:
    """Reads what runs name."""

    def __init__(self, client: api.Client, secrets: SecretSettings) -> None:
        self._client = client
        self._secrets = secrets

    async def folder(self, namespace: str, source: FolderSource) -> folders.Folder:
        """The folder that a source names. Raises Waiting, Refused, contract TaskError."""
        whole = await self._whole(namespace, source)
        return whole if source.path is None else _below(whole, source.path)

    async def task(self, namespace: str, source: TaskSource, *, extras: bool = True) -> folders.Folder:
        """The effective folder of a run's task: with what the row and, with `extras`, the dataset add (C25, C35).

        Raises as `folder` does.
        """
        whole = await self._whole(namespace, source)
        path = (source.path or "").strip("/")
        own = _below(whole, path) if path else whole
        root = effective.root_of(whole, path) if path and extras else None
        within = effective.read_root(whole, root) if root is not None else None
        return effective.compose(own, name=path.rpartition("/")[2], within=within, row=source.data)

    async def _whole(self, namespace: str, source: FolderSource) -> folders.Folder:
        if source.inline is not None:
            return _inline(source.inline)
        if source.config_map is not None:
            found = await self._get(api.CONFIGMAPS, namespace, source.config_map.name)
            return _config_map(found, source.config_map)
        raise Refused(Reason.INVALID_SPEC, "spec.task names no source that this version reads")

    async def variables(self, namespace: str, sources: Sequence[EnvFromSource]) -> dict[str, str]:
        """`environmentFrom` and `envFrom`: later entries win."""
        found: dict[str, str] = {}
        for source in sources:
            prefix = source.prefix or ""
            if source.config_map_ref is not None:
                values = await self._values(api.CONFIGMAPS, namespace, source.config_map_ref)
            elif source.secret_ref is not None:
                values = await self._values(api.SECRETS, namespace, source.secret_ref)
            else:
                continue
            found |= {f"{prefix}{name}": value for name, value in values.items()}
        return found

    async def secrets(self, namespace: str, sources: Sequence[SourceReference]) -> dict[str, str]:
        """`secretsFrom`: later entries win."""
        found: dict[str, str] = {}
        for source in sources:
            found |= await self._values(api.SECRETS, namespace, source)
        return found

    async def logins(self, namespace: str, names: Iterable[str]) -> list[pull_secrets.Login]:
        """What these image pull secrets hold. A pod may name one that does not exist; whoever reads a registry not."""
        found: list[pull_secrets.Login] = []
        for name in names:
            secret = await self._get(api.SECRETS, namespace, name)
            try:
                found += pull_secrets.read(secret)
            except pull_secrets.MalformedPullSecret as error:
                text = f"spec.pod.imagePullSecrets: Secret {name} {error}"
                remedy = "Make it with `kubectl create secret docker-registry`."
                raise Refused(Reason.INVALID_SPEC, f"{text}. {remedy}") from None
        return found

    async def secret_values(self, namespace: str, names: Iterable[str]) -> list[bytes]:
        """Every value of these Secrets, as bytes; those that cannot be read any more are left out."""
        found: list[bytes] = []
        for name in names:
            with contextlib.suppress(Waiting, binascii.Error):
                data = (await self._get(api.SECRETS, namespace, name)).get("data") or {}
                found += [base64.b64decode(value) for value in data.values()]
        return found

    async def env(self, namespace: str, entries: Sequence[EnvVar]) -> dict[str, str]:
        """A list of variables, values from keys included."""
        found: dict[str, str] = {}
        for entry in entries:
            if entry.value_from is None:
                found[entry.name] = entry.value or ""
                continue
            selector = entry.value_from.secret_key_ref or entry.value_from.config_map_key_ref
            if selector is None:
                continue
            resource = api.SECRETS if entry.value_from.secret_key_ref else api.CONFIGMAPS
            reference = SourceReference(name=selector.name, optional=selector.optional)
            values = await self._values(resource, namespace, reference)
            if selector.key in values:
                found[entry.name] = values[selector.key]
            elif not selector.optional:
                text = f"{_kind(resource)} {selector.name} has no key {selector.key} (wanted for {entry.name})"
                raise Waiting(Reason.SOURCE_NOT_FOUND, text)
        return found

    async def text(self, namespace: str, selector: ConfigMapKeySelector) -> str | None:
        """The value of one key; None: it may be missing, and is. Raises Waiting, Refused."""
        reference = SourceReference(name=selector.name, optional=selector.optional)
        values = await self._values(api.CONFIGMAPS, namespace, reference)
        if selector.key not in values and not selector.optional:
            text = f"ConfigMap {selector.name} in namespace {namespace} has no key {selector.key}; add it"
            raise Waiting(Reason.SOURCE_NOT_FOUND, text)
        return values.get(selector.key)

    async def _values(self, resource: api.Resource, namespace: str, source: SourceReference) -> Mapping[str, str]:
        try:
            found = await self._get(resource, namespace, source.name)
        except Waiting as waiting:
            if source.optional and waiting.reason is Reason.SOURCE_NOT_FOUND:
                return {}
            raise
        try:
            return _texts(resource, found)
        except (UnicodeDecodeError, binascii.Error):
            text = f"{_kind(resource)} {source.name} holds a value that is not UTF-8 text"
            raise Refused(Reason.INVALID_SPEC, text) from None

    async def _get(self, resource: api.Resource, namespace: str, name: str) -> api.Json:
        kind = _kind(resource)
        try:
            found = await self._client.get(resource, namespace, name)
        except errors.NotFound:
            text = f"there is no {kind} {name} in namespace {namespace}; create it"
            raise Waiting(Reason.SOURCE_NOT_FOUND, text) from None
        except errors.Forbidden as error:
            raise Waiting(Reason.SOURCE_FORBIDDEN, f"{kind} {name}: {error}") from error
        labels = found["metadata"].get("labels") or {}
        if self._secrets.require_label and labels.get(names.USABLE) != "true":
            text = (
                f"{kind} {name} may not be used by runs: it lacks a label. To allow it: "
                f"kubectl -n {namespace} label {kind.lower()} {name} {names.USABLE}=true"
            )
            raise Waiting(Reason.SOURCE_FORBIDDEN, text)
        return found


def _kind(resource: api.Resource) -> str:
    return "Secret" if resource == api.SECRETS else "ConfigMap"


def _texts(resource: api.Resource, found: api.Json) -> dict[str, str]:
    encoded = found.get("data") or {} if resource == api.SECRETS else found.get("binaryData") or {}
    texts = {name: base64.b64decode(value).decode() for name, value in encoded.items()}
    return texts if resource == api.SECRETS else {**texts, **(found.get("data") or {})}


def _inline(source: InlineSource) -> folders.Folder:
    files = {path: text.encode() for path, text in source.files.items()}
    for path, text in source.binary_files.items():
        if path in files:
            raise Refused(Reason.INVALID_SPEC, f"spec.task.inline: {path} stands in files and in binaryFiles")
        files[path] = _decoded(f"spec.task.inline.binaryFiles[{path}]", text)
    return _memory(files)


def _config_map(found: api.Json, source: ConfigMapSource) -> folders.Folder:
    data = {key: text.encode() for key, text in (found.get("data") or {}).items()}
    data |= {
        key: _decoded(f"ConfigMap {source.name}: binaryData[{key}]", text)
        for key, text in (found.get("binaryData") or {}).items()
    }
    if source.items is not None:
        missing = [item.key for item in source.items if item.key not in data]
        if missing:
            raise Waiting(Reason.SOURCE_NOT_FOUND, f"ConfigMap {source.name} has no key {', '.join(missing)}")
        return _memory({item.path: data[item.key] for item in source.items})
    if ARCHIVE_KEY in data:
        return _archive(data[ARCHIVE_KEY], f"ConfigMap {source.name}: {ARCHIVE_KEY}")
    return _memory(data)


def _archive(content: bytes, where: str) -> folders.Folder:
    """A small .tar.gz, unpacked in memory; only regular files count, links are refused."""
    with tempfile.TemporaryFile() as unpacked:
        return _members(content, where, unpacked)


def _members(content: bytes, where: str, unpacked: BinaryIO) -> folders.Folder:
    files: dict[str, tuple[bytes, bool]] = {}
    try:
        _unpack(content, where, unpacked)
        with tarfile.open(fileobj=unpacked, mode="r:") as tar:
            for entries, member in enumerate(tar):
                if entries >= folders.MAX_FILES:
                    raise folders.too_many_files()
                if member.isdir():
                    continue
                opened = tar.extractfile(member) if member.isreg() else None
                if opened is None:
                    raise Refused(Reason.INVALID_TASK, f"{where}: {member.name} is not a regular file")
                files[member.name.removeprefix("./")] = (opened.read(), bool(member.mode & 0o100))
    except (tarfile.TarError, zlib.error, OSError, EOFError) as error:
        raise Refused(Reason.INVALID_TASK, f"{where}: is not a .tar.gz archive: {error}") from error
    return folders.MemoryFolder(files)


def _unpack(content: bytes, where: str, out: BinaryIO) -> None:
    """The archive's bytes, read to their end so that gzip's checksum has been looked at, and bounded."""
    written = 0
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        while chunk := stream.read(CHUNK):
            written += out.write(chunk)
            if written > ARCHIVE_BYTES:
                text = f"{where}: unpacks to more than {ARCHIVE_BYTES:,} bytes; take another source for it"
                raise Refused(Reason.INVALID_TASK, text)
    out.seek(0)


def _decoded(where: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(Reason.INVALID_SPEC, f"{where}: is not base64; encode the file with `base64 -w0`") from None


def _memory(files: Mapping[str, bytes]) -> folders.Folder:
    return folders.MemoryFolder(
        {path: (content, content.startswith(EXECUTABLE_MAGIC)) for path, content in files.items()}
    )


def _below(whole: folders.Folder, path: str) -> folders.Folder:
    part = folders.subtree(whole, path)
    if not part.entries():
        raise contract_errors.TaskError(
            "holds no files", file=path, remedy="Write in spec.task.path where the task folder lies."
        )
    return part
