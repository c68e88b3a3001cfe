"""Images: what counts as their record, and images that cannot be pulled. Those without tools are in the table."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance import ahead, harness
from tests.conformance.facts import broken, facts, kept
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


# -- a prebuilt image has no record --------------------------------------------------------------------------------


@ahead.run(
    task(facts(did_not_run="[ ! -e /tmp/entrypoint-ran ]", there="[ -x /entrypoint.sh ]"), toml=image(f"{TEST}/entrypoint:1"))  # noqa: E501
)  # fmt: skip
def test_the_entrypoint_of_a_prebuilt_image_does_not_run(status: Status) -> None:
    assert not broken(status)


# -- a pull-mode Dockerfile is a record ----------------------------------------------------------------------------


@ahead.run(
    dockerfile(
        f"FROM {TEST}/user:1\nENV SIZE=large\n",
        facts(base='[ "$COLOR" = blue ]', own='[ "$SIZE" = large ]', workdir='[ "$PWD" = /home/app ]'),
    )
)
def test_what_a_pull_mode_dockerfile_does_not_set_comes_from_its_base(status: Status) -> None:
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


@ahead.run(
    dockerfile(f"FROM {TEST}/entrypoint:1\n", f"cp /logs/entrypoint-stdout.txt /logs/verifier/copied; {ONE}"),
    script("echo planted > /logs/verifier/entrypoint-stdout.txt"),
)
def test_the_entrypoints_output_is_kept_with_the_verifiers_logs(
    cluster: harness.Cluster, namespace: str, run_name: str, operator: harness.Operator
) -> None:
    files = kept(operator, cluster.finished(namespace, run_name))
    said = b"entrypoint: sh -c sleep infinity\n"
    assert files["logs/verifier/entrypoint-stdout.txt"] == said == files["logs/verifier/copied"]
    assert "logs/entrypoint-stdout.txt" not in files


@ahead.run(dockerfile(f"FROM {IMAGE}\nRUN echo made; echo odd >&2\nUSER 4321\nWORKDIR /srv\nRUN pwd; id -u\n", ONE))
def test_the_output_of_run_lines_is_kept(
    cluster: harness.Cluster, namespace: str, run_name: str, operator: harness.Operator
) -> None:
    status = cluster.finished(namespace, run_name)
    files = kept(operator, status)
    assert files["logs/dockerfile/line-2.txt"] == b"made\nodd\n"
    assert files["logs/dockerfile/line-5.txt"] == b"/srv\n4321\n"
    assert status["timings"]["overlay"] >= 0


@ahead.run(dockerfile(f"FROM {IMAGE}\nRUN cat /etc/shadow; exit 9\n", ONE))
def test_the_output_of_a_failed_run_line_is_kept(
    cluster: harness.Cluster, namespace: str, run_name: str, operator: harness.Operator
) -> None:
    status = cluster.finished(namespace, run_name)
    assert (status["phase"], status["failure"]["reason"]) == ("Failed", "RunLineFailed")
    assert b"root:" in kept(operator, status)["logs/dockerfile/line-2.txt"]


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
