"""Environment variables and secrets (seed "Environment variables and secrets")."""

import base64
import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.conformance import ahead, harness
from tests.conformance.conftest import Runner
from tests.conformance.facts import broken, facts, kept
from tests.conformance.harness import DEFAULT_TOML, IMAGE, NOP, ORACLE, script, task

Status = dict[str, Any]

SECRET = "s3cr3t-judge-key-000"
TOKEN = "s3cr3t-host-token-111"
HOST = {"GREETING": "hello  world", "EMPTY": "", "SHARED": "from the host"}
FROM = [{"configMapRef": {"name": "host"}}, {"secretRef": {"name": "tokens"}}]
JUDGE = [{"name": "judge"}]


@pytest.fixture(scope="module", autouse=True)
def sources(cluster: harness.Cluster, namespace: str) -> Iterator[None]:
    """The ConfigMaps and Secrets that the runs of this module name."""
    maps = {"host": HOST, "later": {"GREETING": "later"}, "extra": {"COLOR": "blue"}}
    secrets = {"tokens": {"TOKEN": TOKEN}, "judge": {"JUDGE_KEY": SECRET, "SHARED": "from the secrets"}}
    for name, data in maps.items():
        cluster.core.create_namespaced_config_map(namespace, {"metadata": {"name": name}, "data": data})
    for name, data in secrets.items():
        cluster.core.create_namespaced_secret(namespace, {"metadata": {"name": name}, "stringData": data})
    yield
    for name in maps:
        cluster.core.delete_namespaced_config_map(name, namespace)
    for name in secrets:
        cluster.core.delete_namespaced_secret(name, namespace)


def toml(
    environment: Mapping[str, str] = {}, verifier: Mapping[str, str] = {}, *, cpus: float | None = None, more: str = ""
) -> str:
    """task.toml with env tables."""
    text = DEFAULT_TOML + (f"cpus = {cpus}\n" if cpus else "")
    for table, env in (("environment", environment), ("verifier", verifier)):
        text += f"[{table}.env]\n" + "".join(
            f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in env.items()
        )
    return text + more


def has(**variables: str) -> dict[str, str]:
    """Checks that variables have exactly these values."""
    return {name.lower(): f'[ "${{{name}-unset}}" = {shlex.quote(value)} ]' for name, value in variables.items()}


# -- templates -----------------------------------------------------------------------------------------------------

TEMPLATES = {
    "A": "${GREETING}",
    "B": "${NOWHERE:-a default}",
    "C": "${EMPTY:-a default}",
    "D": "before ${GREETING}",
    "E": "plain",
    "F": "${NOWHERE:-}",
    "G": "${TOKEN}",
}
FILLED = {
    "A": "hello  world",
    "B": "a default",
    "C": "",
    "D": "before ${GREETING}",
    "E": "plain",
    "F": "",
    "G": TOKEN,
}


@ahead.run(task(facts(**has(**FILLED)), toml=toml(environment=TEMPLATES)), environmentFrom=FROM)
def test_a_whole_value_in_environment_env_is_read_from_the_hosts_environment(status: Status) -> None:
    assert not broken(status)


@ahead.run(task(facts(**has(**FILLED)), toml=toml(verifier=TEMPLATES)), environmentFrom=FROM)
def test_a_whole_value_in_verifier_env_is_read_from_the_hosts_environment(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(
        facts(same='[ "$(cat seen)" = "$(echo "$A|$B|$C|$D|$E|$F|$G")" ]', no_verifier="[ ! -s verifier ]"),
        toml=toml(TEMPLATES, {"ONLY_FOR_TESTS": "1"}),
    ),
    script('echo "$A|$B|$C|$D|$E|$F|$G" > seen; env | grep ONLY_FOR_TESTS > verifier; true'),
    environmentFrom=FROM,
)
def test_the_agent_has_the_sandboxs_environment_and_not_the_verifiers(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(
        facts(**has(A="of the sandbox", B="of the verifier", C="of the run", D=SECRET)),
        toml=toml({"A": "of the sandbox", "B": "of the sandbox"}, {"B": "of the verifier", "C": "of the verifier"}),
    ),
    verifier={
        "env": [
            {"name": "C", "value": "of the run"},
            {"name": "D", "valueFrom": {"secretKeyRef": {"name": "judge", "key": "JUDGE_KEY"}}},
        ]
    },
)
def test_test_sh_sees_the_sandboxs_environment_plus_verifier_env_plus_the_runs_own(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(
        facts(**has(A="later", B="blue", C="absent")),
        toml=toml({"A": "${GREETING}", "B": "${X_COLOR}", "C": "${NO:-absent}"}),
    ),
    environmentFrom=[
        {"configMapRef": {"name": "host"}},
        {"configMapRef": {"name": "later"}},
        {"prefix": "X_", "configMapRef": {"name": "extra"}},
        {"configMapRef": {"name": "not-there", "optional": True}},
    ],
)
def test_later_sources_win_prefixes_count_and_optional_ones_may_be_missing(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(
        facts(seen='[ "$(cat seen)" = "hello  world|solution" ]', gone='[ -z "$ONLY_SOLVE" ]'),
        solve='echo "$GREETING|$ONLY_SOLVE" > seen',
        toml=toml(more='[solution.env]\nGREETING = "${GREETING}"\nONLY_SOLVE = "solution"\n'),
    ),
    ORACLE,
    environmentFrom=FROM,
)
def test_the_oracle_gets_solution_env(status: Status) -> None:
    assert not broken(status)


