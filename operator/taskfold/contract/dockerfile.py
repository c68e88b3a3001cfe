"""environment/Dockerfile: which mode it needs, and in the modes without a build what it says.

*pull*: FROM with WORKDIR, ENV, USER, LABEL (and ENTRYPOINT [], CMD []): the base image runs as it is, with
these settings. *overlay*: the same with RUN, whose lines run in the sandbox at seed. *build*: everything else. All is
resolved as `docker build` would, from the base image's configuration on record.

Guarantees: any bytes give a `Dockerfile` or a `TaskError`; nothing is executed; a line that is not understood
is never left out: it makes the mode *build*.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from taskfold.contract import dockerfile_lines, errors, values
from taskfold.contract.dockerfile_words import Word, WordError, expand, parse_word, split

FILE = "environment/Dockerfile"
MAX_BYTES = 2**20
MAX_RUNS = 64
"""RUN lines that one phase of the sandbox can take. More of them are what builds are for."""


class Mode(StrEnum):
    PULL = "pull"
    OVERLAY = "overlay"
    BUILD = "build"


@dataclass(frozen=True)
class ImageConfig:
    """An image's configuration on record.

    `user` "" is root, `workdir` "" is `/`; `healthcheck` as OCI writes it; `shell`: of RUN and HEALTHCHECK, where the
    image names one.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    healthcheck: Mapping[str, Any] | None = None
    shell: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """One instruction: `name` is WORKDIR, ENV, USER or ENTRYPOINT (which is then empty).

    ENV has pairs of words, name and value; the others at most one word.
    """

    name: str
    words: tuple[Word, ...]
    line: int


@dataclass(frozen=True)
class RunLine:
    """One RUN. `argv`: its exec form; empty: `text` is for the shell."""

    text: str
    argv: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Instructions:
    """A Dockerfile without a build: its base as written, and what it sets and runs, in order."""

    base: str
    steps: tuple[Setting | RunLine, ...]

    @property
    def overlay(self) -> bool:
        """Whether anything is to be run at seed."""
        return any(isinstance(step, RunLine) for step in self.steps)


@dataclass(frozen=True)
class Overlay:
    """A RUN line, and the configuration in effect there."""

    run: RunLine
    config: ImageConfig


@dataclass(frozen=True)
class Dockerfile:
    """`instructions`: None if it needs a build. `because` names the line that asks for another mode than pull."""

    mode: Mode
    instructions: Instructions | None = None
    because: str = ""


def parse(content: bytes, *, file: str = FILE) -> Dockerfile:
    """Which mode the Dockerfile needs.

    TaskError: not UTF-8, no FROM, or a line that `docker build` refuses too.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise errors.TaskError("is not UTF-8 text", file=file, remedy="Save the file as UTF-8.") from None
    lines, escape = dockerfile_lines.logical(text)
    if not lines:
        raise errors.TaskError("is empty", file=file, remedy="Begin with FROM and an image.")
    base = ""
    overlay = ""
    steps: list[Setting | RunLine] = []
    for number, line in lines:
        word, *more = line.split(maxsplit=1)
        name, rest = word.upper(), more[0] if more else ""
        try:
            if reason := dockerfile_lines.build_reason(name, rest, first=not base):
                return Dockerfile(Mode.BUILD, because=f"line {number}: {reason}")
            if name != "FROM" and not base:
                raise WordError("comes before FROM")
            if name == "FROM":
                base = _base(rest)
            elif name == "RUN":
                overlay = overlay or f"line {number}: RUN"
                steps.append(_run(rest, number))
                if sum(isinstance(step, RunLine) for step in steps) > MAX_RUNS:
                    return Dockerfile(Mode.BUILD, because=f"line {number}: more than {MAX_RUNS} RUN lines")
            else:
                steps.extend(_settings(name, rest, number, escape))
        except WordError as error:
            if error.build:
                return Dockerfile(Mode.BUILD, because=f"line {number}: {name}: {error}")
            raise errors.TaskError(f"line {number}: {name}: {error}", file=file, remedy="Correct the line.") from None
    return Dockerfile(Mode.OVERLAY if overlay else Mode.PULL, Instructions(base, tuple(steps)), overlay)


def apply(instructions: Instructions, base: ImageConfig) -> ImageConfig:
    """The configuration that an image built from the Dockerfile would have."""
    config = base
    for step in instructions.steps:
        if isinstance(step, Setting):
            config = _after(step, config)
    return config


def overlays(instructions: Instructions, base: ImageConfig) -> tuple[Overlay, ...]:
    """The RUN lines in order, each with the ENV, WORKDIR and USER in effect there."""
    config, found = base, list[Overlay]()
    for step in instructions.steps:
        if isinstance(step, Setting):
            config = _after(step, config)
        else:
            found.append(Overlay(step, config))
    return tuple(found)


def _after(setting: Setting, config: ImageConfig) -> ImageConfig:
    match setting.name:
        case "ENV":
            before = config.env  # a line's own variables do not see each other
            pairs = zip(setting.words[::2], setting.words[1::2], strict=True)
            new = {expand(name, before): expand(value, before) for name, value in pairs}
            return replace(config, env={**before, **new})
        case "WORKDIR":
            path = expand(setting.words[0], config.env)
            return replace(config, workdir=_joined(config.workdir, path))
        case "USER":
            return replace(config, user=expand(setting.words[0], config.env))
        case _:  # an ENTRYPOINT, an empty one too, drops the base's CMD
            return replace(config, entrypoint=(), cmd=())


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
        shell=tuple(document.get("Shell") or ()),
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


def _run(rest: str, line: int) -> RunLine:
    """`RUN text`, or `RUN ["program", "argument"]`; what is no JSON list of texts is for the shell."""
    if not rest or "\0" in rest:
        raise WordError("has a NUL byte" if rest else "has no argument")
    argv: object = None
    if rest.startswith("["):
        with contextlib.suppress(ValueError):
            argv = json.loads(rest)
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        return RunLine(rest, (), line)
    if not argv[0] or any("\0" in word for word in argv):
        raise WordError("names no program")
    return RunLine(rest, tuple(argv), line)


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
