"""The command line: `python3 hack/cluster COMMAND`."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence

from hack.cluster import addons, kind, namespaces, parts, programs, settings, status, teardown
from hack.cluster import up as own
from hack.cluster.api import Api
from hack.cluster.parts import Part
from hack.cluster.settings import ClusterError, Settings
from hack.images import registry

NOT_HEALTHY = 3

COMMANDS: dict[str, str] = {
    "up": "start the cluster, or say that it runs",
    "down": "end it and leave nothing",
    "status": "nodes, ports, versions and memory; exit code 3 when not healthy",
    "kubeconfig": "print the path of the kubeconfig",
    "bin": "print the folder with kubectl, helm and ctr",
    "load-image": "push an image archive into the cluster's registry",
    "kill": "end a part of the cluster with SIGKILL",
    "start": "start a part that has ended, as it was started before",
    "restart": "kill and start",
    "link": "cut the link of a node (down) or join it again (up)",
    "free-volumes": "empty the local volumes whose claim is gone, and offer them again",
    "build": "only build the programs",
}

PART_COMMANDS: dict[str, Callable[[Settings, Part, int | None], None]] = {
    "kill": parts.kill,
    "start": parts.start,
    "restart": parts.restart,
}


def main(arguments: Sequence[str]) -> int:
    parser = _parser()
    parsed = parser.parse_args(arguments)
    try:
        chosen = settings.read({name: getattr(parsed, name.replace("-", "_")) for name, *_ in settings.OPTIONS})
        return _run(parsed, chosen)
    except (ClusterError, registry.RegistryError) as error:
        print(f"hack/cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nhack/cluster: interrupted; the next `up` or `down` cleans up", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 hack/cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_text in COMMANDS.items():
        command = commands.add_parser(name, help=help_text)
        if name == "load-image":
            command.add_argument("archive", help="a docker-archive or oci-archive file")
            command.add_argument("image", help="its upstream name, for example ghcr.io/team/image:1")
        if name in PART_COMMANDS:
            command.add_argument("part", choices=[part.value for part in Part], metavar="PART", help=", ".join(Part))
            command.add_argument("--node", help="for a part that each node has: which one, for example node-1")
        if name == "link":
            command.add_argument("direction", choices=["up", "down"])
            command.add_argument("--node", required=True, help="for example node-2")
        for option, variable, default, meaning in settings.OPTIONS:
            command.add_argument(f"--{option}", help=f"{meaning} [{variable}; default {default or 'see the docs'}]")
    return parser


def _run(parsed: argparse.Namespace, chosen: Settings) -> int:
    choice = kind.choose(os.environ, kind.docker_answers)
    match parsed.command:
        case "up":
            actions = {kind.Choice.GIVEN: _check_given, kind.Choice.KIND: kind.up, kind.Choice.OWN: own.up}
            return _done(actions[choice], chosen)
        case "down":
            actions = {kind.Choice.GIVEN: _leave_given, kind.Choice.KIND: kind.down, kind.Choice.OWN: _down}
            return _done(actions[choice], chosen)
        case "status":
            return _status(chosen, choice)
        case "kubeconfig":
            print(os.environ[kind.GIVEN] if choice is kind.Choice.GIVEN else chosen.kubeconfig)
            return 0
        case "load-image":
            if choice is kind.Choice.KIND:
                kind.load(chosen, parsed.archive)
            else:
                _load_image(settings.running(chosen) or chosen, parsed.archive, parsed.image)
            return 0
        case "kill" | "start" | "restart" | "link":
            return _hurt_or_heal(parsed, chosen, choice)
        case "free-volumes":
            return _done(_free_volumes, settings.running(chosen) or chosen)
        case "bin":
            print(chosen.cache / "bin")
            return 0
        case _:
            programs.link(programs.ensure(chosen.cache), chosen.cache / "bin")
            return 0


def _done(action: Callable[[Settings], None], chosen: Settings) -> int:
    action(chosen)
    return 0


def _down(chosen: Settings) -> None:
    with own.locked(chosen):
        target = settings.running(chosen) or chosen
        if not teardown.leftovers(target):
            print(f"the cluster {chosen.name} does not run, nothing is left of it")
            return
        teardown.remove(target)
        print(f"the cluster {chosen.name} is gone")


def _hurt_or_heal(parsed: argparse.Namespace, chosen: Settings, choice: kind.Choice) -> int:
    if choice is not kind.Choice.OWN:
        raise ClusterError("only the parts of a cluster that was started here can be killed and started again")
    with own.locked(chosen):
        target = settings.running(chosen)
        if target is None:
            raise ClusterError(f"the cluster {chosen.name} does not run")
        number = parts.number_of(target, parsed.node) if parsed.node else None
        if parsed.command == "link":
            namespaces.set_link(target, parts.number_of(target, parsed.node), up=parsed.direction == "up")
        else:
            PART_COMMANDS[parsed.command](target, Part(parsed.part), number)
    return 0


def _free_volumes(target: Settings) -> None:
    if not target.kubeconfig.exists():
        raise ClusterError(f"the cluster {target.name} does not run")
    freed = addons.free_volumes(target, Api(target.kubeconfig))
    print(f"free again: {', '.join(freed)}" if freed else "no volume waits for it")


def _status(chosen: Settings, choice: kind.Choice) -> int:
    if choice is not kind.Choice.OWN:
        path = os.environ.get(kind.GIVEN) or str(chosen.kubeconfig)
        answers = _answers(path, chosen)
        print(f"{choice} cluster of {path}: {'answers' if answers else 'does not answer'}")
        return 0 if answers else NOT_HEALTHY
    target = settings.running(chosen) or chosen
    found = status.observe(target)
    print("\n".join(status.lines(target, found)))
    return 0 if found.healthy else NOT_HEALTHY


def _check_given(chosen: Settings) -> None:
    path = os.environ[kind.GIVEN]
    if not _answers(path, chosen):
        raise ClusterError(f"the cluster of {kind.GIVEN}={path} does not answer; unset it to start a local one")
    print(f"the cluster of {path} answers; nothing is changed")


def _leave_given(chosen: Settings) -> None:
    print(f"the cluster of {kind.GIVEN} was not started here and is left alone")


def _answers(kubeconfig: str, chosen: Settings) -> bool:
    """With kubectl, because somebody else's kubeconfig may use any way to authenticate."""
    found = shutil.which("kubectl", path=f"{chosen.cache / 'bin'}:{os.environ.get('PATH', '')}")
    if not found:
        raise ClusterError(f"kubectl is needed to ask the cluster of {kubeconfig}: take `build` first")
    command = [found, "--kubeconfig", kubeconfig, "get", "--raw", "/readyz", "--request-timeout=10s"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _load_image(chosen: Settings, archive: str, name: str) -> None:
    """skopeo knows every archive format; the registry is plain HTTP on the loopback interface."""
    repository, tag = registry.repository_of(name)
    target = f"docker://{chosen.registry_on_host}/{repository}:{tag}"
    for transport in ("docker-archive", "oci-archive"):
        command = ["skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"]
        done = subprocess.run([*command, f"{transport}:{archive}", target], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            print(f"{name} is in the registry as {repository}:{tag}")
            return
    raise ClusterError(f"{archive} was not pushed: {done.stderr.strip()}")