ODD = {"A": "plain", "B": "$(A)", "C": "$$(A)", "D": "$A `id`", "E": "two\nlines \"quoted\" 'so' ü🙂 \\"}


@pytest.mark.parametrize("table", ["environment", "verifier"])
@ahead.run(lambda table: task(facts(**has(**ODD)), toml=toml(**{table: ODD})))
def test_a_literal_value_arrives_as_it_is_written(status: Status, table: str) -> None:
    """Kubernetes would expand `$(A)` in a pod's env."""
    assert not broken(status)


# -- missing values ------------------------------------------------------------------------------------------------

NO_SOLUTION = '[solution.env]\nX = "${NOWHERE}"\n'
MISSING = {
    "environment": (toml({"X": "${NOWHERE}"}), NOP, "environment.env.X"),
    "verifier": (toml({}, {"X": "${NOWHERE}"}), NOP, "verifier.env.X"),
    "solution": (toml(more=NO_SOLUTION), ORACLE, "solution.env.X"),
    "a secret in environment": (toml({"X": "${JUDGE_KEY}"}), NOP, "JUDGE_KEY (for environment.env.X)"),
    "a secret in solution": (toml(more=NO_SOLUTION.replace("NOWHERE", "JUDGE_KEY")), ORACLE, "JUDGE_KEY"),
    "the operator's own environment": (toml({"X": "${PATH}"}), NOP, "PATH (for environment.env.X)"),
}


@pytest.mark.parametrize("case", MISSING)
@ahead.run(
    lambda case: task("echo 1 > /logs/verifier/reward.txt", solve="true", toml=MISSING[case][0]),
    lambda case: MISSING[case][1],
    secretsFrom=JUDGE,
    environmentFrom=[{"configMapRef": {"name": "host"}}],
)
def test_a_missing_required_value_fails_the_episode_before_any_sandbox_starts(
    cluster: harness.Cluster, namespace: str, run_name: str, status: Status, case: str
) -> None:
    assert status["phase"] == "Failed"
    assert status["failure"]["terminal"] is True
    assert MISSING[case][2] in status["failure"]["message"]
    assert ahead.failure(status) == (None, "MissingVariable", "admission")
    assert cluster.pods(namespace, run_name) == []
    assert "podName" not in status


@ahead.run(task("echo 1 > /logs/verifier/reward.txt", toml=toml(more=NO_SOLUTION)))
def test_a_missing_value_of_solution_env_matters_to_the_oracle_only(status: Status) -> None:
    assert status["reward"] == "1"


# -- secrets -------------------------------------------------------------------------------------------------------


@ahead.run(
    task(
        facts(**has(KEY=SECRET, WINS="from the secrets", HOST="from the host", D=TOKEN)),
        toml=toml({"HOST": "${SHARED}"}, {"KEY": "${JUDGE_KEY}", "WINS": "${SHARED}", "D": "${TOKEN:-x}"}),
    ),
    environmentFrom=FROM,
    secretsFrom=JUDGE,
)
def test_secrets_fill_verifier_env_only_and_win_over_the_host_environment(status: Status) -> None:
    assert not broken(status)


