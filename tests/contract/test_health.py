"""Health checks as data: bounds of a task's numbers, Docker's meaning of an image's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract import health
from taskfold.contract.dockerfile import ImageConfig
from taskfold.contract.health import Healthcheck
from taskfold.contract.tables import HealthcheckTable
from taskfold.contract.task_toml import TaskToml

SECOND = 1_000_000_000


def test_the_numbers_of_a_table_are_the_contracts_defaults():
    assert health.of_table(HealthcheckTable(command="true")) == Healthcheck(("bash", "-c", "true"), 30, 5, 5, 0, 3)


@given(
    st.builds(
        HealthcheckTable,
        command=st.just("true"),
        interval_sec=st.floats(allow_nan=False, allow_infinity=False),
        timeout_sec=st.floats(allow_nan=False, allow_infinity=False),
        start_period_sec=st.floats(allow_nan=False, allow_infinity=False),
        start_interval_sec=st.floats(allow_nan=False, allow_infinity=False),
        retries=st.integers(),
    )
)
def test_any_numbers_give_a_check_that_ends(table):
    found = health.of_table(table)
    assert found.timeout_seconds > 0
    assert min(found.interval_seconds, found.start_interval_seconds, found.start_period_seconds) >= 0
    assert 0 <= found.retries < 2**31
    assert 0 < found.longest <= health.MOST_SECONDS


@pytest.mark.parametrize(
    ("document", "shell", "argv"),
    [
        (None, (), None),
        ({}, (), None),
        ({"Test": []}, (), None),
        ({"Test": ["NONE"]}, (), None),
        ({"Test": ["NONE"], "Retries": 5}, (), None),
        ({"Test": ["CMD", "curl", "-f", "x"]}, ("/bin/bash", "-c"), ("curl", "-f", "x")),
        ({"Test": ["CMD-SHELL", "a || b"]}, (), ("/bin/sh", "-c", "a || b")),
        ({"Test": ["CMD-SHELL", "a"]}, ("/bin/bash", "-euc"), ("/bin/bash", "-euc", "a")),
        ({"Test": ["CMD"]}, (), None),
        ({"Test": ["ASK"]}, (), None),
    ],
)
def test_the_forms_of_an_images_test(document, shell, argv):
    found = health.of_image(ImageConfig(healthcheck=document, shell=shell))
    assert (found.argv if found is not None else None) == argv


def test_what_an_image_leaves_out_or_sets_to_0_is_dockers_default():
    default = Healthcheck(("x",), 30.0, 30.0, 5.0, 0.0, 3)
    zero = dict.fromkeys(("Interval", "Timeout", "StartPeriod", "StartInterval", "Retries"), 0)
    for more in ({}, zero, dict.fromkeys(zero)):
        assert health.of_image(ImageConfig(healthcheck={"Test": ["CMD", "x"], **more})) == default
    own = {"Interval": SECOND // 4, "Timeout": 2 * SECOND, "StartPeriod": SECOND, "StartInterval": SECOND // 2}
    found = health.of_image(ImageConfig(healthcheck={"Test": ["CMD", "x"], **own, "Retries": 7}))
    assert found == Healthcheck(("x",), 2.0, 0.25, 0.5, 1.0, 7)


def test_how_long_a_seed_may_take():
    plain = TaskToml()
    checked = TaskToml.model_validate(
        {"environment": {"healthcheck": {"command": "x", "timeout_sec": 1, "interval_sec": 1, "retries": 2}}}
    )
    image = ImageConfig(entrypoint=("x",), healthcheck={"Test": ["CMD", "x"], "Timeout": SECOND, "Interval": SECOND})
    assert health.seed_seconds(plain, None) == 0
    assert health.seed_seconds(plain, ImageConfig()) == 0
    assert health.seed_seconds(plain, ImageConfig(entrypoint=("x",))) == health.SETTLE_SECONDS
    assert health.seed_seconds(checked, None) == pytest.approx((1 + 5 + 2 * 2) * 1.1 + 60)
    both = (1 + 5 + 2 * 2 + 1 + 5 + 3 * 2) * 1.1 + 120
    assert health.seed_seconds(checked, image) == pytest.approx(health.SETTLE_SECONDS + both)
    endless = TaskToml.model_validate({"environment": {"healthcheck": {"command": "x", "retries": 10**30}}})
    assert health.seed_seconds(endless, image) == health.MOST_SECONDS + health.SETTLE_SECONDS
