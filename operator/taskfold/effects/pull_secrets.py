"""Registry logins of a pod's image pull secrets, found for an image as the kubelet finds them.

Guarantees: a login is given out only for images of the registry, and below the path, that its key names; what cannot be
read is an error that names the key and never a value.
"""

import base64
import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taskfold.effects.registry_http import Credential

KEYS = {"kubernetes.io/dockerconfigjson": ".dockerconfigjson", "kubernetes.io/dockercfg": ".dockercfg"}
"""Type of the Secret → the key that holds its logins."""
DOCKER_HUB = ("docker.io", "index.docker.io")
MOST_LOGINS = 4
"""How many fitting logins are tried: more than one is a mistake, or an old password beside a new one."""


class MalformedPullSecret(ValueError):  # noqa: N818 - it is named for what is wrong
    """The Secret holds no logins that can be read."""


@dataclass(frozen=True)
class Login:
    """`registry`: host[:port], which may have wildcards in each label, and perhaps a path."""

    registry: str
    credential: Credential = field(repr=False)


def read(secret: Mapping[str, Any]) -> list[Login]:
    """The logins of a Secret as the API gives it. Raises MalformedPullSecret."""
    kind = str(secret.get("type"))
    key = KEYS.get(kind)
    if key is None:
        raise MalformedPullSecret(f"has the type {kind}; an image pull secret has {' or '.join(KEYS)}")
    try:
        document = json.loads(base64.b64decode((secret.get("data") or {})[key], validate=True))
        auths = document["auths"] if kind.endswith("json") else document
        return [Login(_normal(name), _credential(entry)) for name, entry in auths.items()]
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedPullSecret(f"its key {key} does not hold registry logins ({type(error).__name__})") from None


def fitting(logins: Sequence[Login], host: str, repository: str) -> list[Credential]:
    """The logins for an image, the most exact key first. Docker Hub is `docker.io`."""
    names = DOCKER_HUB if host in DOCKER_HUB else (host,)
    ranked = sorted(logins, key=lambda login: login.registry, reverse=True)
    found = [each.credential for each in ranked if any(_matches(each.registry, name, repository) for name in names)]
    return list(dict.fromkeys(found))[:MOST_LOGINS]


def _credential(entry: Mapping[str, Any]) -> Credential:
    if entry.get("auth"):
        user, colon, password = base64.b64decode(entry["auth"]).decode().partition(":")
        if not colon:
            raise ValueError("auth without a colon")
        return Credential(user, password.rstrip("\0"))
    return Credential(str(entry["username"]), str(entry["password"]))


def _normal(key: str) -> str:
    """A key without its scheme, and without the /v1/ or /v2/ that old tools wrote."""
    host, slash, path = re.sub(r"^https?://", "", key).partition("/")
    path = re.sub(r"^v[12](/|$)", "", path).rstrip("/")
    return f"{host}/{path}" if slash and path else host


def _matches(registry: str, host: str, repository: str) -> bool:
    own, _, path = registry.partition("/")
    name, _, port = own.partition(":")
    asked, _, asked_port = host.partition(":")
    labels, wanted = name.split("."), asked.split(".")
    if port != asked_port or len(labels) != len(wanted):
        return False
    if not all(fnmatch.fnmatchcase(label, pattern) for label, pattern in zip(wanted, labels, strict=True)):
        return False
    return f"/{repository}".startswith(f"/{path}")
