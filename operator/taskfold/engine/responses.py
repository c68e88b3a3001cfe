"""The agent's final response: where it is kept from the agent's end on, for whoever grades.

Guarantee: what was kept once for an attempt stays; who reads it gets the same after any crash.
"""

import json
from typing import Any

from taskfold.effects import store as stores

RESPONSE = "response.json"
MAX_BYTES = 16 * 2**20
"""Of the kept document: a response of the largest size that is taken, written with its indentation."""


async def kept(store: stores.Store, prefix: str | None) -> dict[str, Any] | None:
    """The response under this attempt's prefix, in the Responses API's shape; None: the agent gave none."""
    if prefix is None:
        return None
    try:
        found = json.loads(await store.get(prefix + RESPONSE, limit=MAX_BYTES))
    except stores.NotStored:
        return None
    return dict(found)
