"""`taskfold render`: a task folder as manifests for kubectl or GitOps. Talks to no cluster."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from taskfold.api import taskrun, unsupported
from taskfold.api.reasons import Reason
from taskfold.build import manifests
from taskfold.cli import manifest_text, options
from taskfold.cli.exits import Refused
from taskfold.effects import folders

TOO_LARGE = "This is too large for client-side apply. Use: kubectl apply --server-side -f FILE"


class Format(StrEnum):
    """How the manifests are written."""

    YAML = "yaml"
    JSON = "json"


def render(  # noqa: PLR0917 - options of a command line
    folder: options.Folder,
    agent: options.Agent = "oracle",
    name: Annotated[
        str | None, typer.Option(help="Name of the TaskRun. Unset: the folder's name.", show_default=False)
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", help="Written into the manifests. Unset: left to kubectl.", show_default=False
        ),
    ] = None,
    source: options.Source = manifests.From.AUTO,
    settings: options.Set = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="How the manifests are written.")] = Format.YAML,
) -> None:
    """Print a task folder as manifests for kubectl or GitOps."""
    wanted_name, chosen, spec = options.name(name), options.agent(agent), options.spec(settings)
    checked = check(folder, chosen, spec)
    task_id = checked.task.id
    wanted = manifests.Wanted(
        wanted_name or manifests.object_name(task_id),
        namespace,
        task_id,
        checked.files,
        chosen,
        source,
        spec,
        checked.path,
    )
    rendered = manifests.build(wanted)
    for warning in checked.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if rendered.server_side:
        typer.echo(f"note: {TOO_LARGE}", err=True)
    if output is Format.JSON:
        text = manifest_text.as_json(rendered.objects)
    else:
        text = manifest_text.as_yaml(rendered.objects, (TOO_LARGE,) if rendered.server_side else ())
    typer.echo(text.encode(), nl=False)


def check(folder: Path, agent: options.Json, spec: options.Json) -> folders.Checked:
    """The folder, together with what the run asks of it. Refused with everything that is known to be wrong."""
    checked = folders.load(folder)
    asked = {"metadata": {}, "spec": {"task": {"inline": {}}, "agent": agent, **spec}}
    if paths := unsupported.unsupported(taskrun.TaskRun.parse(asked)):
        raise Refused(Reason.UNSUPPORTED_FIELD, unsupported.message(paths))
    if "oracle" in agent and not checked.task.has_solution:
        problem = "the oracle agent needs solution/solve.sh or solution/answer.md, and the task folder has neither"
        raise Refused(Reason.INVALID_TASK, f"{problem}. Add it, or take another --agent.")
    return checked
