"""sandbox/run_verifier.py: which arguments a `verify` of any signature gets, and which values are rewards."""

import inspect
import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.sandbox import run_verifier

AVAILABLE = {"workspace": "W", "task_data": "D", "response": "R", "state": "S"}
NAMES = [*AVAILABLE, "other", "another"]
Kind = inspect._ParameterKind
POSITIONAL = (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD)


@st.composite
def signatures(draw: st.DrawFn) -> inspect.Signature:
    """Any order that Python allows of up to six parameters, with *args and **kwargs or without."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    kinds = sorted(draw(st.sampled_from((*POSITIONAL, Kind.KEYWORD_ONLY))) for _ in names)
    parameters, defaults_begun = [], False
    for name, kind in zip(names, kinds, strict=True):
        optional = draw(st.booleans()) or (defaults_begun and kind in POSITIONAL)
        defaults_begun |= optional and kind in POSITIONAL
        default = f"default of {name}" if optional else inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, kind, default=default))
    if draw(st.booleans()):
        parameters.append(inspect.Parameter("args", Kind.VAR_POSITIONAL))
    if draw(st.booleans()):
        parameters.append(inspect.Parameter("kwargs", Kind.VAR_KEYWORD))
    return inspect.Signature(sorted(parameters, key=lambda parameter: parameter.kind))


def function(signature: inspect.Signature):
    """A function of this signature that returns what it got."""
    scope: dict = {}
    exec(f"def verify{signature}:\n    return locals()", scope)
    return scope["verify"]


def available(names: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in AVAILABLE.items() if name in names}


@given(signatures(), st.frozensets(st.sampled_from(list(AVAILABLE))))
def test_each_declared_argument_comes_once_and_nothing_else(signature, names):
    verify, there = function(signature), available(names)
    declared = [p for p in signature.parameters.values() if p.kind not in (Kind.VAR_KEYWORD, Kind.VAR_POSITIONAL)]
    missing = [p.name for p in declared if p.name not in there and p.default is p.empty]
    if missing:
        with pytest.raises(run_verifier.ContractError, match=f"requires `{missing[0]}`"):
            run_verifier._call(verify, there)
        return
    expected: dict = {p.name: there.get(p.name, p.default) for p in declared}
    if "args" in signature.parameters:
        expected["args"] = ()
    if "kwargs" in signature.parameters:
        expected["kwargs"] = {name: value for name, value in there.items() if name not in expected}
    assert run_verifier._call(verify, there) == expected


@given(signatures(), st.frozensets(st.sampled_from(NAMES)))
def test_what_a_partial_has_bound_stays(signature, bound):
    takes_all = "kwargs" in signature.parameters
    by_name = {p.name for p in signature.parameters.values() if p.kind in (*POSITIONAL[1:], Kind.KEYWORD_ONLY)}
    positional_only = {p.name for p in signature.parameters.values() if p.kind is Kind.POSITIONAL_ONLY}
    settings = {name: "bound" for name in bound if name in by_name or (takes_all and name not in positional_only)}
    try:
        given = run_verifier._call(partial(function(signature), **settings), AVAILABLE)
    except run_verifier.ContractError:
        assert any(
            p.default is p.empty for p in signature.parameters.values() if p.name not in {**AVAILABLE, **settings}
        )
        return
    given |= given.pop("kwargs", {})
    assert {name: given[name] for name in settings} == settings
    assert all(given[name] == value for name, value in AVAILABLE.items() if name in given and name not in settings)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.decimals() | st.fractions()
    | st.text() | st.binary() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers() | st.just("reward"), inner),
    max_leaves=8,
)  # fmt: skip


@given(VALUES)
def test_whatever_is_returned_is_a_finite_reward_or_an_error(value):
    try:
        reward = run_verifier._checked(value)
    except run_verifier.ContractError as error:
        assert str(error).startswith("verify returned")
        assert len(str(error)) < 1000
        return
    numbers = reward.values() if isinstance(reward, dict) else [reward]
    assert isinstance(reward, dict) is isinstance(value, dict)
    assert all(type(number) is float and math.isfinite(number) for number in numbers)
    assert not isinstance(reward, dict) or "reward" in reward or len(reward) == 1
