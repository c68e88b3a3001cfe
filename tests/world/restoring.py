"""Artifacts into a modelled file system: `restore` in a phase.

Guarantees, as `helper/restore.go` and `restored.go` give them: nothing is put where the verifier's or the kernel's
files are; what was at the place is gone; no link that an archive brought is followed, also on the way to another.
"""

import errno
from collections.abc import Callable, Mapping
from typing import Any

from tests.world import files, unpacking
from tests.world.copies import CopyError
from tests.world.pipes import Pipe

GUARDED = ("/tests", "/logs/verifier", "/proc", "/sys", "/dev", "/.taskfold")


class Restorer:
    """The restores of one phase."""

    def __init__(self, found: files.FileSystem) -> None:
        self._files = found
        self._restored: list[str] = []

    async def restore(self, operation: Mapping[str, Any], stdin: Pipe, beat: Callable[[], None]) -> dict[str, Any]:
        """One framed archive, put at the operation's path; what the result says about it."""
        path = operation["path"]
        try:
            folder, name, at = self._place(path)
            self._restored.append(at)
            old = folder.children.get(name)
            options = {**operation, "fileMode": "keep", "owner": (0, 0), "place": "/" + "/".join(files.split(path))}
            if operation["type"] == "directory":
                options["root"] = self._emptied(folder, name, old)
            elif isinstance(old, files.Folder) and old.mounted:
                raise OSError(errno.EBUSY, f'"{name}": something is mounted there')
            else:
                folder.children.pop(name, None)
                options["root"], options["only"] = folder, name
        except (OSError, ValueError) as error:
            raise CopyError("Prepare", f"{path}: {error}") from error
        try:
            return {**await unpacking.take(self._files, options, stdin, beat), "owners": 0}
        except CopyError as error:
            raise CopyError(error.reason, f"{path}: {error}") from error

    def _emptied(self, folder: files.Folder, name: str, old: files.Node | None) -> files.Folder:
        made = old if isinstance(old, files.Folder) and old.mounted else files.Folder()
        made.children, made.mode, made.uid, made.gid = {}, 0o755, 0, 0
        folder.children[name] = made
        return made

    def _place(self, path: str) -> tuple[files.Folder, str, str]:
        """The folder above a path, along the image's links, the last name, and where that is without a link."""
        parts = files.split(path)
        if not parts:
            raise ValueError("the root folder cannot be restored")
        self._allowed("/" + "/".join(parts))
        above = "/" + "/".join(parts[:-1])
        folder = self._files.follow(above, trusted=True, check=self._check)
        at = f"{self._files.whereabouts(above).rstrip('/')}/{parts[-1]}"
        self._allowed(at)
        return folder, parts[-1], at

    def _guarded(self) -> list[str]:
        return [*GUARDED, *map(self._files.whereabouts, GUARDED)]

    def _check(self, where: str, link: bool) -> None:
        """Each step on the way."""
        if any(_within(where, each) for each in self._guarded()):
            raise ValueError(f"it leads to {where}, where nothing is restored")
        if link and any(_within(where, each) for each in self._restored):
            raise ValueError(f'"{where}" is a link that was restored, and is not followed')

    def _allowed(self, at: str) -> None:
        for each in self._guarded():
            if _within(at, each) or _within(each, at):
                raise ValueError(f"{at} is not a place for an artifact: {each} is there")
        for each in self._restored:
            if _within(each, at):
                raise ValueError(f"{each} has been restored already, and would be lost")


def _within(name: str, top: str) -> bool:
    return name == top or name.startswith(f"{top}/")
