"""A task folder as manifests: a TaskRun, and beside it a ConfigMap when the files do not fit into the run.

Guarantees: the same arguments give the same manifests, byte for byte; what the operator unpacks is the folder, its
x bits included; nothing is given back that the API server would refuse for its size. Pure: files come from a
`contract.folder.Folder`.

Limits: an object written by client-side `kubectl apply` is repeated in an annotation, and annotations hold 256 KiB;
a ConfigMap holds 1 MiB; the API server's store takes objects of 1.5 MiB.
"""

import base64
import gzip
import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, BinaryIO, cast

from taskfold.api import names
from taskfold.api.common import API_VERSION, MAX_RUN_NAME
from taskfold.api.reasons import Reason
from taskfold.api.rules import MAX_PATH
from taskfold.api.task_source import ARCHIVE_BYTES, ARCHIVE_KEY, EXECUTABLE_MAGIC, MAX_FILE_TEXT, MAX_FILES
from taskfold.build.refused import Refused
from taskfold.contract import digest, folder

Json = dict[str, Any]

INLINE_BYTES = 200 * 1024
"""A larger run gets its files from a ConfigMap: room for the annotation, and for people who read the object."""
CLIENT_SIDE_BYTES = 262_144 - 1024
"""The limit of all annotations, less the annotation's name and the namespace that kubectl fills in."""
CONFIG_MAP_BYTES = 1_048_576
OBJECT_BYTES = 1_400_000
"""Less than etcd's limit of a request, because the API server adds the fields' managers."""
SUFFIX_LENGTH = 5
_KUBECTL_ESCAPES = "<>&\u2028\u2029"
_TEXT_CONTROLS = {"\t", "\n"}


class From(StrEnum):
    """Where the task's files stand in the manifests."""

    AUTO = "auto"
    INLINE = "inline"
    CONFIGMAP = "configmap"


@dataclass(frozen=True)
class Wanted:
    """What to make manifests of. `spec`: further fields of the run's spec. `namespace` None: left to kubectl.

    `path`: where in `files` the task lies, beside what its dataset adds; None: they are the task's alone.
    """

    name: str
    namespace: str | None
    task_id: str
    files: folder.Folder
    agent: Json
    source: From = From.AUTO
    spec: Mapping[str, Any] | None = None
    path: str | None = None


@dataclass(frozen=True)
class Rendered:
    """The manifests. `server_side`: too large for client-side apply."""

    run: Json
    config_map: Json | None
    server_side: bool

    @property
    def objects(self) -> tuple[Json, ...]:
        """In the order in which they are to be created."""
        return (self.run,) if self.config_map is None else (self.config_map, self.run)


def build(wanted: Wanted) -> Rendered:
    """The manifests. Refused when the files fit neither into a run nor into a ConfigMap."""
    obstacle = "configmap was asked for" if wanted.source is From.CONFIGMAP else not_inline(wanted.files)
    if not obstacle:
        run = _run(wanted, {"inline": inline(wanted.files)})
        size = json_bytes(run)
        limit = OBJECT_BYTES if wanted.source is From.INLINE else INLINE_BYTES
        if size <= limit:
            return Rendered(run, None, size > CLIENT_SIDE_BYTES)
        obstacle = f"the run would be {size:,} bytes long, more than {limit:,}"
    if wanted.source is From.INLINE:
        remedy = "Take --from auto, which keeps them in a ConfigMap as task.tar.gz."
        raise Refused(Reason.INVALID_TASK, f"the files cannot stand in the run: {obstacle}. {remedy}")
    config_map = _config_map(wanted)
    run = _run(wanted, {"configMap": {"name": config_map["metadata"]["name"]}})
    return Rendered(run, config_map, json_bytes(config_map) > CLIENT_SIDE_BYTES)


def object_name(text: str, limit: int = MAX_RUN_NAME) -> str:
    """`text` as a DNS label; what is cut off is told apart by a hash."""
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "task"
    if len(label) <= limit:
        return label
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{label[: limit - 9].rstrip('-')}-{mark}"


