"""A large delivery into a verifier's own sandbox: the status says how far it is, in few writes, until it is there."""

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes.client
import kubernetes.config
import kubernetes.watch
import pytest
import urllib3.exceptions

from taskfold.conformance.cases import separate
from tests.conformance import harness
from tests.conformance.harness import script, task

pytestmark = [pytest.mark.bulk, pytest.mark.timeout(300)]

SIZE = 192
TOLD = re.compile(r"artifacts: (\d+) of (\d+) MiB")
SLOW = f'docker_image = "{harness.IMAGE}"\nworkdir = "/app"\ncpus = 0.05\n'
"""Little of a processor: what unpacks there takes its time."""


class Written:
    """The statuses of a namespace's VerifierRuns, each as it was written."""

    def __init__(self, cluster: harness.Cluster, namespace: str) -> None:
        self.statuses: list[dict[str, Any]] = []
        client = kubernetes.config.new_client_from_config(str(cluster.kubeconfig))
        self._listed = kubernetes.client.CustomObjectsApi(client).list_namespaced_custom_object
        self._namespace, self._watch = namespace, kubernetes.watch.Watch()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        where = (harness.GROUP, harness.VERSION, self._namespace, "verifierruns")
        with contextlib.suppress(urllib3.exceptions.ProtocolError):  # how `stop` ends it, in the midst of a chunk
            for event in self._watch.stream(self._listed, *where, resource_version="0", timeout_seconds=280):
                self.statuses.append(event["raw_object"].get("status") or {})

    def stop(self) -> None:
        self._watch.stop()


def words(status: dict[str, Any]) -> tuple[str, str]:
    """What it waits for: reason and message."""
    found = next((each for each in status.get("conditions", ()) if each["type"] == "Reconciling"), None)
    return (found["reason"], found["message"]) if found is not None else ("", "")


@pytest.fixture
def written(cluster: harness.Cluster, own_namespace: str, own_operator: harness.Operator) -> Iterator[Written]:
    watched = Written(cluster, own_namespace)
    yield watched
    watched.stop()


def test_the_status_says_how_far_it_is(
    cluster: harness.Cluster, own_namespace: str, written: Written, own_operator: harness.Operator, tmp_path: Path
) -> None:
    size = SIZE * 2**20
    test = f'[ "$(stat -c %s /app/one /app/two | paste -sd+)" = {size // 2}+{size // 2} ]'
    files = task(f"{test} && echo 1 > /logs/verifier/reward.txt")
    files["task.toml"] = separate.toml(artifacts='"/app/one", "/app/two"', own=SLOW)
    agent = script(f"for name in one two; do head -c {size // 2} /dev/zero > /app/$name; done")
    cluster.create_run(own_namespace, "large", harness.spec(files, agent))
    status = cluster.finished(own_namespace, "large", 240)
    assert status.get("reward") == "1", status
    cluster.until(lambda: written.statuses and written.statuses[-1].get("complete"), "the watch has seen the end")
    seeding = [words(each) for each in written.statuses if each.get("phase") == "Seeding"]
    assert {reason for reason, message in seeding if TOLD.fullmatch(message)} == {"Seeding"}
    told = [tuple(map(int, found.groups())) for _, message in seeding if (found := TOLD.fullmatch(message))]
    assert {total for _, total in told} == {SIZE}, seeding
    sent = [sent for sent, _ in told]
    assert sent == sorted(sent)
    assert 0 <= sent[0] <= sent[-1] <= SIZE
    assert len(set(sent)) <= 12, "rarely"
    assert len(seeding) <= len(told) + 4, "and no other writes for it"
    assert "MiB" not in words(written.statuses[-1])[1]
