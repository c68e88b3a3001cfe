"""engine/outcome.py: how an error becomes scheduling."""

import pytest

from taskfold.api.reasons import Reason
from taskfold.contract.errors import MissingVariable, TaskError
from taskfold.effects import errors
from taskfold.engine import outcome
from taskfold.engine.outcome import Refused, Waiting

CREATIONS = {
    "quota": (
        errors.Forbidden('pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4', status=403),
        Waiting,
        Reason.QUOTA_EXCEEDED,
    ),
    "namespace ends": (
        errors.Forbidden("unable to create new content in namespace x because it is being terminated", status=403),
        Waiting,
        Reason.POD_REJECTED,
    ),
    "service account comes later": (
        errors.Forbidden(
            'pods "a" is forbidden: error looking up service account x/default: serviceaccount "default" not found',
            status=403,
        ),
        Waiting,
        Reason.SOURCE_NOT_FOUND,
    ),
    "admission": (
        errors.Forbidden('violates PodSecurity "restricted:latest"', status=403),
        Refused,
        Reason.POD_REJECTED,
    ),
    "invalid": (errors.Invalid("must be less than or equal to memory limit", status=422), Refused, Reason.POD_REJECTED),
    "bad request": (errors.BadRequest("unknown field", status=400), Refused, Reason.POD_REJECTED),
}


@pytest.mark.parametrize(("error", "kind", "reason"), CREATIONS.values(), ids=CREATIONS)
def test_a_refused_creation(error, kind, reason):
    found = outcome.of_creation(error, "pod a")
    assert type(found) is kind
    assert found.reason is reason
    assert found.message.startswith("pod a: ")
    assert found.note.reason is reason


@pytest.mark.parametrize(
    "error",
    [
        errors.Unavailable("no answer", sent=True),
        errors.TooManyRequests("slow down", status=429),
        errors.NotFound("namespace", status=404),
        errors.Unauthorized("token", status=401),
        errors.Forbidden('pods "a" is forbidden: not yet ready to handle request', status=403),
        errors.Forbidden(
            'pods "a" is forbidden: Get "https://10.0.0.1:6443/api/v1/namespaces/x/limitranges": stream error: '
            "stream ID 483; INTERNAL_ERROR; received from peer",
            status=403,
        ),
    ],
    ids=["no answer", "too many", "not found", "unauthorized", "admission not ready", "limit ranges not read"],
)
def test_everything_else_comes_back_with_the_queues_delay(error):
    assert outcome.of_creation(error, "pod a") is error


def test_a_wait_says_for_how_long():
    assert Waiting(Reason.SOURCE_NOT_FOUND, "x").delay == outcome.SOON
    assert Waiting(Reason.SOURCE_NOT_FOUND, "x", 9).delay == 9


def test_a_folder_that_does_not_load_is_refused_with_all_its_problems():
    first = TaskError("is missing", file="task.toml", remedy="Write one.")
    first.others = tuple(TaskError(f"problem {number}", file="x", remedy="Mend it.") for number in range(12))
    found = outcome.of_task(first)
    assert found.reason is Reason.INVALID_TASK
    assert found.message.startswith("task.toml: is missing. Write one.")
    assert found.message.count("\nalso: ") == 10


def test_what_is_not_there_yet_has_its_own_reason():
    assert outcome.of_task(TaskError("steps", file="x", remedy="", unsupported=True)).reason is Reason.UNSUPPORTED_FIELD


def test_a_missing_variable_has_its_own_reason():
    assert outcome.of_task(MissingVariable({"verifier.env.A": "A"})).reason is Reason.MISSING_VARIABLE


def test_a_store_that_does_not_work_is_waited_for():
    assert outcome.of_store(errors.StoreError("full")).reason is Reason.STORE_UNAVAILABLE
