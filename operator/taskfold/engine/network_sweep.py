"""Restrictions that nobody needs any more: an operator that was stopped may make one after its run is complete.

Guarantees: only what this operator's software made is touched; one whose sandbox may still work, or is kept by
`podRetention`, is left alone; that an owner is gone is the API server's word. A restriction's own policy is made first
and removed last, so that whatever is left of one is found by it.
"""

from taskfold.api import names
from taskfold.api.taskrun import TaskRun
from taskfold.engine import sweep
from taskfold.engine.parts import Parts
from taskfold.engine.restricting import Restricting
from taskfold.engine.watch import Place, Seen


class NetworkSweeper:
    """Rounds over the policies of the picture."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._restricting = Restricting(parts)

    async def sweep(self, namespace: str | None) -> None:
        """Remove what nobody needs."""
        for place, seen in list(self._parts.watch.policies.items()):
            owner = _owner(seen)
            if owner is None or namespace not in (None, place[0]):
                continue
            kind, name, uid = owner
            if not await self._needed(kind, (place[0], name), uid):
                await self._restricting.remove(place[0], uid)

    async def _needed(self, kind: str, place: Place, uid: str) -> bool:
        """Whether the sandbox of this owner may still be there."""
        if kind == TaskRun.KIND:
            run = await sweep.run_of(self._parts, place, uid)
            return run is not None and (not run.status.complete or sweep.retained(run))
        verifier = await sweep.verifier_of(self._parts, place, uid)
        if verifier is None or not verifier.status.complete:
            return verifier is not None
        graded = (place[0], verifier.spec.source.run_ref.name)
        run = await sweep.run_of(self._parts, graded, verifier.run_uid or "")
        return run is not None and sweep.retained(run, graded=verifier.status.reward is not None)


def _owner(policy: Seen) -> tuple[str, str, str] | None:
    """Kind, name and uid of the owner of a restriction's own policy; None: it is none of ours."""
    metadata = policy.object["metadata"]
    if (metadata.get("labels") or {}).get(names.MANAGED_BY) != names.OPERATOR:
        return None
    found = ((each["kind"], each["name"], each["uid"]) for each in metadata.get("ownerReferences") or ())
    return next((each for each in found if names.network(each[2]) == metadata["name"]), None)
