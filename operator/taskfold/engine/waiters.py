"""Containers that wait for the end of a long phase: added to the pod when the phase is let go of.

Guarantees: a container that cannot be had costs nothing but the signal; what is added again under the same name is what
is there already. Never on the way of a phase: it is running when this is asked for.
"""

import logging

from taskfold.build import pod as pod_builder
from taskfold.effects import client as api
from taskfold.effects import errors
from taskfold.engine.parts import Parts

REFUSALS = (errors.Forbidden, errors.Invalid, errors.NotFound, errors.BadRequest)
"""Asking again would be answered the same: no right to it, a policy against it, a cluster without it, no such pod."""

log = logging.getLogger(__name__)


class Waiters:
    """Adds them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def add(self, namespace: str, pod: str, uid: str, nonce: str) -> None:
        """One for this phase, if the cluster allows it."""
        body = {"spec": {"ephemeralContainers": [pod_builder.waiter(nonce, self._parts.settings.helper)]}}
        try:
            found = await self._parts.client.patch(
                api.PODS,
                namespace,
                pod,
                body,
                subresource="ephemeralcontainers",
                uid=uid,
                content_type=api.STRATEGIC_PATCH,
            )
        except errors.ApiError as error:
            self._parts.activities.unsignalled(nonce, for_good=isinstance(error, REFUSALS))
            log.info("pod %s/%s: no container waits for phase %s: %s", namespace, pod, nonce[:8], error)
            return
        self._parts.wake(self._parts.watch.see_pod(found))
