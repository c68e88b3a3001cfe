"""environment/Dockerfile: which mode it needs, and in pull mode what it sets.

*pull*: FROM with WORKDIR, ENV, USER, LABEL (and ENTRYPOINT [], CMD []): the base image runs as it is, with
these settings. *overlay*: the same with RUN. *build*: everything else. The settings are resolved as `docker
build` would, from the base image's configuration on record.

Guarantees: any bytes give a `Dockerfile` or a `TaskError`; nothing is executed; a line that is not understood
is never left out: it makes the mode *build*.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from taskfold.contract import errors, values
from taskfold.contract.dockerfile_words import Word, WordError, expand, parse_word, split

FILE = "environment/Dockerfile"
MAX_BYTES = 2**20


class Mode(StrEnum):
    PULL = "pull"
    OVERLAY = "overlay"
    BUILD = "build"


@dataclass(frozen=True)
class ImageConfig:
    """An image's configuration on record.

    `user` "" is root, `workdir` "" is `/`; `healthcheck` as OCI writes it.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    healthcheck: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Setting:
    """One instruction: `name` is WORKDIR, ENV, USER or ENTRYPOINT (which is then empty).

    ENV has pairs of words, name and value; the others at most one word.
    """

    name: str
    words: tuple[Word, ...]
    line: int


@dataclass(frozen=True)
class PullSettings:
    """A pull-mode Dockerfile: its base as written, and what it sets, in order."""

    base: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Dockerfile:
    """`pull` is set in pull mode; `because` names the line that asks for another mode."""

    mode: Mode
    pull: PullSettings | None = None
    because: str = ""


