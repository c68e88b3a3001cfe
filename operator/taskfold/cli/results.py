"""`taskfold results`: the reward, and what is kept of a run; into a folder with --download.

Guarantees: it reads through the API server only, with the rights of whoever calls; a file is there whole and proven, or
not at all; text of a run is shown without control characters.
"""

import asyncio
import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from taskfold.build import result
from taskfold.cli import cluster, download, ending, exits, options, subjects
from taskfold.cli.progress import clean
from taskfold.effects import client as api
from taskfold.effects import results as remote

SCHEMA = "taskfold.dev/results/v1"
Json = dict[str, Any]


class Format(StrEnum):
    """How it is printed."""

    TEXT = "text"
    JSON = "json"


def results(  # noqa: PLR0917 - options of a command line
    run: subjects.Argument,
    folder: Annotated[
        Path | None,
        typer.Option("--download", metavar="DIR", help="Put all of it into this folder.", show_default=False),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Number of the attempt. Unset: the last one.", show_default=False)
    ] = None,
    step: Annotated[str | None, typer.Option(help="Only this step of a multi-step task.", show_default=False)] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="How it is printed.")] = Format.TEXT,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Print the reward of a run and what is kept of it; with --download fetch it."""
    target, subject = cluster.Target(kubeconfig, context, namespace), subjects.parse(run)
    document = asyncio.run(_work(target, subject, attempt, step, folder))
    if output is Format.JSON:
        typer.echo(json.dumps(document, indent=2))
        return
    for line in _lines(document, step):
        typer.echo(line)


async def _work(
    target: cluster.Target, subject: subjects.Subject, attempt: int | None, step: str | None, folder: Path | None
) -> Json:
    async with cluster.connect(target) as connection:
        found = await subjects.get(connection, subject)
        theirs = remote.Subject(subject.resource.plural, connection.namespace, subject.name, attempt)
        with subjects.explained():
            async with remote.Results(connection.login, theirs) as reader:
                index = await reader.index()
                _check_step(index, step)
                loaded = None
                if folder is not None:
                    loaded = await download.Download(reader, index, folder, step).all(_tell)
    if found["metadata"]["uid"] != index["metadata"]["uid"] and subject.resource is api.TASKRUNS:
        raise exits.Unavailable("Replaced", f"{subject.name} is another run by now; ask again")
    document = {"schema": SCHEMA, "run": _run(subject, found), "kept": index, "download": None}
    if loaded is not None:
        summary = {"folder": str(folder), "files": loaded.files, "bytes": loaded.fetched, "leftOut": loaded.left_out}
        document["download"] = summary
    return document


def _check_step(index: Json, step: str | None) -> None:
    steps = {each["step"] for part in ("documents", "archives", "artifacts") for each in index[part]} - {None}
    if step is not None and steps and step not in steps:
        raise exits.Refused("NotFound", f"there is no step {step}; kept are: {', '.join(sorted(steps))}")


def _run(subject: subjects.Subject, found: Json) -> Json:
    if subject.resource is api.TASKRUNS:
        return result.document(subjects.run(found))
    status = found.get("status") or {}
    reward = status.get("reward")
    return {
        "name": found["metadata"]["name"],
        "namespace": found["metadata"]["namespace"],
        "uid": found["metadata"]["uid"],
        "phase": status.get("phase"),
        "reward": float(reward) if reward is not None else None,
        "rewards": status.get("rewards") or {},
        "masked": bool(status.get("masked")),
        "message": (status.get("failure") or {}).get("message", ""),
        "timings": status.get("timings") or {},
        "store": status.get("store"),
    }


def _lines(document: Json, step: str | None) -> list[str]:
    run, kept = document["run"], document["kept"]
    head = f"{run['phase']}: " if run["reward"] is None else ""
    found = [head + "no reward"] if run["reward"] is None else [_reward(run)]
    if run["message"]:
        found.append(clean(run["message"]))
    if run["timings"]:
        found.append("seconds: " + ", ".join(f"{clean(name)} {value:g}" for name, value in run["timings"].items()))
    if kept["error"]:
        found.append(f"not all was kept: {clean(kept['error'])}")
    found += ["", *_table(kept, step)]
    if document["download"] is not None:
        done = document["download"]
        found += ["", f"{done['files']} new files in {done['folder']}, {done['bytes']:,} bytes read"]
        found += [f"left out: {clean(line)}" for line in done["leftOut"]]
    return found


def _reward(run: Json) -> str:
    return ending.reward_line(f"{run['reward']:g}", run["rewards"])


def _table(kept: Json, step: str | None) -> list[str]:
    """One line for each thing that is kept, and for each artifact that is not."""
    rows = [("WHAT", "STEP", "BYTES", "SHA256", "NAME")]
    wanted = [
        (part, each)
        for part in ("documents", "archives", "artifacts")
        for each in kept[part]
        if step is None or each["step"] in (None, step)
    ]
    for part, each in wanted:
        match part:
            case "documents":
                row = ("document", each["bytes"], "-", each["key"])
            case "archives":
                row = (each["of"], each["bytes"], each["sha256"], each["key"] + _cut(each))
            case _:
                row = ("artifact", *_artifact(each))
        what, size, digest, name = row
        rows.append((what, each["step"] or "-", str(size), str(digest), clean(str(name))))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    ]


def _artifact(each: Json) -> tuple[Any, str, str]:
    notes = [each["status"]] if each["status"] != "ok" else []
    notes += [each["reason"]] if each["reason"] else []
    notes += [f"{each['leftCount']} left out"] if each["leftCount"] else []
    text = f" ({': '.join(notes)})" if notes else ""
    archive = each["archive"]
    if archive is None:
        return "-", "-", each["destination"] + text
    return archive["bytes"], archive["sha256"], each["destination"] + text


def _cut(each: Json) -> str:
    if each["truncated"]:
        return " (not all of it: a limit was reached)"
    return f" ({len(each['skipped'])} left out)" if each["skipped"] else ""


def _tell(key: str, size: int) -> None:
    if sys.stderr.isatty() or size >= 64 * 2**20:
        typer.echo(f"{clean(key)}: {size:,} bytes", err=True)
