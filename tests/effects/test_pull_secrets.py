"""Logins of image pull secrets: what a Secret may hold, and for which images a login is given out."""

import base64
import json

import pytest

from taskfold.effects import pull_secrets
from taskfold.effects.pull_secrets import Login, MalformedPullSecret
from taskfold.effects.registry_http import Credential

ME = Credential("me", "secret:word")
AUTH = base64.b64encode(b"me:secret:word").decode()


def secret(document, kind="kubernetes.io/dockerconfigjson", key=".dockerconfigjson"):
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return {"type": kind, "data": {key: base64.b64encode(content).decode()}}


def config(entry=None, registry="reg.example"):
    return secret({"auths": {registry: entry or {"auth": AUTH}}})


@pytest.mark.parametrize(
    "entry",
    [{"auth": AUTH}, {"username": "me", "password": "secret:word"}, {"auth": AUTH, "username": "other", "email": "x"}],
)
def test_a_login_is_read_in_each_form(entry):
    assert pull_secrets.read(config(entry)) == [Login("reg.example", ME)]


def test_the_old_kind_of_secret_is_read_too():
    old = secret({"reg.example": {"auth": AUTH}}, "kubernetes.io/dockercfg", ".dockercfg")
    assert pull_secrets.read(old) == [Login("reg.example", ME)]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"type": "Opaque", "data": {".dockerconfigjson": "e30="}},
        {"type": "kubernetes.io/dockerconfigjson"},
        {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "?"}},
        secret({}),
        secret({"auths": []}),
        secret({"auths": {"reg.example": "me"}}),
        secret(b"\xff"),
        config({"auth": base64.b64encode(b"nocolon").decode()}),
        config({"auth": "??"}),
        config({"username": "me"}),
    ],
)
def test_a_secret_that_holds_no_logins_is_told_without_its_values(wrong):
    with pytest.raises(MalformedPullSecret) as caught:
        pull_secrets.read(wrong)
    assert "secret:word" not in str(caught.value)
    assert "nocolon" not in str(caught.value)


@pytest.mark.parametrize(
    ("registry", "host", "repository", "fits"),
    [
        ("reg.example", "reg.example", "a/b", True),
        ("https://reg.example", "reg.example", "a/b", True),
        ("https://reg.example/v1/", "reg.example", "a/b", True),
        ("https://reg.example/v2", "reg.example", "a/b", True),
        ("reg.example/a", "reg.example", "a/b", True),
        ("reg.example/a/", "reg.example", "a/b", True),
        ("reg.example/b", "reg.example", "a/b", False),
        ("reg.example:5000", "reg.example:5000", "a", True),
        ("reg.example:5000", "reg.example", "a", False),
        ("reg.example", "reg.example:5000", "a", False),
        ("*.example", "reg.example", "a", True),
        ("*.example", "a.reg.example", "a", False),
        ("*.example", "example", "a", False),
        ("reg.*", "reg.example", "a", True),
        ("eg.example", "reg.example", "a", False),
        ("docker.io", "docker.io", "library/python", True),
        ("https://index.docker.io/v1/", "docker.io", "library/python", True),
        ("reg.example", "docker.io", "library/python", False),
    ],
)
def test_a_login_fits_the_images_that_its_key_names(registry, host, repository, fits):
    logins = pull_secrets.read(config(registry=registry))
    assert bool(pull_secrets.fitting(logins, host, repository)) is fits


def test_the_most_exact_key_comes_first_and_there_are_few():
    logins = [Login(key, Credential(key, "x")) for key in ("reg.example", "reg.example/a/b", "reg.example/a")]
    found = pull_secrets.fitting(logins, "reg.example", "a/b/c")
    assert [each.username for each in found] == ["reg.example/a/b", "reg.example/a", "reg.example"]
    many = [Login("reg.example", Credential(str(number), "x")) for number in range(9)]
    assert len(pull_secrets.fitting(many + many, "reg.example", "a")) == pull_secrets.MOST_LOGINS


def test_a_password_is_in_no_representation():
    assert "secret:word" not in repr(pull_secrets.read(config()))