def parse(content: bytes, *, file: str = FILE) -> Dockerfile:
    """Which mode the Dockerfile needs.

    TaskError: not UTF-8, no FROM, or a line that `docker build` refuses too.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise errors.TaskError("is not UTF-8 text", file=file, remedy="Save the file as UTF-8.") from None
    lines, escape = _logical_lines(text)
    if not lines:
        raise errors.TaskError("is empty", file=file, remedy="Begin with FROM and an image.")
    base = ""
    overlay = ""
    settings: list[Setting] = []
    for number, line in lines:
        word, *more = line.split(maxsplit=1)
        name, rest = word.upper(), more[0] if more else ""
        try:
            if reason := _build_reason(name, rest, first=not base):
                return Dockerfile(Mode.BUILD, because=f"line {number}: {reason}")
            if name != "FROM" and not base:
                raise WordError("comes before FROM")
            if name == "FROM":
                base = _base(rest)
            elif name == "RUN":
                overlay = overlay or f"line {number}: RUN"
            else:
                settings.extend(_settings(name, rest, number, escape))
        except WordError as error:
            if error.build:
                return Dockerfile(Mode.BUILD, because=f"line {number}: {name}: {error}")
            raise errors.TaskError(f"line {number}: {name}: {error}", file=file, remedy="Correct the line.") from None
    if overlay:
        return Dockerfile(Mode.OVERLAY, because=overlay)
    return Dockerfile(Mode.PULL, PullSettings(base, tuple(settings)))


def apply(settings: PullSettings, base: ImageConfig) -> ImageConfig:
    """The configuration that an image built from the Dockerfile would have."""
    config = base
    for setting in settings.settings:
        match setting.name:
            case "ENV":
                before = config.env  # a line's own variables do not see each other
                pairs = zip(setting.words[::2], setting.words[1::2], strict=True)
                new = {expand(name, before): expand(value, before) for name, value in pairs}
                config = replace(config, env={**before, **new})
            case "WORKDIR":
                path = expand(setting.words[0], config.env)
                config = replace(config, workdir=_joined(config.workdir, path))
            case "USER":
                config = replace(config, user=expand(setting.words[0], config.env))
            case "ENTRYPOINT":  # an ENTRYPOINT, an empty one too, drops the base's CMD
                config = replace(config, entrypoint=(), cmd=())
    return config


def image_config(document: Mapping[str, Any]) -> ImageConfig:
    """The `config` object of an OCI image configuration."""
    pairs = (pair.partition("=") for pair in document.get("Env") or () if isinstance(pair, str))
    return ImageConfig(
        env={name: value for name, _, value in pairs},
        workdir=document.get("WorkingDir") or "",
        user=document.get("User") or "",
        entrypoint=tuple(document.get("Entrypoint") or ()),
        cmd=tuple(document.get("Cmd") or ()),
        healthcheck=document.get("Healthcheck") or None,
    )


def check_record(config: ImageConfig, reference: str) -> None:
    """Refuse, for now, an image on record with an ENTRYPOINT or a HEALTHCHECK.

    The contract would run them at seed.
    """
    if config.entrypoint:
        raise errors.TaskError(
            f"the ENTRYPOINT of {reference}",
            file=FILE,
            remedy="add the line ENTRYPOINT [], or name the image in docker_image without a Dockerfile",
            unsupported=True,
        )
    test = (config.healthcheck or {}).get("Test") or ["NONE"]
    if test[0] != "NONE":
        raise errors.TaskError(
            f"the HEALTHCHECK of {reference}",
            file=FILE,
            remedy="name the image in docker_image without a Dockerfile",
            unsupported=True,
        )


def same_image(one: str, other: str) -> bool:
    """Whether two references, as written, name the same image: `python:3` is `docker.io/library/python:3`."""
    return _full(one) == _full(other)


def _full(reference: str) -> str:
    name, at, digest = reference.partition("@")
    host, slash, path = name.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, path = "docker.io", name
    if host in ("docker.io", "index.docker.io", "registry-1.docker.io"):
        host, path = "docker.io", path if "/" in path else f"library/{path}"
    if not at and ":" not in path:
        path += ":latest"
    return f"{host}/{path}{at}{digest}"


def _joined(workdir: str, path: str) -> str:
    joined = posixpath.normpath(posixpath.join("/", workdir, path))
    return "/" + joined.lstrip("/")


_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*")


def _logical_lines(text: str) -> tuple[Sequence[tuple[int, str]], str]:
    """Instructions with the number of their first line: comments gone, continued lines joined; the escape."""
    raw = text.replace("\r\n", "\n").split("\n")
    escape = "\\"
    for line in raw:
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is None:
            break
        if match[1].lower() == "escape" and match[2] in ("\\", "`"):
            escape = match[2]
    return tuple(_joined_lines(raw, escape)), escape


def _joined_lines(raw: Sequence[str], escape: str) -> Iterator[tuple[int, str]]:
    continues = re.compile(rf"{re.escape(escape)}[ \t]*$")
    started, pieces = 0, list[str]()
    for number, line in enumerate(raw, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        started = started or number
        piece = continues.sub("", line)
        pieces.append(piece)
        if piece != line:
            continue
        yield started, "".join(pieces).strip()
        started, pieces = 0, []
    if pieces and "".join(pieces).strip():
        yield started, "".join(pieces).strip()


def _build_reason(name: str, rest: str, *, first: bool) -> str:
    """Why an instruction needs a build, or ""."""
    match name:
        case "FROM":
            if not first:
                return "a second FROM"
            return "FROM with a variable" if "$" in rest else "FROM with a flag" if rest.startswith("--") else ""
        case "WORKDIR" | "ENV" | "USER" | "LABEL":
            return ""
        case "RUN":
            return "RUN with a flag" if rest.startswith("--") else "RUN with a heredoc" if "<<" in rest else ""
        case "ENTRYPOINT" | "CMD":
            return "" if re.fullmatch(r"\[\s*\]", rest) else name
        case _:
            return name


def _base(rest: str) -> str:
    words = rest.split()
    named = len(words) == 3 and words[1].upper() == "AS"
    if not words or not (len(words) == 1 or named):
        raise WordError("takes one image, and AS with a name")
    if not values.is_image(words[0]):
        raise WordError(f"{errors.show(words[0])} is not an image reference")
    if words[0] == "scratch":
        raise WordError("the image scratch is empty; a task needs one with bash")
    return words[0]


def _settings(name: str, rest: str, line: int, escape: str) -> Iterator[Setting]:
    if not rest:
        raise WordError("has no argument")
    match name:
        case "ENV":
            yield Setting(name, tuple(_env_words(rest, escape)), line)
        case "WORKDIR" | "USER":
            yield Setting(name, (parse_word(rest, escape),), line)
        case "ENTRYPOINT":
            yield Setting(name, (), line)
        case _:  # LABEL says nothing about how to run, CMD [] is without effect
            return


def _env_words(rest: str, escape: str) -> Iterator[Word]:
    """`A=1 B="x y"`, or the old form `A the rest of the line`."""
    words = split(rest, escape)
    if "=" not in words[0]:
        pair = rest.split(maxsplit=1)
        if len(pair) < 2:
            raise WordError("needs a name and a value")
        yield from (parse_word(part, escape) for part in pair)
        return
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise WordError(f"{errors.show(word)} is not name=value")
        yield parse_word(name, escape)
        yield parse_word(value, escape)
