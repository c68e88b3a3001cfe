"""Images: the tools they must have, what counts as their record, and images that cannot be pulled (C29)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance import ahead, harness
from tests.conformance.facts import broken, facts
from tests.conformance.harness import IMAGE, NOP, script, task

Status = dict[str, Any]

TEST = "docker.io/taskfold-test"
ONE = "echo 1 > /logs/verifier/reward.txt"


def image(name: str, more: str = "") -> str:
    """task.toml with a prebuilt image."""
    return f'[environment]\ndocker_image = "{name}"\n{more}'


def dockerfile(text: str, body: str, toml: str = "[environment]\n", **files: str) -> dict[str, str]:
    """A task whose image is a pull-mode Dockerfile."""
    return task(body, toml=toml, **{"environment/Dockerfile": text, **files})


# -- tools ---------------------------------------------------------------------------------------------------------

TOOLS = {
    "no-bash": ("verifier_error", ["bash"]),
    "no-timeout": ("verifier_error", ["timeout"]),
    "no-tar": ("provider_unavailable", ["tar", "gzip", "find"]),
    "no-shell": ("provider_unavailable", ["bash", "timeout", "tar", "gzip", "find"]),
}


@pytest.mark.parametrize("name", TOOLS)
@ahead.run(lambda name: task(ONE, toml=image(f"{TEST}/{name}:1")), script("touch /started"))
def test_an_image_without_the_tools_masks_the_sample_before_anything_starts(status: Status, name: str) -> None:
    kind, missing = TOOLS[name]
    assert (status["phase"], status["masked"]) == ("Masked", True)
    assert ahead.failure(status) == (kind, "MissingTools", "seed")
    assert all(tool in status["failure"]["message"] for tool in missing)
    assert "reward" not in status
    assert "outcome" not in status["agent"]


# -- a prebuilt image has no record --------------------------------------------------------------------------------


@ahead.run(
    task(facts(did_not_run="[ ! -e /tmp/entrypoint-ran ]", there="[ -x /entrypoint.sh ]"), toml=image(f"{TEST}/entrypoint:1"))  # noqa: E501
)  # fmt: skip
def test_the_entrypoint_of_a_prebuilt_image_does_not_run(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(facts(env='[ "$COLOR" = blue ]', workdir='[ "$PWD" = /home/app ]', user="[ $(id -u) = 1234 ]"),
         toml=image(f"{TEST}/user:1"))
)  # fmt: skip
def test_a_prebuilt_image_keeps_its_env_workdir_and_user(status: Status) -> None:
    assert not broken(status)


# -- a pull-mode Dockerfile is a record ----------------------------------------------------------------------------

SETTINGS = """\
FROM {base}
ENV COLOR=red SIZE="very large"
ENV BOTH=$COLOR-$SIZE
WORKDIR /srv
WORKDIR deep
USER 4321
"""


@ahead.run(
    dockerfile(
        SETTINGS.format(base=IMAGE),
        facts(
            color='[ "$COLOR" = red ]',
            size='[ "$SIZE" = "very large" ]',
            both='[ "$BOTH" = "red-very large" ]',
            workdir='[ "$PWD" = /srv/deep ]',
            user="[ $(id -u) = 4321 ]",
            agent='[ "$(cat /logs/agent/seen)" = "red /srv/deep 4321" ]',
            writable="touch /srv/deep/x",
        ),
    ),
    script('echo "$COLOR $PWD $(id -u)" > /logs/agent/seen'),
)
def test_workdir_env_and_user_of_a_pull_mode_dockerfile_are_applied(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    dockerfile(
        f"FROM {TEST}/user:1\nENV SIZE=large\n",
        facts(base='[ "$COLOR" = blue ]', own='[ "$SIZE" = large ]', workdir='[ "$PWD" = /home/app ]'),
    )
)
def test_what_a_pull_mode_dockerfile_does_not_set_comes_from_its_base(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    dockerfile(
        SETTINGS.format(base=IMAGE),
        facts(color='[ "$COLOR" = green ]', workdir='[ "$PWD" = /app ]', user="[ $(id -u) = 0 ]"),
        toml='[environment]\nworkdir = "/app"\n[environment.env]\nCOLOR = "green"\n[verifier]\nuser = 0\n',
    )
)
def test_task_toml_wins_over_the_dockerfile(status: Status) -> None:
    assert not broken(status)


@ahead.run(dockerfile(f"FROM {IMAGE}\nENV COLOR=red\n", facts(color='[ "$COLOR" = red ]'), toml=image(IMAGE)))
def test_a_dockerfile_from_the_prebuilt_image_beside_it_is_its_record(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    dockerfile(
        f"FROM {TEST}/user:1\nENV COLOR=red\n",
        facts(color='[ -z "$COLOR" ]', root="[ $(id -u) = 0 ]"),
        toml=image(IMAGE),
    )
)
def test_a_dockerfile_from_another_image_is_ignored_with_a_warning(status: Status) -> None:
    assert not broken(status)
    assert any("environment/Dockerfile" in warning for warning in status["warnings"])


@ahead.run(dockerfile(f"FROM {IMAGE}\nENTRYPOINT []\nCMD []\n", facts(runs="true")))
def test_an_empty_entrypoint_is_none(status: Status) -> None:
    assert not broken(status)


@ahead.run(dockerfile(f"FROM {TEST}/entrypoint:1\nENTRYPOINT []\n", ONE))
def test_a_healthcheck_on_record_is_refused_for_now_even_without_an_entrypoint(status: Status) -> None:
    assert (status["phase"], status["failure"]["terminal"]) == ("Failed", True)
    assert "HEALTHCHECK" in status["failure"]["message"]
    assert "not supported yet" in status["failure"]["message"]


RECORDS = {
    "of the base": (f"FROM {TEST}/entrypoint:1\n", "[environment]\n"),
    "of the Dockerfile": (f'FROM {IMAGE}\nENTRYPOINT ["/bin/sh", "-c"]\n', "[environment]\n"),
    "beside docker_image": (f"FROM {TEST}/entrypoint:1\n", image(f"{TEST}/entrypoint:1")),
}


@pytest.mark.parametrize("case", RECORDS)
@ahead.run(lambda case: dockerfile(RECORDS[case][0], ONE, toml=RECORDS[case][1]))
def test_an_entrypoint_on_record_is_refused_for_now(
    cluster: harness.Cluster, namespace: str, run_name: str, status: Status, case: str
) -> None:
    assert (status["phase"], status["failure"]["terminal"]) == ("Failed", True)
    assert status["failure"]["stage"] == "admission"
    assert "ENTRYPOINT" in status["failure"]["message"]
    assert "not supported yet" in status["failure"]["message"]
    assert cluster.pods(namespace, run_name) == []


@pytest.mark.parametrize("lines", ["RUN apt-get install -y curl\n", "COPY . /src\n"], ids=["RUN", "COPY"])
@ahead.run(lambda lines: dockerfile(f"FROM {IMAGE}\n{lines}", ONE))
def test_a_dockerfile_that_asks_for_more_than_a_pull_is_refused_for_now(status: Status, lines: str) -> None:
    assert (status["phase"], status["failure"]["terminal"]) == ("Failed", True)
    assert "environment/Dockerfile" in status["failure"]["message"]
    assert "not supported yet" in status["failure"]["message"]


@pytest.mark.parametrize("prebuilt", [True, False])
@ahead.run(
    lambda prebuilt: (
        task(ONE, toml=image(f"{TEST}/named-user:1"))
        if prebuilt
        else dockerfile(f"FROM {TEST}/named-user:1\nENV A=1\n", ONE)
    ),
    podRetention="Always",
)
def test_the_status_names_the_image_and_the_digest_that_ran(
    cluster: harness.Cluster, namespace: str, run_name: str, status: Status, prebuilt: bool
) -> None:
    ran = cluster.core.read_namespaced_pod(status["podName"], namespace).status.container_statuses[0].image_id
    assert status["task"]["image"] == f"{TEST}/named-user:1"
    assert status["task"]["imageDigest"].rpartition("@")[2] == ran.rpartition("@")[2]


# -- images that cannot be had -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def impatient(
    cluster: harness.Cluster, own_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[harness.Operator]:
    """An operator with short waits, in a namespace of its own."""
    running = harness.Operator(
        tmp_path_factory.mktemp("impatient"),
        cluster.kubeconfig,
        [own_namespace],
        limits={"imagePullSeconds": 4, "sourceSeconds": 4},
        concurrency={"podStarts": 2},
    )
    running.start()
    yield running
    running.stop()


def test_images_that_cannot_be_had_end_their_runs_with_a_visible_reason(
    cluster: harness.Cluster, own_namespace: str, impatient: harness.Operator
) -> None:
    """Started together: each wait is bounded, and none of them keeps another run from starting."""
    absent, digest = f"{TEST}/absent:1", "sha256:" + "0" * 64
    tasks = {
        "absent": task(ONE, toml=image(absent)),
        "digest": task(ONE, toml=image(f"{TEST}/user@{digest}")),
        "record": dockerfile(f"FROM {absent}\nENV A=1\n", ONE),
        "good": task(ONE, toml=image(f"{TEST}/named-user:1")),
    }
    for name, files in tasks.items():
        cluster.create_run(own_namespace, name, harness.spec(files, NOP))
    assert absent in cluster.shown(own_namespace, "absent", "ImagePullFailed")
    ended = {name: ahead.verdict(cluster, own_namespace, name) for name in tasks}
    for name in ("absent", "digest"):
        assert (ended[name]["phase"], ended[name]["failure"]["reason"]) == ("Failed", "ImagePullFailed")
        assert ended[name]["failure"]["stage"] == "seed"
        assert f"{TEST}/" in ended[name]["failure"]["message"]
    assert (ended["record"]["phase"], ended["record"]["failure"]["reason"]) == ("Failed", "ImageUnreadable")
    assert absent in ended["record"]["failure"]["message"]
    assert ended["good"]["reward"] == "1"


def test_a_name_that_cannot_be_an_image_is_refused(
    cluster: harness.Cluster, namespace: str, operator: Any, name: str
) -> None:
    cluster.create_run(namespace, name, harness.spec(task(ONE, toml=image("UPPER/case:::1")), NOP))
    status = ahead.verdict(cluster, namespace, name)
    assert (status["phase"], status["failure"]["terminal"]) == ("Failed", True)
    assert "UPPER/case:::1" in status["failure"]["message"]