def test_secret_values_stand_in_no_pod_status_event_or_log(
    run: Runner, cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    agent = script(
        '[ "$AGENT_KEY" = s3cr3t-judge-key-000 ]',
        env=[{"name": "AGENT_KEY", "valueFrom": {"secretKeyRef": {"name": "judge", "key": "JUDGE_KEY"}}}],
        envFrom=[{"secretRef": {"name": "tokens"}}],
        install="true",
    )
    status = run(
        task(facts(**has(KEY=SECRET, X=TOKEN)), toml=toml({"X": "${TOKEN}"}, {"KEY": "${JUDGE_KEY}"})),
        agent,
        environmentFrom=FROM,
        secretsFrom=JUDGE,
        podRetention="Always",
    )
    assert not broken(status)
    assert status["agent"]["outcome"] == "Succeeded"
    assert_nowhere(cluster, namespace, operator, name)


def test_a_secret_that_a_verifier_prints_stands_in_no_status_event_or_log(
    run: Runner, cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    body = 'echo "the key is $KEY"; exit 1'
    status = run(task(body, toml=toml({}, {"KEY": "${JUDGE_KEY}"})), NOP, secretsFrom=JUDGE)
    assert status["failure"]["kind"] == "harbor:missing_reward"
    assert_nowhere(cluster, namespace, operator, name)


def test_a_secret_that_an_agent_prints_stands_in_no_status_event_or_log(
    run: Runner, cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str
) -> None:
    agent = script('echo "the token is $TOKEN"; exit 1', envFrom=[{"secretRef": {"name": "tokens"}}])
    status = run(task("echo 1 > /logs/verifier/reward.txt"), agent)
    assert status["agent"]["outcome"] == "Failed"
    assert_nowhere(cluster, namespace, operator, name)


def test_stored_logs_are_scrubbed_of_secret_values(run: Runner, operator: harness.Operator) -> None:
    body = 'echo "key=$KEY"; echo 1 > /logs/verifier/reward.txt'
    status = run(task(body, toml=toml({}, {"KEY": "${JUDGE_KEY}"})), NOP, secretsFrom=JUDGE)
    log = kept(operator, status)["logs/verifier/test-stdout.txt"].decode()
    assert log.startswith("key=")
    assert SECRET not in log


def assert_nowhere(cluster: harness.Cluster, namespace: str, operator: harness.Operator, name: str) -> None:
    """No secret value of this module in anything that is shown to people, neither plain nor as base64."""
    verifier = cluster.verifier(namespace, f"{name}-1-verify")

    def told() -> list[Any]:
        """The Events of the run once its last one is there: they come when nobody waits for them."""
        events = cluster.core.list_namespaced_event(namespace).items
        found = [event for event in events if event.involved_object.name.startswith(name)]
        last = [each for each in found if (each.involved_object.name, each.reason) == (name, "Completed")]
        return found if last else []

    events = cluster.until(told, "the run's Events")
    seen = {
        "TaskRun": json.dumps(cluster.run(namespace, name)["status"]),
        "VerifierRun": json.dumps([verifier["spec"], verifier["status"]]),
        "pods": str([pod.to_dict() for pod in cluster.pods(namespace, name)]),
        "events": str([event.message for event in events]),
        "log": operator.text(),
    }
    for value in (SECRET, TOKEN):
        found = [
            where for where, text in seen.items() if value in text or base64.b64encode(value.encode()).decode() in text
        ]
        assert not found


# -- CPU hints -----------------------------------------------------------------------------------------------------


@ahead.run(
    task(
        facts(**has(OMP_NUM_THREADS="2", PYTHON_CPU_COUNT="2", GOMAXPROCS="7")),
        toml=toml({"GOMAXPROCS": "7"}, cpus=2),
    )
)
def test_a_sandbox_with_a_cpu_limit_gets_cpu_hints_and_a_variable_the_task_sets_wins(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(facts(**has(OMP_NUM_THREADS="hello  world")), toml=toml({"OMP_NUM_THREADS": "${GREETING}"}, cpus=2)),
    environmentFrom=FROM,
)
def test_a_template_the_task_sets_wins_over_a_cpu_hint(status: Status) -> None:
    assert not broken(status)


@ahead.run(task(facts(**has(OMP_NUM_THREADS="unset"))))
def test_a_sandbox_without_a_cpu_limit_gets_no_cpu_hints(status: Status) -> None:
    assert not broken(status)


@ahead.run(task(facts(**has(OMP_NUM_THREADS="1")), toml=toml(cpus=1.5)))
def test_cpu_hints_are_whole_numbers(status: Status) -> None:
    assert not broken(status)


@ahead.run(task(facts(**has(OMP_NUM_THREADS="2")), toml=toml(cpus=1)), multipliers={"resource": 2})
def test_cpu_hints_follow_the_resource_multiplier(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(
        facts(**has(OMP_NUM_THREADS="5", GOMAXPROCS="2")),
        toml="[environment]\ncpus = 2\n",
        **{"environment/Dockerfile": f"FROM {IMAGE}\nENV OMP_NUM_THREADS=5\n"},
    )
)
def test_a_variable_of_the_image_on_record_wins_over_a_cpu_hint(status: Status) -> None:
    assert not broken(status)
