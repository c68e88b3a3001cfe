"""`taskfold conformance`: does this cluster, with the operator that is installed in it, keep the contract?

Guarantees: 0 when every row that was run is as the table says, 1 when one is not; what was left out stands in the
report with the reason; Ctrl-C ends with 130, a report of what was done, and a clean namespace.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import secrets
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from taskfold.api.taskrun import SecurityProfile
from taskfold.cli import cluster, exits, interrupts, options, rows, run
from taskfold.conformance import case, manifests, report, table
from taskfold.conformance.case import Case, Need
from taskfold.conformance.report import Outcome, Report, Result, Setting

TEST_IMAGES = "docker.io/taskfold-test/"


class Format(StrEnum):
    """How the report is written."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"


WRITERS = {
    Format.TEXT: report.as_text,
    Format.JSON: report.as_json,
    Format.JUNIT: report.as_junit,
    Format.MARKDOWN: report.as_markdown,
}


def conformance(  # noqa: PLR0917 - options of a command line
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="GLOB", help="Only the cases of these names. May be repeated.", show_default=False
        ),
    ] = None,
    profile: Annotated[
        SecurityProfile | None,
        typer.Option(help="Security profile of the runs. Unset: the operator's.", show_default=False),
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, max=256, help="Runs at a time.")] = 6,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="For one case, from its creation on.")
    ] = 300.0,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="REPORT", help="Do not run again what passed in this report of --format json.", show_default=False
        ),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Print the cases and what they prove; run nothing.")] = False,
    output: Annotated[Format, typer.Option("--format", help="How the report on stdout is written.")] = Format.TEXT,
    python_image: Annotated[
        str, typer.Option(metavar="IMAGE", help="An image with Python 3.13, bash and the usual tools.")
    ] = case.PYTHON_IMAGE,
    test_images: Annotated[
        str | None,
        typer.Option(
            metavar="PREFIX",
            help="Where the project's test images are, as docker.io/taskfold-test.",
            show_default=False,
        ),
    ] = None,
    cgroup: Annotated[
        int | None,
        typer.Option(min=1, max=2, help="cgroup version of the nodes. Unset: cases that need one are left out."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the runs, and the namespace that was made.")] = False,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
) -> None:
    """Run the conformance table against a cluster, and report."""
    chosen = table.matching(table.all_cases(), only or ())
    if not chosen:
        raise typer.BadParameter(f"{', '.join(only or ())}: no case has such a name", param_hint="--only")
    if listing:
        for row in chosen:
            typer.echo(f"{row.id}: {row.proves} ({row.source})")
        return
    place = _place(python_image, test_images, profile)
    there = _met(profile, test_images, cgroup)
    runnable, left = table.split(chosen, there)
    before = _before(resume)
    again = tuple(row for row in runnable if row.id not in before)
    known = {
        each.case.id: Result(each.case.id, Outcome.SKIPPED, (f"needs {', '.join(each.missing)}",)) for each in left
    }
    known |= before
    suffix = "".join(secrets.choice(run.SUFFIX) for _ in range(5))
    plan = rows.Plan(namespace or "", suffix, place, parallel, timeout, keep)
    target = cluster.Target(kubeconfig, context, namespace)
    setting, results, stopped = asyncio.run(_play(again, plan, target, namespace))
    done = {**known, **{each.id: each for each in results}}
    found = Report(setting, tuple(done[row.id] for row in chosen))
    typer.echo(WRITERS[output](found), nl=False)
    if output is not Format.TEXT:
        typer.echo(report.summary(found), err=True)
    raise typer.Exit(exits.INTERRUPTED if stopped else exits.REWARDED if found.passed else exits.BELOW_ONE)


async def _play(
    cases: tuple[Case, ...], plan: rows.Plan, target: cluster.Target, given: str | None
) -> tuple[Setting, tuple[Result, ...], bool]:
    """Where it was run, what was found, and whether somebody stopped it."""
    wishes = interrupts.Interrupts()
    number = 0

    def told(result: Result) -> None:
        nonlocal number
        number += 1
        typer.echo(f"{number}/{len(cases)} {result.id}: {result.outcome} ({result.seconds:g} s)", err=True)

    with wishes.installed():
        async with cluster.connect(target) as connection:
            client = connection.client
            version = str((await client.version()).get("gitVersion", "unknown"))
            async with rows.namespace(client, given, plan.suffix, keep=plan.keep) as name:
                typer.echo(f"{len(cases)} cases in namespace {name}, {plan.parallel} at a time", err=True)
                async with rows.Session(client, dataclasses.replace(plan, namespace=name)) as session:
                    results = await session.play(cases, wishes.first, told)
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    profile = plan.place.profile or "the operator's default"
    setting = Setting(moment, metadata.version("taskfold"), version, profile, name)
    return setting, results, wishes.first.is_set()


def _place(python_image: str, test_images: str | None, profile: SecurityProfile | None) -> manifests.Place:
    images = [(case.PYTHON_IMAGE, python_image)] if python_image != case.PYTHON_IMAGE else []
    if test_images is not None and (prefix := test_images.rstrip("/") + "/") != TEST_IMAGES:
        images.append((TEST_IMAGES, prefix))
    return manifests.Place(tuple(images), profile)


def _met(profile: SecurityProfile | None, test_images: str | None, cgroup: int | None) -> frozenset[Need]:
    """Which needs are met."""
    met = {Need.ROOT: profile is not SecurityProfile.RESTRICTED, Need.TEST_IMAGES: test_images is not None}
    met |= {Need.CGROUP_V1: cgroup == 1, Need.CGROUP_V2: cgroup == 2}
    return frozenset(need for need, there in met.items() if there)


def _before(path: Path | None) -> dict[str, Result]:
    """The cases that passed in an earlier report, with what was found then."""
    if path is None:
        return {}
    try:
        earlier = report.passed_before(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path}: {error}", param_hint="--resume") from None
    return {result.id: dataclasses.replace(result, outcome=Outcome(result.outcome)) for result in earlier}
