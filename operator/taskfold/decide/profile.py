"""What a run's security profile means for it: whom its pods run as, what it cannot have then, how to help.

Guarantees: what can be known from spec and task is refused before a pod exists, each with its remedy; names are looked
up in the sandbox by the helper, at seed, which refuses what the pod cannot become. A profile is never weakened.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from taskfold.api.settings import Settings
from taskfold.api.taskrun import SecurityProfile, TaskRun
from taskfold.contract import steps, users
from taskfold.contract.images import RecordedImage
from taskfold.contract.task import Task
from taskfold.decide.world import RunWorld

ONE_USER = (
    "In the profile restricted everything runs as one user; in userns the numbers end at 65535. Name no user, or that "
    "one, or write spec.security.profile: root."
)
USERNS_IDS = 65_536
"""User and group numbers of a pod's own user namespace, from 0: what kubelets map unless told otherwise."""

HOUSEKEEPING = ("/tests", "/logs", "/solution", "/.taskfold", "/proc", "/sys", "/dev")
"""No folder of a run's own may take their place, or lie in them."""

NEEDS_USERNS = (
    "The profile userns needs Kubernetes 1.33, Linux 6.3, containerd 2.0 or CRI-O 1.25, and runc 1.2 or crun 1.9 on "
    "the node; `kubectl describe pod` has the kubelet's own words. Choose such nodes by spec.pod.nodeSelector, or "
    "write spec.security.profile: root."
)
NEEDS_FOLDER = (
    "The pod's one user cannot make that folder. Make it in the image, writable for him, or name it in "
    "spec.security.emptyDirs."
)
NEEDS_NUMBER = (
    "The profile restricted runs a pod as one user that is not root. Write its number in spec.security.runAsUser, or "
    "take an image whose USER is a number other than 0."
)


@dataclass(frozen=True)
class Confinement:
    """The profile of a run's pods. `uid`, `gid`: the one user of a restricted pod; None: the image's own."""

    profile: SecurityProfile
    uid: int | None = None
    gid: int | None = None


def of(run: TaskRun, task: Task, settings: Settings, recorded: RecordedImage | None = None) -> Confinement:
    """The profile of this run, and in `restricted` its user: the run's word, the agent's number, the operator's, else
    that of the image on record.
    """
    own = run.spec.security
    profile = (own.profile if own is not None else None) or SecurityProfile(settings.pod.security_profile)
    if profile is not SecurityProfile.RESTRICTED:
        return Confinement(profile)
    chosen = own.run_as_user if own is not None else None
    script = run.spec.agent.script
    first = steps.turn(task, 0).config.agent.user
    agent = script.user if script is not None and script.user is not None else first
    number = agent if isinstance(agent, int) else settings.pod.restricted_uid
    uid = chosen if chosen is not None else number
    image = users.of_image(recorded.config.user) if uid is None and recorded is not None else None
    return Confinement(profile, image.uid, image.gid) if image is not None else Confinement(profile, uid)


def refusal(run: TaskRun, task: Task, recorded: RecordedImage | None, settings: Settings) -> str | None:
    """Why a run cannot have what it asks for under its profile; None: nothing is known against it."""
    return next(_refusals(run, task, recorded, of(run, task, settings, recorded)), None)


def _refusals(run: TaskRun, task: Task, recorded: RecordedImage | None, confinement: Confinement) -> Iterator[str]:
    match confinement.profile:
        case SecurityProfile.RESTRICTED:
            yield from _restricted(run, task, recorded, confinement.uid)
        case SecurityProfile.USERNS:
            yield from _of_other_profile(run, confinement.profile)
            for what, user in _numbers(run, task, recorded):
                if user >= USERNS_IDS:
                    yield (
                        f"{what} is {user}, and the pod's user namespace has the numbers 0 to {USERNS_IDS - 1} only. "
                        "Take a smaller number, or spec.security.profile: root."
                    )
        case SecurityProfile.ROOT:
            yield from _of_other_profile(run, confinement.profile)


def _of_other_profile(run: TaskRun, profile: SecurityProfile) -> Iterator[str]:
    own = run.spec.security
    if own is not None and (own.run_as_user is not None or own.empty_dirs):
        name = "runAsUser" if own.run_as_user is not None else "emptyDirs"
        yield (
            f"spec.security.{name} belongs to the profile restricted, and this run has {profile}. Leave it out, or "
            "write spec.security.profile: restricted."
        )


