"""What is admitted: refusals by name, where the folder comes from, its digest (C25)."""

import base64
import gzip
import io
import tarfile
import zlib
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tests.conformance import ahead, harness, inside
from tests.conformance.facts import broken, facts
from tests.conformance.harness import DEFAULT_TOML, NOP, ORACLE, script, task

Status = dict[str, Any]

ONE = "echo 1 > /logs/verifier/reward.txt"


# -- fields of the run that later versions implement ---------------------------------------------------------------

UNSUPPORTED_FIELDS = {
    "spec.mcpGrants": {"mcpGrants": "required"},
    "spec.composeOverlay": {"composeOverlay": {"name": "overlay", "keys": ["compose.yaml"]}},
    "spec.agent.profile": {"agent": {"profile": {"name": "codex"}}},
    "spec.task.archive": {"task": {"archive": {"url": "https://example.com/t.tar.gz", "sha256": "0" * 64}}},
    "spec.task.oci": {"task": {"oci": {"reference": "registry.example/t:1"}}},
    "spec.task.git": {"task": {"git": {"url": "https://example.com/t.git", "ref": "main"}}},
}


@pytest.mark.parametrize("path", UNSUPPORTED_FIELDS)
def test_a_field_of_a_later_version_is_refused_with_its_dotted_path(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str, path: str
) -> None:
    cluster.create_run(namespace, name, {**harness.spec(task(ONE), NOP), **UNSUPPORTED_FIELDS[path]})
    refused(ahead.verdict(cluster, namespace, name), "UnsupportedField", path, "not supported yet")


def refused(status: Status, reason: str, *words: str) -> None:
    """The run ended, terminal, before there was a pod, with a message that has these words."""
    assert status["phase"] == "Failed", status
    assert ahead.failure(status) == (None, reason, "admission")
    assert status["failure"]["terminal"] is True
    assert "podName" not in status
    assert [word for word in words if word not in status["failure"]["message"]] == []


# -- keys and files of the folder that later versions implement ----------------------------------------------------

UNSUPPORTED_KEYS = {
    "environment.mcp_servers": DEFAULT_TOML + '[[environment.mcp_servers]]\nname = "m"\nurl = "http://m"\n',
    "artifacts[0].service": 'artifacts = [{ source = "/data", service = "db" }]\n' + DEFAULT_TOML,
    "verifier.collect[0].service": DEFAULT_TOML + '[[verifier.collect]]\ncommand = "true"\nservice = "db"\n',
}


@pytest.mark.parametrize("key", UNSUPPORTED_KEYS)
@ahead.run(lambda key: task(ONE, toml=UNSUPPORTED_KEYS[key]))
def test_a_key_of_a_later_version_is_refused_with_its_dotted_path(status: Status, key: str) -> None:
    refused(status, "UnsupportedField", "task.toml", key, "not supported yet")


@ahead.run(task(ONE, **{"environment/docker-compose.yaml": "services: {}"}))
def test_a_file_of_a_later_version_is_refused_by_its_name(status: Status) -> None:
    refused(status, "UnsupportedField", "environment/docker-compose.yaml", "not supported yet")


# -- folders that are wrong ----------------------------------------------------------------------------------------

