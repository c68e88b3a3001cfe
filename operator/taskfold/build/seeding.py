"""What runs in a sandbox before its agent: the Dockerfile's RUN lines, the image's ENTRYPOINT, the health checks.

Guarantees: the order is the contract's: RUN lines, then the folders of `phases.seed`, then the entrypoint beside all
that follows, then the image's HEALTHCHECK, then the task's. A RUN line has the variables of a build and no others. The
output of all this lies where no user but root can write, and outside of what verification empties.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from taskfold.build import checks, phases
from taskfold.contract import dockerfile, health, users
from taskfold.contract.images import RecordedImage
from taskfold.protocol.phase import Output, PhaseRequest, Run, User

ENTRYPOINT = "entrypoint"
IMAGE_CHECK = "HEALTHCHECK"
TASK_CHECK = "[environment.healthcheck]"
SUBSTITUTE = ("sh", "-c", "sleep infinity")
"""In place of the image's CMD."""
ENTRYPOINT_OUTPUT = "/logs/entrypoint-stdout.txt"
ENTRYPOINT_KEPT = "entrypoint-stdout.txt"
"""Its name among the verifier's logs; that of a verifier's own image has another."""
VERIFIER_ENTRYPOINT_KEPT = "verifier-entrypoint-stdout.txt"
OVERLAY_OUTPUT = "/logs/dockerfile"
SHOWN_COMMAND = 200
"""How much of a RUN line its result is named by."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What a build has for an image without a PATH."""


def overlay(recorded: RecordedImage, instructions: dockerfile.Instructions, nonce: str, limit: float) -> PhaseRequest:
    """The RUN lines one after the other; the first that fails is the last. `limit`: seconds, for all of them."""
    runs = [_line(each) for each in dockerfile.overlays(instructions, recorded.base)]
    return PhaseRequest(nonce, "overlay", runs=runs, limit_seconds=limit)


def _line(line: dockerfile.Overlay) -> Run:
    config = line.config
    who = users.of_image(config.user) or users.ROOT
    text = line.run.text if len(line.run.text) <= SHOWN_COMMAND else f"{line.run.text[:SHOWN_COMMAND]}…"
    return Run(
        f"line {line.run.line}: RUN {text}",
        line.run.argv or (*(config.shell or health.DOCKER_SHELL), line.run.text),
        Output(f"{OVERLAY_OUTPUT}/line-{line.run.line}.txt"),
        {"PATH": DEFAULT_PATH, **config.env},
        config.workdir or "/",
        User(who.name, who.uid, who.gid, group=who.group),
        continue_on_failure=False,
        make_cwd=True,
        own_env=True,
    )


def starts(sandbox: phases.Sandbox) -> bool:
    """Whether the seed starts any program of the image or of the task."""
    return any(True for _ in _started(sandbox, {}))


def seed(sandbox: phases.Sandbox, nonce: str, env: Mapping[str, str]) -> PhaseRequest:
    """`phases.seed`, and what the image and the task want started and waited for. `env`: of every command."""
    return started(sandbox, phases.seed(sandbox, nonce), env)


def started(sandbox: phases.Sandbox, request: PhaseRequest, env: Mapping[str, str]) -> PhaseRequest:
    """The request, and what the image and the task want started and waited for."""
    runs = tuple(_started(sandbox, env))
    if not runs:
        return request
    recorded = sandbox.recorded.config if sandbox.recorded is not None else None
    return replace(request, runs=runs, limit_seconds=health.seed_seconds(sandbox.task.config, recorded))


def _started(sandbox: phases.Sandbox, env: Mapping[str, str]) -> Iterator[Run]:
    recorded, user, cwd = sandbox.recorded, sandbox.image_user, sandbox.workdir
    if recorded is not None and recorded.config.entrypoint:
        yield Run(
            ENTRYPOINT,
            (*recorded.config.entrypoint, *SUBSTITUTE),
            Output(ENTRYPOINT_OUTPUT),
            env,
            cwd,
            user,
            continue_on_failure=False,
            settle_seconds=health.SETTLE_SECONDS,
        )
    image = health.of_image(recorded.config) if recorded is not None else None
    if image is not None:
        yield checks.of(image, name=IMAGE_CHECK, env=env, cwd=cwd, user=user)
    table = sandbox.task.config.environment.healthcheck
    if table is not None:
        yield checks.of_task(table, name=TASK_CHECK, env=env, cwd=cwd, user=user)
