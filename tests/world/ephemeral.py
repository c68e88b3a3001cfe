"""The subresource `pods/ephemeralcontainers`: containers are added to a pod that is there already.

Guarantees, as a real server (1.36) has them: nothing of the pod changes but the list; what is in the list stays as it
is; what is new comes first; whether the pod runs, has ended or is being deleted makes no difference.

Not modelled: directives of strategic merge patches (`$patch`).
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from taskfold.effects import client as api
from tests.world import apply
from tests.world.paths import Target
from tests.world.refusals import Cause, Refusal

Json = dict[str, Any]
SUBRESOURCE = "ephemeralcontainers"
FIELD = "spec.ephemeralContainers"
FORBIDDEN = ("resources", "ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
"""What other containers have and these may not."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def patches(target: Target, content_type: str) -> bool:
    """Whether a request is a strategic merge patch of the list."""
    return target.subresource == SUBRESOURCE and content_type == api.STRATEGIC_PATCH


def patched(pod: Json, patch: Json) -> Json:
    """The pod as a strategic merge patch wants it: containers are merged by name. `Refusal` 500 for one without,
    where there is something to merge it with.
    """
    if "$patch" in json.dumps(patch):
        raise NotImplementedError("directives of a strategic merge patch")
    spec = dict(patch.get("spec") or {})
    wanted = spec.pop("ephemeralContainers", [])
    found: Json = apply.merged(pod, {**patch, "spec": spec})
    there = {each["name"]: each for each in pod["spec"].get("ephemeralContainers") or ()}
    new = []
    for each in wanted or ():
        if "name" not in each and there:
            words = " ".join(f"{key}:{value}" for key, value in sorted(each.items()))
            raise Refusal(500, "", f"map: map[{words}] does not contain declared merge key: name")
        if each.get("name") in there:
            there[each["name"]] = apply.merged(there[each["name"]], each)
        else:
            new.append(each)
    merged = [*new, *there.values()] if wanted is not None else []
    return {**found, "spec": {**found["spec"], "ephemeralContainers": merged}}


def causes(new: Json, old: Json) -> list[Cause]:
    """What is wrong with the list of a pod's spec. `old`: the spec as it was."""
    wanted = new.get("ephemeralContainers") or []
    others = {each["name"] for part in ("containers", "initContainers") for each in new.get(part) or ()}
    found = [cause for number, each in enumerate(wanted) for cause in _of_one(f"{FIELD}[{number}]", each, others)]
    by_name = {each.get("name"): each for each in wanted}
    for each in old.get("ephemeralContainers") or ():
        if by_name.get(each["name"]) != each:
            word = "changed" if each["name"] in by_name else "removed"
            text = f'Forbidden: existing ephemeral containers "{each["name"]}" may not be {word}\n'
            found.append(Cause(FIELD, "FieldValueForbidden", text))
    return found


def _of_one(where: str, container: Json, others: set[str]) -> Iterator[Cause]:
    name = container.get("name") or ""
    if not name:
        yield Cause(f"{where}.name", "FieldValueRequired", "Required value")
    elif not _NAME.fullmatch(name):
        text = f'Invalid value: "{name}": a lowercase RFC 1123 label must consist of lower case alphanumeric '
        text += "characters or '-', and must start and end with an alphanumeric character"
        yield Cause(f"{where}.name", "FieldValueInvalid", text)
    if name in others:
        yield Cause(f"{where}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"')
    if not container.get("image"):
        yield Cause(f"{where}.image", "FieldValueRequired", "Required value")
    for key in FORBIDDEN:
        if container.get(key):
            yield Cause(f"{where}.{key}", "FieldValueForbidden", "Forbidden: cannot be set for an Ephemeral Container")
    target = container.get("targetContainerName")
    if target and target not in others:
        yield Cause(f"{where}.targetContainerName", "FieldValueNotFound", f'Not found: "{target}"')
