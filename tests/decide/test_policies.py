"""decide/policies.py: which NetworkPolicies of others allow a restricted pod something."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.decide import policies

LABELS = {"taskfold.dev/network": "no-network", "app": "x"}
ALL: dict[str, Any] = {}
OTHERS = {"matchLabels": {"app": "y"}}
PUBLIC = {"matchExpressions": [{"key": "taskfold.dev/network", "operator": "DoesNotExist"}]}


def policy(selector: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"podSelector": selector, **spec}}


WIDER = {
    "egress to all": policy(ALL, policyTypes=["Egress"], egress=[{}]),
    "egress to somebody": policy(ALL, policyTypes=["Egress"], egress=[{"to": [{"podSelector": {}}]}]),
    "egress, its type not said": policy(ALL, egress=[{}]),
    "ingress from all": policy(ALL, policyTypes=["Ingress"], ingress=[{}]),
    "ingress, its type not said": policy(ALL, ingress=[{}]),
    "ingress beside a denial of egress": policy(ALL, policyTypes=["Ingress", "Egress"], ingress=[{}]),
    "an operator of later": policy(
        {"matchExpressions": [{"key": "a", "operator": "Later"}]}, policyTypes=["Egress"], egress=[{}]
    ),
}
HARMLESS = {
    "a denial of both": policy(ALL, policyTypes=["Ingress", "Egress"]),
    "a denial of ingress": policy(ALL),
    "a denial, said with an empty list": policy(ALL, policyTypes=["Egress"], egress=[]),
    "rules of a direction that it does not speak of": policy(ALL, policyTypes=["Ingress"], egress=[{}]),
    "of other pods": policy(OTHERS, policyTypes=["Egress"], egress=[{}]),
    "of public pods": policy(PUBLIC, policyTypes=["Egress"], egress=[{}]),
    "no longer there": {**WIDER["egress to all"], "metadata": {"name": "p", "deletionTimestamp": "now"}},
}


@pytest.mark.parametrize("found", WIDER.values(), ids=WIDER)
def test_wider(found):
    assert policies.widens(found, LABELS)


@pytest.mark.parametrize("found", HARMLESS.values(), ids=HARMLESS)
def test_harmless(found):
    assert not policies.widens(found, LABELS)


# -- selectors, against the set of all pods that each part leaves ------------------------------------------------------

KEYS, VALUES = "ab", "xyz"
PODS = [
    {key: value for key, value in zip(KEYS, values, strict=True) if value}
    for values in itertools.product((None, *VALUES), repeat=len(KEYS))
]


def left(part: dict[str, Any]) -> set[int]:
    """Which of the pods one expression leaves, by their labels' table."""
    key, found = part["key"], {number: pod.get(part["key"]) for number, pod in enumerate(PODS)}
    has = {number for number, value in found.items() if value is not None}
    named = {number for number, value in found.items() if value in part.get("values", ())}
    everybody = set(range(len(PODS)))
    return {"In": named, "NotIn": everybody - named, "Exists": has, "DoesNotExist": everybody - has}[
        part["operator"]
    ] & {number for number in everybody if key in KEYS}


EXPRESSIONS = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(KEYS),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(VALUES), min_size=1, unique=True),
        }
    ),
    st.fixed_dictionaries({"key": st.sampled_from(KEYS), "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)


@given(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)), st.lists(EXPRESSIONS, max_size=3))
def test_a_selector_leaves_what_all_of_its_parts_leave(exact, expressions):
    parts = [{"key": key, "operator": "In", "values": [value]} for key, value in exact.items()] + expressions
    wanted = set(range(len(PODS))).intersection(*map(left, parts))
    selector = {"matchLabels": exact, "matchExpressions": expressions}
    assert {number for number, pod in enumerate(PODS) if policies.selects(selector, pod)} == wanted
