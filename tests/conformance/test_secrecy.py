"""C34: no value of a Secret stands in anything that people read, on a real cluster, whoever prints it, wherever.

Looked through: every object of the namespace (pods with their specs, both kinds, Events), the operator's log, the logs
of the cluster's own parts (where an exec's address would stand), and every byte of the store.
"""

import base64
import json
import secrets
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests import cluster as under_test
from tests.conformance import harness
from tests.conformance.conftest import Runner
from tests.conformance.facts import kept
from tests.conformance.harness import DEFAULT_TOML, NOP, script, task

MARK = secrets.token_hex(8)
"""Of this session: logs of the cluster hold those of earlier ones."""
VALUES = {
    "SHORT": MARK[:8],
    "PLAIN": f"plain-{MARK}-value",
    "LONG": f"{MARK}-" + "long value " * 2000,
    "LINES": f"-----BEGIN KEY-----\n{MARK}\n  second line\n\n-----END KEY-----\n",
    "QUOTES": f"""a"b'c\\d $HOME `id` {MARK} %s <&>""",
    "UNICODE": f"geheım-🙂-漢字-{MARK}-ü",
    "CODED": base64.b64encode(f"coded {MARK} \xff".encode()).decode(),
}
PRINTS = "".join(f'printf "%s\\n" "$S_{name}"\n' for name in VALUES)
TABLE = "".join(f'S_{name} = "${{{name}}}"\n' for name in VALUES)
LOGS = under_test.STATE / "taskfold/cluster/logs"
"""Of the local cluster's parts; another cluster has none here."""


def needles() -> dict[str, bytes]:
    """Every value in every spelling that could come out: as it is, in JSON, in base64, in an address."""
    found = {}
    for name, value in VALUES.items():
        found |= {
            f"{name} as it is": value.encode(),
            f"{name} in JSON": json.dumps(value)[1:-1].encode(),
            f"{name} in JSON, unescaped": json.dumps(value, ensure_ascii=False)[1:-1].encode(),
            f"{name} in base64": base64.b64encode(value.encode()),
            f"{name} in an address": urllib.parse.quote(value, safe="").encode(),
            f"{name} in a query": urllib.parse.quote_plus(value).encode(),
        }
    return found


def leaks(text: bytes) -> list[str]:
    return [what for what, needle in needles().items() if needle in text]


@pytest.fixture(scope="module", autouse=True)
def source(cluster: harness.Cluster, namespace: str) -> Iterator[None]:
    """The Secret of this module, which nothing below may show."""
    body = {"metadata": {"name": "shapes"}, "stringData": VALUES}
    cluster.core.create_namespaced_secret(namespace, body)
    yield
    cluster.core.delete_namespaced_secret("shapes", namespace)


def objects(cluster: harness.Cluster, namespace: str, name: str) -> Mapping[str, bytes]:
    """What the API server shows of the namespace, but Secrets, once the run's last Event is there."""

    def told() -> list[Any]:
        events = cluster.core.list_namespaced_event(namespace).items
        last = [e for e in events if (e.involved_object.name, e.reason) == (name, "Completed")]
        return events if last else []

    events = cluster.until(told, "the run's Events")
    custom = cluster.custom.list_namespaced_custom_object
    kinds = {plural: custom("taskfold.dev", "v1alpha1", namespace, plural) for plural in ("taskruns", "verifierruns")}
    pods = cluster.core.list_namespaced_pod(namespace)
    maps = cluster.core.list_namespaced_config_map(namespace)
    return {
        **{plural: json.dumps(listing, ensure_ascii=False).encode() for plural, listing in kinds.items()},
        "pods": json.dumps(cluster.core.api_client.sanitize_for_serialization(pods), ensure_ascii=False).encode(),
        "configmaps": json.dumps(cluster.core.api_client.sanitize_for_serialization(maps)).encode(),
        "events": json.dumps(cluster.core.api_client.sanitize_for_serialization(events), ensure_ascii=False).encode(),
    }


