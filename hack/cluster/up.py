"""Bringing the cluster up, from an empty machine to Ready nodes, in one readable sequence."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hack.cluster import (
    addons,
    certificates,
    control_plane,
    namespaces,
    node,
    parts,
    prerequisites,
    processes,
    programs,
    status,
    teardown,
)
from hack.cluster.api import Api, wait
from hack.cluster.settings import ClusterError, Settings
from hack.cluster.settings import running as running_settings
from hack.images import registry, system

READY_LIMIT = 120.0


@contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """One `up` or `down` of a cluster at a time; a second one waits for the first."""
    settings.cache.mkdir(parents=True, exist_ok=True)
    with (settings.cache / f"{settings.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another command on the cluster {settings.name} …", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def up(settings: Settings) -> None:
    """Start the cluster; harmless when it runs, and a fresh start after one that was interrupted."""
    prerequisites.ensure(prerequisites.this_machine())
    with locked(settings):
        if _runs_already(settings):
            return
        folders = programs.ensure(settings.cache)
        programs.link(folders, settings.cache / "bin")
        images = system.images(settings.cache, folders)
        if teardown.leftovers(settings):
            print("removing what an earlier start left …", flush=True)
            teardown.remove(running_settings(settings) or settings)
        teardown.refuse_foreign_folder(settings)
        namespaces.refuse_overlap(settings, namespaces.routes_of_host())

        began = time.monotonic()
        teardown.remember_outside(settings)
        status.record(settings, "starting")
        programs.link(folders, settings.bin)
        certificates.make(settings)
        namespaces.make(settings)
        for number in settings.node_numbers():
            node.prepare(settings, number)
        addons.make_volume_folders(settings)
        api = control_plane.start(settings)
        _say(began, "control plane ready")
        local = registry.Registry(settings.registry_on_host)
        local.push(images["pause"], node.PAUSE_IMAGE)
        local.push(images["coredns"], addons.DNS_IMAGE)
        for number in settings.node_numbers():
            node.start(settings, number, api)
        for number in settings.node_numbers():
            node.start_policies(settings, number, api)
        # After the nodes are known: a pod that finds none at first is tried again only seconds later.
        addons.apply(settings, api)
        _wait_for_nodes(settings, api, began)
        _wait_for_dns(settings, api)
        _say(began, "DNS ready")
        status.record(settings, "ready")
        print("\n".join(status.lines(settings, status.observe(settings))))


def _runs_already(settings: Settings) -> bool:
    recorded = running_settings(settings)
    if recorded is None:
        return False
    found = status.observe(recorded)
    differing = _differing(recorded, settings)
    if found.complete and not found.healthy and not differing:
        found = _healed(recorded)
    if not found.healthy:
        return False
    if differing:
        raise ClusterError(
            f"the cluster {settings.name} runs with other settings ({', '.join(differing)}): take `down` first"
        )
    if renewed := parts.renewed(recorded):
        print(f"started anew, with the arguments of today: {', '.join(renewed)}", flush=True)
    print(f"the cluster {settings.name} runs already")
    print("\n".join(status.lines(recorded, found)))
    return True


def _differing(recorded: Settings, wanted: Settings) -> list[str]:
    """The settings that the running cluster does not meet. More nodes than wanted do no harm."""
    names = [k for k, v in recorded.as_json().items() if v != wanted.as_json()[k] and k != "cache"]
    return [name for name in names if name != "nodes" or recorded.nodes < wanted.nodes]


def _healed(recorded: Settings) -> status.Status:
    """A cluster that lost parts keeps its objects and images: the parts are started again where that helps."""
    if parts.can_be_healed(recorded):
        try:
            if started := parts.heal(recorded):
                print(f"started again: {', '.join(started)}", flush=True)
        except ClusterError as error:
            print(f"cannot be healed: {error}", flush=True)
    return status.observe(recorded)


def _wait_for_nodes(settings: Settings, api: Api, began: float) -> None:
    for number in settings.node_numbers():
        name = settings.node_name(number)

        def ready(name: str = name) -> bool:
            processes.require_all_alive(settings)
            return status.node_ready(api.get(f"/api/v1/nodes/{name}"))

        def why_not(name: str = name) -> str:
            return processes.tail(settings, f"{name}-kubelet")

        wait(f"the readiness of {name}", ready, READY_LIMIT, why_not)
        _say(began, f"{name} Ready")


def _wait_for_dns(settings: Settings, api: Api) -> None:
    def ready() -> bool:
        processes.require_all_alive(settings)
        return status.dns_ready(api)

    wait("the readiness of the cluster's DNS", ready, READY_LIMIT)


def _say(began: float, what: str) -> None:
    print(f"{time.monotonic() - began:5.1f} s  {what}", flush=True)
