"""Whose word counts: the API server's certificate, and headers under published names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from taskfold.reading import answers, front_proxy

CERTIFICATE = {"subject": ((("organizationName", "x"),), (("commonName", "front-proxy-client"),))}


def published(**more: Any) -> dict[str, Any]:
    data = {
        "requestheader-client-ca-file": "-----BEGIN CERTIFICATE-----\n",
        "requestheader-allowed-names": ["front-proxy-client"],
        "requestheader-username-headers": ["X-Remote-User"],
        "requestheader-uid-headers": ["X-Remote-Uid"],
        "requestheader-group-headers": ["X-Remote-Group"],
        "requestheader-extra-headers-prefix": ["X-Remote-Extra-"],
        **more,
    }
    return {"data": {key: value if isinstance(value, str) else json.dumps(value) for key, value in data.items()}}


TRUST = front_proxy.trust(published())


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def test_a_user_with_groups_and_extras() -> None:
    found = front_proxy.caller(
        TRUST,
        CERTIFICATE,
        headers(
            ("x-remote-user", "ada"),
            ("X-Remote-Uid", "42"),
            ("X-Remote-Group", "one"),
            ("X-Remote-Group", "two, with a comma"),
            ("X-Remote-Extra-Scopes", "a"),
            ("X-Remote-Extra-Scopes", "b"),
            ("X-Remote-Extra-Example.org%2fProject", "p"),
            ("X-Remote-Extra-", "nameless"),
            ("Authorization", "Bearer abc"),
        ),
    )
    assert found == front_proxy.Caller(
        "ada", "42", ("one", "two, with a comma"), (("example.org/project", ("p",)), ("scopes", ("a", "b")))
    )


@pytest.mark.parametrize(
    ("certificate", "pairs", "why"),
    [
        (None, [("X-Remote-User", "ada")], "no other login"),
        ({}, [("X-Remote-User", "ada")], "no other login"),
        ({"subject": ((("commonName", "admin"),),)}, [("X-Remote-User", "ada")], "not that of the API server"),
        ({"subject": ()}, [("X-Remote-User", "ada")], "not that of the API server"),
        (CERTIFICATE, [], "names no user"),
        (CERTIFICATE, [("X-Remote-User", "")], "names no user"),
        (CERTIFICATE, [("X-Forwarded-User", "ada")], "names no user"),
        (CERTIFICATE, [("X-Remote-User", "a\udcff")], "no text"),
        (CERTIFICATE, [("X-Remote-User", "a"), ("X-Remote-Extra-%ff", "\udcff")], "no text"),
    ],
)
def test_anybody_else_is_not_authenticated(
    certificate: dict[str, Any] | None, pairs: list[tuple[str, str]], why: str
) -> None:
    with pytest.raises(answers.Refusal, match=why) as refused:
        front_proxy.caller(TRUST, certificate, headers(*pairs))
    assert refused.value.code == 401


def test_without_names_any_certificate_of_the_authority_counts() -> None:
    trust = front_proxy.trust(published(**{"requestheader-allowed-names": []}))
    assert front_proxy.caller(trust, {"subject": ((("commonName", "x"),),)}, headers(("X-Remote-User", "ada")))


@pytest.mark.parametrize(
    "config_map",
    [
        {},
        {"data": {"client-ca-file": "x"}},
        published(**{"requestheader-client-ca-file": " "}),
        published(**{"requestheader-username-headers": []}),
        published(**{"requestheader-group-headers": {"a": 1}}),
        published(**{"requestheader-group-headers": "not JSON"}),
    ],
)
def test_a_cluster_that_does_not_aggregate_is_said_to_be_one(config_map: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"requestheader|Expecting value"):
        front_proxy.trust(config_map)
