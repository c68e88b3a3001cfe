"""Users as the helper finds them: in the container's own files, by docker's rule (`helper/users.go`)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.world.files import FileSystem


class UnknownUserError(LookupError):
    """A name that the container does not know."""


@dataclass(frozen=True)
class Identity:
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    home: str = "/"
    name: str = ""

    @property
    def login(self) -> dict[str, str]:
        """The variables that a login sets; without a name only HOME."""
        return {"HOME": self.home, **({"USER": self.name, "LOGNAME": self.name} if self.name else {})}

    def wire(self) -> dict[str, Any]:
        return {"uid": self.uid, "gid": self.gid, "groups": list(self.groups), "home": self.home}


def lookup(files: FileSystem, user: Mapping[str, Any]) -> Identity:
    """Who `user` of a request is in this container."""
    name, uid, own = user.get("name"), user.get("uid"), user.get("group")
    found = next(
        (line for line in _lines(files, "/etc/passwd", 7) if (line[0] == name if name else int(line[2]) == uid)), None
    )
    if name is not None and found is None:
        raise UnknownUserError(f'unknown user "{name}"')
    number, gid, home = (int(found[2]), int(found[3]), found[5] or "/") if found else (int(uid or 0), 0, "/")
    groups: tuple[int, ...] = ()
    if own is not None:
        gids = [int(line[2]) for line in _lines(files, "/etc/group", 4) if line[0] == own]
        if not gids:
            raise UnknownUserError(f'unknown user "{name if name is not None else uid}:{own}"')
        return Identity(number, gids[0], (), home, found[0] if found else "")
    if found and user.get("gid") is None:
        members = [line for line in _lines(files, "/etc/group", 4) if found[0] in line[3].split(",")]
        groups = tuple(dict.fromkeys(int(line[2]) for line in members))
    if user.get("gid") is not None:
        gid = user["gid"]
    if user.get("groups") is not None:
        groups = tuple(user["groups"])
    return Identity(number, gid, groups, home, found[0] if found else "")


def _lines(files: FileSystem, path: str, fields: int) -> Iterator[list[str]]:
    try:
        text = files.read(path).decode(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        found = line.strip().split(":")
        if len(found) >= fields and found[2].isdecimal() and (fields == 4 or found[3].isdecimal()):
            yield found
