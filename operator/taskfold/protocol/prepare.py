"""The operations that prepare a phase, as the helper carries them out, in order, before anything starts."""

import base64
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class User:
    """Who a program runs as: by name (looked up in the sandbox) or by number; `group` is a name, `gid` a number."""

    name: str | None = None
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] | None = None
    group: str | None = None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"uid": self.uid} if self.name is None else {"name": self.name}
        if self.group is not None:
            wire["group"] = self.group
        if self.gid is not None:
            wire["gid"] = self.gid
        if self.groups is not None:
            wire["groups"] = list(self.groups)
        return wire


@dataclass(frozen=True)
class Tools:
    """The sandbox must have these programs on its PATH."""

    names: tuple[str, ...]
    required: bool = False

    def to_wire(self) -> dict[str, Any]:
        return {"op": "tools", "names": list(self.names), "required": self.required}


@dataclass(frozen=True)
class CheckUser:
    """The sandbox must know the names of this user and of its group."""

    user: User
    required: bool = True

    def to_wire(self) -> dict[str, Any]:
        return {"op": "user", **self.user.to_wire(), "required": self.required}


@dataclass(frozen=True)
class UserNamespace:
    """The sandbox must be in a user namespace that does not map all users: the proof of the profile userns."""

    def to_wire(self) -> dict[str, Any]:
        return {"op": "userNamespace"}


@dataclass(frozen=True)
class Reset:
    """Empty a folder that belongs to housekeeping; `keep` names top-level regular files that stay.

    `unless`: nothing is done if that path is a regular file of the image, and the result says so.
    """

    path: str
    keep: tuple[str, ...] = ()
    unless: str | None = None

    def to_wire(self) -> dict[str, Any]:
        return {"op": "reset", "path": self.path, "keep": list(self.keep), **_unless(self.unless)}


@dataclass(frozen=True)
class Remove:
    """Nothing may be at a path of housekeeping's; whatever is there goes."""

    path: str

    def to_wire(self) -> dict[str, Any]:
        return {"op": "remove", "path": self.path}


@dataclass(frozen=True)
class Directory:
    """A folder must exist. `existing`: `keep` leaves mode and owner of one that is there, `own` sets them.

    `links`: `replace` puts folders where links or files are in the way, for housekeeping's own paths; `follow` goes
    where the image's links lead and removes nothing (a file in the way fails the phase with `Prepare`), for paths
    of the image before anything untrusted has run.
    """

    path: str
    mode: str = "0755"
    user: User | None = None
    existing: Literal["keep", "own"] = "own"
    links: Literal["replace", "follow"] = "replace"

    def to_wire(self) -> dict[str, Any]:
        return {
            "op": "directory",
            "path": self.path,
            "mode": self.mode,
            "user": self.user.to_wire() if self.user else None,
            "existing": self.existing,
            "links": self.links,
        }


@dataclass(frozen=True)
class Move:
    """Rename what lies in `path` into the folder `to`, root's alone; `keep` as of a `Reset`. Best effort: `error`."""

    path: str
    to: str
    keep: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        return {"op": "move", "path": self.path, "to": self.to, "keep": list(self.keep)}


@dataclass(frozen=True)
class Unpack:
    """Take the next archive of the payload and unpack it below `path`.

    `user`: whose the files and the folders made for them are; None: root's. `links`: `follow` goes where links of
    root's lead and fails with `Prepare` at any other; an empty path is the image's own working directory then.
    `unless`: the archive is proven and thrown away if that path is a regular file of the image.
    """

    path: str
    digest: str | None = None
    max_bytes: int = 4 * 1024**3
    max_entries: int = 200_000
    file_mode: Literal["normalise", "keep"] = "normalise"
    user: User | None = None
    links: Literal["replace", "follow"] = "replace"
    unless: str | None = None

    def to_wire(self) -> dict[str, Any]:
        more: dict[str, Any] = {"user": self.user.to_wire()} if self.user is not None else {}
        if self.links != "replace":
            more["links"] = self.links
        return {
            **more,
            **_unless(self.unless),
            "op": "unpack",
            "path": self.path,
            "digest": self.digest,
            "maxBytes": self.max_bytes,
            "maxEntries": self.max_entries,
            "fileMode": self.file_mode,
        }


@dataclass(frozen=True)
class Restore:
    """Take the next archive of the payload and put what it holds at `path`, in place of what is there.

    For a sandbox whose image is trusted while the archive is not: it comes from an agent's. `path` is absolute and may
    lead over links of the image; at or above /tests, /logs/verifier, /proc, /sys, /dev or /.taskfold, or below one, it
    ends the phase with `Prepare` (C31). `type`: a folder's members are below `path`, a file's archive has that one
    member. Owners, modes without setuid and setgid, and times are kept; devices, FIFOs, and links that leave the
    artifact are left out and listed.
    """

    path: str
    type: Literal["file", "directory"]
    digest: str | None
    max_bytes: int
    max_entries: int

    def to_wire(self) -> dict[str, Any]:
        return {
            "op": "restore",
            "path": self.path,
            "type": self.type,
            "digest": self.digest,
            "maxBytes": self.max_bytes,
            "maxEntries": self.max_entries,
        }


@dataclass(frozen=True)
class Write:
    """Write one small file."""

    path: str
    content: bytes
    mode: str = "0644"

    def to_wire(self) -> dict[str, Any]:
        encoded = base64.b64encode(self.content).decode("ascii")
        return {"op": "write", "path": self.path, "mode": self.mode, "base64": encoded}


PrepareOp = Tools | CheckUser | UserNamespace | Reset | Remove | Directory | Move | Unpack | Restore | Write


def _unless(path: str | None) -> dict[str, str]:
    return {"unless": path} if path is not None else {}
