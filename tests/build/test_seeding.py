"""build/seeding.py and checks.py: what runs before the agent, as whom, where, with which variables."""

import pytest
from tests.decide import worlds

from taskfold.build import checks, phases, seeding
from taskfold.contract import dockerfile, health
from taskfold.contract.dockerfile import ImageConfig
from taskfold.contract.images import RecordedImage
from taskfold.contract.tables import HealthcheckTable
from taskfold.protocol.phase import Check, Output, User

NONCE = "1" * 32
IMAGE_USER = User(uid=1000, gid=1000, groups=(44,))
ENV = {"FILLED": "x"}
HEALTHCHECK = {"Test": ["CMD-SHELL", "up"], "Interval": 2_000_000_000}
WHOLE = ImageConfig({"A": "1"}, "/srv", "app", ("/entry", "x"), ("serve",), HEALTHCHECK)
TABLE = ('environment.healthcheck = { command = "is it up", retries = 0 }',)


def sandbox(config=None, *lines):
    recorded = RecordedImage("base:1", "sha256:" + "9" * 64, config) if config is not None else None
    return phases.Sandbox(worlds.run(worlds.placed()), worlds.task(*lines), recorded, IMAGE_USER)


def test_a_seed_that_starts_nothing_is_the_plain_one():
    for plain in (sandbox(), sandbox(ImageConfig(healthcheck={"Test": ["NONE"]}))):
        assert not seeding.starts(plain)
        assert seeding.seed(plain, NONCE, {}) == phases.seed(plain, NONCE)


def test_the_entrypoint_comes_first_then_the_images_check_then_the_tasks():
    found = sandbox(WHOLE, *TABLE)
    assert seeding.starts(found)
    request = seeding.seed(found, NONCE, ENV)
    assert request.prepare == phases.seed(found, NONCE).prepare
    entrypoint, image, task = request.runs
    assert [run.name for run in request.runs] == ["entrypoint", "HEALTHCHECK", "[environment.healthcheck]"]
    assert {(run.cwd, run.user, run.env["FILLED"], run.continue_on_failure) for run in request.runs} == {
        ("/srv", IMAGE_USER, "x", False)
    }
    assert entrypoint.argv == ("/entry", "x", "sh", "-c", "sleep infinity")
    assert (entrypoint.limit_seconds, entrypoint.settle_seconds, entrypoint.check) == (None, 1.0, None)
    assert entrypoint.output == Output("/logs/entrypoint-stdout.txt")
    assert (image.argv, image.limit_seconds) == (("/bin/sh", "-c", "up"), 30.0)
    assert (image.check, task.check) == (Check(2.0, 5.0, 0.0, 3), Check(5.0, 5.0, 0.0, 0))
    assert (task.argv, task.limit_seconds) == (("bash", "-c", "is it up"), 30.0)
    assert request.limit_seconds == health.seed_seconds(found.task.config, WHOLE)
    assert request.limit_seconds == 1.0 + checks.longest(image) + checks.longest(task)


def test_a_check_of_a_prebuilt_image_has_its_own_working_directory():
    (task,) = seeding.seed(sandbox(None, *TABLE), NONCE, ENV).runs
    assert (task.name, task.cwd, task.user) == ("[environment.healthcheck]", None, IMAGE_USER)


def test_a_step_has_its_check_under_a_name_of_its_own():
    run = checks.of_task(HealthcheckTable(command="x"), name="healthcheck", env=ENV, cwd="/app", user=IMAGE_USER)
    assert (run.name, run.argv, run.env, run.cwd, run.user) == (
        "healthcheck", ("bash", "-c", "x"), ENV, "/app", IMAGE_USER,
    )  # fmt: skip
    assert checks.longest(run) == pytest.approx((30 + 5 + 3 * 35) * 1.1 + 60)
    with pytest.raises(ValueError, match="no check"):
        checks.longest(seeding.seed(sandbox(WHOLE), NONCE, ENV).runs[0])


LINES = """\
FROM base:1
ENV B=2
RUN first $B
USER 7:8
WORKDIR sub
RUN ["second", "$B"]
ENV PATH=/own
USER judge
RUN {long}
"""


def test_run_lines_have_the_user_the_folder_and_the_variables_of_a_build():
    parsed = dockerfile.parse(LINES.format(long="x" * 300).encode())
    base = ImageConfig({"A": "1"}, "/srv", "", ("/entry",), (), None, ("/bin/bash", "-c"))
    recorded = RecordedImage("base:1", "sha256:" + "9" * 64, dockerfile.apply(parsed.instructions, base), base)
    request = seeding.overlay(recorded, parsed.instructions, NONCE, 600.0)
    first, second, third = request.runs
    assert (request.limit_seconds, request.prepare, request.phase) == (600.0, (), "overlay")
    assert {(run.own_env, run.make_cwd, run.continue_on_failure, run.limit_seconds) for run in request.runs} == {
        (True, True, False, None)
    }
    assert (first.name, first.argv) == ("line 3: RUN first $B", ("/bin/bash", "-c", "first $B"))
    assert (first.user, first.cwd) == (User(uid=0), "/srv")
    assert first.env == {"PATH": seeding.DEFAULT_PATH, "A": "1", "B": "2"}
    assert (second.argv, second.user, second.cwd) == (("second", "$B"), User(uid=7, gid=8), "/srv/sub")
    assert (third.user, third.env["PATH"]) == (User(name="judge"), "/own")
    assert third.name == f"line 9: RUN {'x' * 200}…"
    assert [run.output.path for run in request.runs] == [f"/logs/dockerfile/line-{line}.txt" for line in (3, 6, 9)]


def test_without_a_working_directory_a_run_line_is_at_the_root_and_a_shell_is_sh():
    parsed = dockerfile.parse(b"FROM base:1\nRUN x\n")
    recorded = RecordedImage("base:1", "sha256:" + "9" * 64, ImageConfig(), ImageConfig())
    (run,) = seeding.overlay(recorded, parsed.instructions, NONCE, 1.0).runs
    assert (run.cwd, run.argv) == ("/", ("/bin/sh", "-c", "x"))