def _restricted(run: TaskRun, task: Task, recorded: RecordedImage | None, uid: int | None) -> Iterator[str]:
    for path in run.spec.security.empty_dirs if run.spec.security is not None else ():
        if any(_overlaps(path, other) for other in HOUSEKEEPING):
            yield f"spec.security.emptyDirs: {path} is in the way of the operator's own folders. Leave it out."
    script = run.spec.agent.script
    if script is not None and script.install:
        yield (
            "spec.agent.script.install runs as root, which the profile restricted does not allow. Put what it installs "
            "into the image, or into `run` as the pod's user."
        )
    if task.image.dockerfile is not None and task.image.dockerfile.overlay:
        yield (
            "environment/Dockerfile has RUN lines, which run as root at seed; the profile restricted does not allow "
            "it. Build the image and name it in [environment].docker_image."
        )
    if not uid and recorded is not None:
        yield f"the image's USER on record is {recorded.config.user or 'root'}. {NEEDS_NUMBER}"
    user = recorded.config.user if recorded is not None else None
    turns = [turn.config for turn in steps.turns(task) if turn.config.verifier.user is None]
    if any(users.verifier(config, user) == users.ROOT for config in turns):
        yield (
            "[agent].user is set and [verifier].user is not, so test.sh would run as root, which the profile "
            "restricted does not allow. Write [verifier].user, with the same user."
        )
    for what, number in _numbers(run, task, None):
        if number == 0 or (uid is not None and number != uid):
            pod = f"user {uid}" if uid else "one user that is not root"
            yield (
                f"{what} is {number}, and in the profile restricted everything runs as {pod}: users cannot be "
                "switched. Write the same number everywhere, or none, or spec.security.profile: root."
            )


def _overlaps(path: str, other: str) -> bool:
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


def _numbers(run: TaskRun, task: Task, recorded: RecordedImage | None) -> Iterator[tuple[str, int]]:
    """Everybody who is named by a number, and by whom."""
    script = run.spec.agent.script
    own = script.user if script is not None else None
    named: list[tuple[str, int | str | None]] = [("spec.agent.script.user", own)]
    for turn in steps.turns(task):
        agent, verifier = turn.config.agent, turn.config.verifier
        named += [("[agent].user", agent.user if own is None else None), ("[verifier].user", verifier.user)]
        named += [(f"[[verifier.collect]] {n}: user", hook.user) for n, hook in enumerate(verifier.collect, start=1)]
    image = users.of_image(recorded.config.user) if recorded is not None else None
    if image is not None:
        named += [("the image's USER on record", image.uid), ("the group of the image's USER on record", image.gid)]
    return ((what, user) for what, user in named if isinstance(user, int))


def warnings(run: TaskRun, task: Task, settings: Settings) -> list[str]:
    """What a user of this profile should know about every run."""
    if of(run, task, settings).profile is not SecurityProfile.RESTRICTED:
        return []
    return [
        "profile restricted: agent and verifier are the same user, so a process that the agent left can rewrite the "
        "verifier's files and the reward until test.sh has ended. What the image has at /tests, /logs and /solution is "
        "not seen."
    ]


def explained(world: RunWorld, message: str) -> str:
    """What a kubelet says about a container that does not start, with what the profile needs."""
    if world.task is None:
        return message
    match of(world.run, world.task, world.settings).profile:
        case SecurityProfile.USERNS:
            return f"{message}. {NEEDS_USERNS}".lstrip(". ")
        case SecurityProfile.RESTRICTED if hopeless(message):
            return f"{message}. {NEEDS_NUMBER}"
        case _:
            return message


def hopeless(message: str) -> bool:
    """Whether a kubelet says that the image's user is not one that the profile restricted allows."""
    return "runAsNonRoot" in message


def lacks_folder(world: RunWorld, message: str) -> bool:
    """Whether the helper could not make a folder because it is not root."""
    if world.task is None or "permission denied" not in message:
        return False
    return of(world.run, world.task, world.settings).profile is SecurityProfile.RESTRICTED
