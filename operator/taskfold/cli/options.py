"""What the commands take: options with one meaning in all of them, and how their values are read.

Guarantees: a value that cannot be used is a usage error (64) that names the option, the value and what to write.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError

from taskfold.api import agent as agents
from taskfold.api.common import MAX_RUN_NAME
from taskfold.api.taskrun import TaskRunSpec
from taskfold.build.manifests import From

Json = dict[str, Any]

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PATH = re.compile(r"[A-Za-z][A-Za-z0-9]*(\.[A-Za-z][A-Za-z0-9]*)*")
_OWN = {"task": "the FOLDER", "agent": "--agent"}


Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The task folder.", show_default=False)]
Agent = Annotated[str, typer.Option(metavar="AGENT", help="oracle, nop, external, or script:FILE.")]
Source = Annotated[From, typer.Option("--from", help="Where the task's files stand in the manifests.")]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Namespace of the run. Unset: the kubeconfig's.", show_default=False),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Further fields of the run's spec, for example multipliers.timeout=2. May be repeated.",
        show_default=False,
    ),
]
Kubeconfig = Annotated[
    str | None, typer.Option(help="Path of the kubeconfig. Unset: $KUBECONFIG, else as kubectl.", show_default=False)
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig. Unset: its current one.")]


def agent(text: str) -> Json:
    """`--agent` as `spec.agent`."""
    kind, colon, path = text.partition(":")
    if text in ("oracle", "nop", "external"):
        return {text: {}}
    if kind != "script" or not colon:
        raise _wrong("--agent", text, "write oracle, nop, external, or script:FILE with a shell script of yours")
    try:
        script = Path(path).read_bytes()[: 4 * agents.MAX_SCRIPT + 1].decode()
    except OSError as error:
        raise _wrong("--agent", text, f"the script cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _wrong("--agent", text, "the script is not UTF-8 text") from None
    if not 0 < len(script) <= agents.MAX_SCRIPT:
        raise _wrong("--agent", text, f"the script must have 1 to {agents.MAX_SCRIPT:,} characters")
    return {"script": {"run": script}}


def name(text: str | None) -> str | None:
    """`--name`, as the API server takes it."""
    if text is not None and (len(text) > MAX_RUN_NAME or not NAME.fullmatch(text)):
        rule = "a to z, 0 to 9 and dashes, none of them at an end"
        raise _wrong("--name", text, f"write at most {MAX_RUN_NAME} characters: {rule}")
    return text


def spec(settings: Sequence[str] | None) -> Json:
    """`--set` as a part of the spec. Values are YAML; a path is known to the schema or refused."""
    written: Json = {}
    for setting in settings or ():
        path, equals, text = setting.partition("=")
        if not equals or not _PATH.fullmatch(path):
            raise _wrong("--set", setting, "write PATH=VALUE, for example multipliers.timeout=2")
        *above, last = path.split(".")
        if (first := (*above, last)[0]) in _OWN:
            raise _wrong("--set", setting, f"spec.{first} is made from {_OWN[first]}")
        table = written
        for part in above:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise _wrong("--set", setting, f"{part} was set to a value before")
        try:
            table[last] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise _wrong("--set", setting, "the value is not YAML; put it in quotes") from None
    _check(written)
    return written


def _check(written: Json) -> None:
    whole = {"task": {"inline": {}}, "agent": {"nop": {}}, **written}
    try:
        known = TaskRunSpec.model_validate(whole).wire()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise _wrong("--set", f"{path}={first['input']}", first["msg"]) from None
    if path := _unknown(whole, known, ""):
        raise _wrong("--set", path[1:], "a TaskRun has no such field; see docs/reference/taskrun.md")


def _unknown(written: Any, known: Any, path: str) -> str:
    """The first path of `written` that the schema dropped, "" when there is none."""
    if isinstance(written, Mapping) and isinstance(known, Mapping):
        for key, value in written.items():
            if value is not None and (found := _lost(key, value, known, f"{path}.{key}")):
                return found
    elif isinstance(written, list) and isinstance(known, list):
        for index, (value, kept) in enumerate(zip(written, known, strict=False)):
            if found := _unknown(value, kept, f"{path}[{index}]"):
                return found
    return ""


def _lost(key: str, value: Any, known: Mapping[str, Any], path: str) -> str:
    return _unknown(value, known[key], path) if key in known else path


def _wrong(option: str, value: str, problem: str) -> typer.BadParameter:
    shown = value if len(value) <= 80 else value[:79] + "…"
    return typer.BadParameter(f"{shown!r}: {problem}", param_hint=option)
