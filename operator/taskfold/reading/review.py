"""May he: the API server's answer to a SubjectAccessReview.

Guarantees: no answer is a refusal; a permission is remembered for a few seconds, a refusal never, so that a right that
was just given works at once and one that was taken is gone soon.
"""

from __future__ import annotations

import asyncio
import collections
from dataclasses import dataclass

from taskfold.api import results
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.reading import answers
from taskfold.reading.front_proxy import Caller

REVIEWS = api.Resource("authorization.k8s.io", "v1", "subjectaccessreviews")
REMEMBERED_SECONDS = 5.0
REMEMBERED = 1_024


@dataclass(frozen=True)
class Wish:
    """`get` on a subresource of one object."""

    namespace: str
    resource: str
    subresource: str
    name: str


class Reviews:
    """Asks, and remembers for a moment."""

    def __init__(self, client: api.Client) -> None:
        self._client = client
        self._allowed: collections.OrderedDict[tuple[Caller, Wish], float] = collections.OrderedDict()

    async def allow(self, caller: Caller, wish: Wish) -> None:
        """Refusal 403 if he may not, 503 if nobody knows."""
        now = asyncio.get_running_loop().time()
        if self._allowed.get((caller, wish), 0.0) > now:
            return
        try:
            answer = await self._client.create(REVIEWS, None, _review(caller, wish))
        except errors.Forbidden as error:
            text = f"the operator may not ask who may read: {error.problem}"
            raise answers.Refusal(500, text) from error
        except errors.EffectError as error:
            raise answers.Refusal(503, f"nobody knows whether this is allowed: {error}", retry_seconds=1) from error
        status = answer.get("status") or {}
        if status.get("allowed") is not True or status.get("denied"):
            self._allowed.pop((caller, wish), None)
            raise _forbidden(caller, wish, str(status.get("reason") or ""))
        self._allowed[caller, wish] = now + REMEMBERED_SECONDS
        self._allowed.move_to_end((caller, wish))
        while len(self._allowed) > REMEMBERED:
            self._allowed.popitem(last=False)


def _review(caller: Caller, wish: Wish) -> api.Json:
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": caller.name,
            "uid": caller.uid,
            "groups": list(caller.groups),
            "extra": {key: list(values) for key, values in caller.extra},
            "resourceAttributes": {
                "verb": "get",
                "group": results.GROUP,
                "version": results.VERSION,
                "namespace": wish.namespace,
                "resource": wish.resource,
                "subresource": wish.subresource,
                "name": wish.name,
            },
        },
    }


def _forbidden(caller: Caller, wish: Wish, why: str) -> answers.Refusal:
    what = f'{wish.resource}.{results.GROUP} "{wish.name}" is forbidden'
    text = (
        f'{what}: User "{caller.name}" cannot get resource "{wish.resource}/{wish.subresource}" in API group '
        f'"{results.GROUP}" in the namespace "{wish.namespace}"'
    )
    details = {"name": wish.name, "group": results.GROUP, "kind": wish.resource}
    return answers.Refusal(403, f"{text}: {why}" if why else text, details)