def assert_nowhere(cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str) -> None:
    seen = dict(objects(cluster, namespace, name))
    seen["the operator's log"] = operator.text().encode()
    assert b"taskfold.dev/run" in seen["pods"]
    for log in LOGS.glob("*.log"):
        seen[log.name] = log.read_bytes()
    stored = [path for path in operator.store.rglob("*") if path.is_file()]
    assert stored
    for path in stored:
        seen[str(path.relative_to(operator.store))] = path.read_bytes()
    found = {where: leaks(text) for where, text in seen.items()}
    assert not {where: what for where, what in found.items() if what}


FROM = [{"secretRef": {"name": "shapes"}}]
JUDGE = [{"name": "shapes"}]
AGENT_ENV = [{"name": f"S_{name}", "valueFrom": {"secretKeyRef": {"name": "shapes", "key": name}}} for name in VALUES]
STEP = '{"step_id": 1, "source": "user", "message": "x"}'
ATIF = f'{{"schema_version": "ATIF-v1.7", "agent": {{"name": "a", "version": "1"}}, "steps": [{STEP}], "%s": 1}}'


def test_what_agent_hooks_and_verifier_print_is_shown_nowhere(
    run: Runner, cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    files = task(
        PRINTS + "env >&2; cat /proc/self/environ; exit 3",
        toml=DEFAULT_TOML
        + f"[environment.env]\n{TABLE}[verifier.env]\n{TABLE}"
        + f"[[verifier.collect]]\ncommand = '''\n{PRINTS}exit 4'''\n",
    )
    agent = script(
        PRINTS
        + f"printf '{ATIF}' \"$S_PLAIN\" > /logs/agent/trajectory.json\n"
        + f"({PRINTS}) > /logs/agent/response.txt; ({PRINTS}) > /logs/agent/notes.txt; exit 5",
        install=PRINTS,
        env=AGENT_ENV,
        envFrom=FROM,
    )
    status = run(files, agent, environmentFrom=FROM, secretsFrom=JUDGE, podRetention="Always")
    assert status["agent"]["outcome"] == "Failed"
    assert status["failure"]["kind"] == "harbor:missing_reward"
    assert "[secret]" in status["failure"]["message"]
    assert [note for note in status["warnings"] if "[[verifier.collect]]" in note and "[secret]" in note]
    assert [note for note in status["warnings"] if "is no valid ATIF v1.7 file: [secret]: Extra inputs" in note]
    assert_nowhere(cluster, namespace, operator, name)
    # What was looked through did have the values, and has stars in their place: also the transcript, which is JSON.
    files_kept = kept(operator, status)
    for path in ("logs/verifier/test-stdout.txt", "logs/agent/stdout.txt", "logs/agent/response.txt"):
        assert b"*" * len(VALUES["PLAIN"]) in files_kept[path], path
    steps = json.loads(files_kept["logs/agent/trajectory.json"])["steps"]
    assert [step["source"] for step in steps] == ["user", "agent"]
    assert "*" * len(VALUES["UNICODE"].encode()) in steps[1]["message"]


def test_a_seed_that_fails_shows_no_secret_either(
    run: Runner, cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    """[environment.healthcheck] has the sandbox's variables, and its output is told when it fails."""
    check = f"[environment.healthcheck]\ncommand = '''\n{PRINTS}exit 1'''\nretries = 0\n"
    files = task("true", toml=DEFAULT_TOML + f"[environment.env]\n{TABLE}{check}")
    status = run(files, NOP, environmentFrom=FROM, podRetention="Always")
    assert status["phase"] == "Failed"
    assert_nowhere(cluster, namespace, operator, name)


def test_an_installation_that_fails_shows_no_secret(
    run: Runner, cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    agent = script("true", install=PRINTS + "exit 6", env=AGENT_ENV)
    status = run(task("true"), agent, podRetention="Always")
    assert (status["phase"], status["failure"]["reason"]) == ("Failed", "AgentInstallFailed")
    assert "[secret]" in status["failure"]["message"]
    assert_nowhere(cluster, namespace, operator, name)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_would_be_found(name: str) -> None:
    text = json.dumps({"message": f"x{VALUES[name]}x"}).encode()
    assert leaks(text)
    assert leaks(f"GET /exec?command={urllib.parse.quote(VALUES[name], safe='')}".encode())