WRONG = {
    "invalid TOML": (task(ONE, toml="[environment\n"), ["task.toml", "is not valid TOML", "line 1"]),
    "no image": (task(ONE, toml="[environment]\n"), ["task.toml", "environment.docker_image"]),
    "no tests": (task(), ["tests/", "is missing"]),
    "no test.sh": (task(**{"tests/other.sh": ""}), ["tests/test.sh", "is missing"]),
    "no task.toml": ({"instruction.md": "x", "tests/test.sh": ONE}, ["task.toml", "is missing"]),
    "a limit": (task(ONE, toml=DEFAULT_TOML + "[verifier]\ntimeout_sec = -1\n"), ["verifier.timeout_sec = -1"]),
    "a text for a number": (task(ONE, toml=DEFAULT_TOML + 'cpus = "two"\n'), ["environment.cpus", '"two"']),
    "a restriction": (task(ONE, toml=DEFAULT_TOML + 'network_mode = "no-network"\n'), ["environment.network_mode"]),
    "another": (task(ONE, toml=DEFAULT_TOML + '[agent]\nnetwork_mode = "no-network"\n'), ["agent.network_mode"]),
    "windows": (task(ONE, toml=DEFAULT_TOML + 'os = "windows"\n'), ["environment.os"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
@ahead.run(lambda case: WRONG[case][0])
def test_a_folder_that_is_wrong_is_refused_by_file_key_and_value(status: Status, case: str) -> None:
    refused(status, "InvalidTask", *WRONG[case][1])


@ahead.run(task(ONE, toml=DEFAULT_TOML + "docker_imag = 1\n[verifer]\nx = 1\n"))
def test_unknown_keys_are_warnings_with_their_dotted_path(status: Status) -> None:
    assert status["reward"] == "1"
    assert any("environment.docker_imag" in warning for warning in status["warnings"])
    assert any("verifer" in warning for warning in status["warnings"])


@pytest.mark.parametrize(
    "changed",
    [
        {"agent": {"oracle": {}, "nop": {}}},
        {"agent": {}},
        {"task": {}},
        {"task": {"inline": {"files": {"../x": ""}}}},
        {"multipliers": {"timeout": 0}},
        {"agent": {"script": {"run": ""}}},
    ],
    ids=["two agents", "no agent", "no source", "a path that leaves", "a factor of 0", "an empty script"],
)
def test_a_spec_that_cannot_be_meant_is_refused_by_the_api_server(
    cluster: harness.Cluster, namespace: str, name: str, changed: dict[str, Any]
) -> None:
    with pytest.raises(ApiException) as refusal:
        cluster.create_run(namespace, name, {**harness.spec(task(ONE), NOP), **changed})
    assert refusal.value.status == 422


# -- sources -------------------------------------------------------------------------------------------------------


def config_map(cluster: harness.Cluster, namespace: str, name: str, data: dict[str, str], **binary: bytes) -> None:
    encoded = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in binary.items()}
    body = {"metadata": {"name": name}, "data": data, "binaryData": encoded}
    cluster.core.create_namespaced_config_map(namespace, body)


def items(files: dict[str, str]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Data of a ConfigMap, whose keys hold no slash, and the list that makes paths of them."""
    keys = {path: path.replace("/", ".") for path in files}
    return {keys[path]: text for path, text in files.items()}, [{"key": k, "path": p} for p, k in keys.items()]


def archive(files: dict[str, str], prefix: str = "./") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(prefix + path)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def test_a_config_map_with_items_is_a_task_folder(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    files = task(facts(solved='[ "$(cat answer)" = 42 ]', helper="/tests/helper"), solve="echo 42 > answer")
    data, paths = items({**files, "tests/helper": "#!/bin/sh\nexit 0\n"})
    config_map(cluster, namespace, name, data)
    source = {"configMap": {"name": name, "items": paths}}
    cluster.create_run(namespace, name, {"task": source, "agent": ORACLE})
    status = ahead.verdict(cluster, namespace, name)
    assert not broken(status)
    assert status["task"]["id"] == name


@pytest.mark.parametrize("path", [None, "datasets/one"])
def test_a_config_map_with_task_tar_gz_is_a_task_folder(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str, path: str | None
) -> None:
    content = archive(task(ONE), prefix=f"./{path}/" if path else "./")
    config_map(cluster, namespace, name, {}, task_tar_gz=content)
    source = {"configMap": {"name": name}, **({"path": path} if path else {})}
    cluster.create_run(namespace, name, {"task": source, "agent": NOP})
    status = ahead.verdict(cluster, namespace, name)
    assert status["reward"] == "1"
    assert status["task"]["id"] == ("one" if path else name)


def damaged(fault: type[Exception]) -> bytes:
    """An archive with a few bytes changed behind its first files, so that unpacking the whole raises `fault`."""
    bulk = "".join(chr(33 + zlib.crc32(b"%d" % number) % 90) for number in range(100_000))
    good = archive({**task(ONE), "zzz": bulk})
    for offset in range(2_000, len(good) - 1_000, 1_000):
        content = good[:offset] + b"\x55\x55\x55" + good[offset + 3 :]
        try:
            gzip.decompress(content)
        except fault:
            return content
        except Exception:  # another fault than the wanted one
            continue
    raise AssertionError(f"no damage gives {fault}")


ARCHIVES = {
    "cut off": lambda: archive({**task(ONE), "zzz": "x" * 100_000})[:-20],
    "a wrong checksum": lambda: damaged(gzip.BadGzipFile),
    "damaged": lambda: damaged(zlib.error),
    "something else": lambda: b"not an archive",
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_that_cannot_be_read_is_refused(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str, kind: str
) -> None:
    config_map(cluster, namespace, name, {}, task_tar_gz=ARCHIVES[kind]())
    cluster.create_run(namespace, name, {"task": {"configMap": {"name": name}}, "agent": NOP})
    refused(ahead.verdict(cluster, namespace, name), "InvalidTask", "task.tar.gz", name)


def test_a_missing_config_map_is_waited_for(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    data, paths = items(task(ONE))
    cluster.create_run(namespace, name, {"task": {"configMap": {"name": name, "items": paths}}, "agent": NOP})
    assert name in cluster.shown(namespace, name, "SourceNotFound")
    assert cluster.status(namespace, name)["phase"] == "Pending"
    config_map(cluster, namespace, name, data)
    assert ahead.verdict(cluster, namespace, name)["reward"] == "1"


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_a_variable_that_is_not_text_is_answered(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str, kind: str
) -> None:
    """As for envFrom of a pod: what is no text is left out, or it is refused by name; never a run that hangs."""
    if kind == "ConfigMap":
        config_map(cluster, namespace, name, {"A": "text"}, B=b"\xff\xfe")
        source: dict[str, Any] = {"configMapRef": {"name": name}}
    else:
        data = {"A": base64.b64encode(b"text").decode(), "B": base64.b64encode(b"\xff\xfe").decode()}
        cluster.core.create_namespaced_secret(namespace, {"metadata": {"name": name}, "data": data})
        source = {"secretRef": {"name": name}}
    cluster.create_run(namespace, name, harness.spec(task(ONE), script("true"), environmentFrom=[source]))
    status = ahead.verdict(cluster, namespace, name)
    assert status.get("reward") == "1" or name in status["failure"]["message"]


# -- the digest (C25) ----------------------------------------------------------------------------------------------


def test_a_source_that_changed_between_admission_and_seed_is_refused_by_both_digests(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    data, paths = items(task(ONE))
    config_map(cluster, namespace, name, data)
    source = {"configMap": {"name": name, "items": paths}}
    cluster.create_run(namespace, name, {"task": source, "agent": NOP, "suspend": True})
    first = cluster.in_phase(namespace, name, "Queued")["admitted"]["taskDigest"]
    cluster.core.patch_namespaced_config_map(name, namespace, {"data": {"instruction.md": "Do something else.\n"}})
    cluster.patch_run(namespace, name, {"suspend": False})
    status = ahead.verdict(cluster, namespace, name)
    assert (status["phase"], status["failure"]["terminal"]) == ("Failed", True)
    assert ahead.failure(status) == (None, "TaskChanged", "seed")
    assert first in status["failure"]["message"]
    assert status["failure"]["message"].count("sha256:") == 2
    assert cluster.pods(namespace, name) == []


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("[gym.tasks.one.environment]\nworkdir = '/other'\n", "TaskChanged"),
        ("[gym.tasks.two.environment]\ncpus = 1\n", ""),
    ],
    ids=["of this task", "of another task"],
)
def test_settings_of_the_dataset_are_part_of_the_digest_of_the_task_that_they_are_about(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str, changed: str, reason: str
) -> None:
    own = {f"one/{path}": content for path, content in task(ONE).items()}
    data, paths = items({**own, "dataset.toml": ""})
    config_map(cluster, namespace, name, data)
    source = {"configMap": {"name": name, "items": paths}, "path": "one"}
    cluster.create_run(namespace, name, {"task": source, "agent": NOP, "suspend": True})
    cluster.in_phase(namespace, name, "Queued")
    cluster.core.patch_namespaced_config_map(name, namespace, {"data": {"dataset.toml": changed}})
    cluster.patch_run(namespace, name, {"suspend": False})
    status = ahead.verdict(cluster, namespace, name)
    assert status.get("failure", {}).get("reason", "") == reason
    assert status.get("reward", "") == ("" if reason else "1")


def test_after_the_pod_exists_the_snapshot_alone_counts(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    data, paths = items(task(ONE))
    config_map(cluster, namespace, name, data)
    source = {"configMap": {"name": name, "items": paths}}
    agent = script("until [ -e /tmp/go ]; do sleep 0.1; done")
    cluster.create_run(namespace, name, {"task": source, "agent": agent})
    cluster.in_phase(namespace, name, "Running")
    cluster.core.delete_namespaced_config_map(name, namespace)
    inside.shell(cluster, namespace, f"{name}-1-1", "touch /tmp/go")
    assert ahead.verdict(cluster, namespace, name)["reward"] == "1"


def test_the_same_folder_has_the_same_digest_from_every_source(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    files = task(ONE)
    data, paths = items(files)
    config_map(cluster, namespace, name, data)
    sources = {"inline": {"inline": {"files": files}}, "items": {"configMap": {"name": name, "items": paths}}}
    digests = set()
    for kind, source in sources.items():
        cluster.create_run(namespace, f"{name}-{kind}", {"task": source, "agent": NOP, "suspend": True})
        digests.add(cluster.in_phase(namespace, f"{name}-{kind}", "Queued")["admitted"]["taskDigest"])
    assert len(digests) == 1