def unique_name(text: str, suffix: str) -> str:
    """The name of one run of many."""
    return f"{object_name(text, MAX_RUN_NAME - len(suffix) - 1)}-{suffix}"


def json_bytes(manifest: Json) -> int:
    """How long kubectl's annotation of this manifest is: compact JSON with `<`, `>` and `&` escaped."""
    text = json.dumps(manifest, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode()) + 5 * sum(text.count(mark) for mark in _KUBECTL_ESCAPES)


def _run(wanted: Wanted, source: Json) -> Json:
    path = {"path": wanted.path} if wanted.path is not None else {}
    spec = {"task": {"id": wanted.task_id, **source, **path}, "agent": wanted.agent, **(wanted.spec or {})}
    metadata = _metadata(wanted, wanted.name)
    return {"apiVersion": API_VERSION, "kind": "TaskRun", "metadata": metadata, "spec": spec}


def _config_map(wanted: Wanted) -> Json:
    """Immutable like the run that reads it: other files need another run."""
    content = _archive(wanted.files)
    if len(content) > CONFIG_MAP_BYTES:
        raise _too_large(f"is {len(content):,} bytes long as {ARCHIVE_KEY}, and a ConfigMap holds 1,048,576")
    metadata = _metadata(wanted, f"{wanted.name}-task")
    metadata["labels"] = {names.USABLE: "true"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        "binaryData": {ARCHIVE_KEY: base64.b64encode(content).decode()},
    }


def _metadata(wanted: Wanted, name: str) -> Json:
    return {"name": name} | ({"namespace": wanted.namespace} if wanted.namespace else {})


def not_inline(files: folder.Folder) -> str:
    """Why these files cannot stand in an object, which has no modes and bounds of its own; "" if they can."""
    entries = files.entries()
    if len(entries) > MAX_FILES:
        return f"there are {len(entries):,} of them, and a run holds {MAX_FILES}"
    for entry in entries:
        if len(entry.path) > MAX_PATH:
            return f"the path {entry.path[:40]}… is longer than {MAX_PATH} characters"
        if entry.size > MAX_FILE_TEXT:
            return f"{entry.path} is {entry.size:,} bytes long, and a run holds {MAX_FILE_TEXT:,} of a file"
        with files.open(entry.path) as stream:
            magic = stream.read(4).startswith(EXECUTABLE_MAGIC)
        if magic != entry.executable:
            state = "is executable without" if entry.executable else "is not executable but has"
            return f"{entry.path} {state} a #! line, and an object keeps no modes"
    return ""


def inline(files: folder.Folder) -> Json:
    texts: dict[str, str] = {}
    binaries: dict[str, str] = {}
    for entry in files.entries():
        content = files.read(entry.path, MAX_FILE_TEXT)
        text = _text(content)
        if text is None:
            binaries[entry.path] = base64.b64encode(content).decode()
        else:
            texts[entry.path] = text
    return {"files": texts} | ({"binaryFiles": binaries} if binaries else {})


def _text(content: bytes) -> str | None:
    """The content as text if a manifest can show it; a carriage return does not survive every editor."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    plain = all(character.isprintable() or character in _TEXT_CONTROLS or character > "\x9f" for character in text)
    return text if plain and "\ufeff" not in text else None


def _archive(files: folder.Folder) -> bytes:
    """The folder's snapshot, compressed: no times, no owners, no name."""
    size = sum(entry.size for entry in files.entries())
    if size > ARCHIVE_BYTES:
        raise _too_large(f"holds {size:,} bytes, and a ConfigMap's archive may hold {ARCHIVE_BYTES:,}")
    out = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=9, mtime=0) as stream:
        digest.write_tar(files, cast("BinaryIO", stream))
    return out.getvalue()


def _too_large(problem: str) -> Refused:
    remedy = "Put bulk data into the image, or download it there; sources for larger folders come later."
    return Refused(Reason.INVALID_TASK, f"the task folder {problem}. {remedy}")
