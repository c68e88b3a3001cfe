"""Lists: selected, page by page, each page of one list as of the version of the first."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from tests.world import refusals, selectors
from tests.world.kinds import Kind
from tests.world.paths import Target
from tests.world.refusals import Refusal
from tests.world.storage import Place, Storage

Json = dict[str, Any]


def page(
    store: Storage, kind: Kind, target: Target, query: Mapping[str, str], *, metadata_only: bool, stale_by: int
) -> Json:
    """The answer to a list request. `stale_by`: how many versions one with resourceVersion 0 lags behind."""
    selected = selectors.parsed(kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    version, after = _listed_at(store, query, stale_by)
    items = [
        (place, obj)
        for place, obj in store.at(kind.resource, version).items()
        if place > after and target.namespace in (None, place[0]) and selected(obj)
    ]
    # The watch cache, which answers such a list, knows no pages.
    limit = 0 if query.get("resourceVersion") == "0" else int(query.get("limit") or 0)
    shown = items[:limit] if limit else items
    metadata: Json = {"resourceVersion": str(version)}
    if len(shown) < len(items):
        metadata["continue"] = _token(version, shown[-1][0])
        if not query.get("labelSelector") and not query.get("fieldSelector"):
            metadata["remainingItemCount"] = len(items) - len(shown)
    if not metadata_only:
        return {
            "kind": f"{kind.name}List",
            "apiVersion": kind.api_version,
            "metadata": metadata,
            "items": [obj for _, obj in shown],
        }
    word, version_word = "PartialObjectMetadata", "meta.k8s.io/v1"
    only = [{"kind": word, "apiVersion": version_word, "metadata": obj["metadata"]} for _, obj in shown]
    return {"kind": f"{word}List", "apiVersion": version_word, "metadata": metadata, "items": only}


def _listed_at(store: Storage, query: Mapping[str, str], stale_by: int) -> tuple[int, Place]:
    """The version of a list, and the place after which it begins."""
    if query.get("continue"):
        version, after = _read_token(query["continue"])
        if version < 0:
            return store.head, after
        if version < store.oldest:
            raise refusals.expired_list(_token(-1, after))
        return version, after
    asked = query.get("resourceVersion", "")
    if asked == "0":
        return max(store.oldest, store.head - stale_by), ("", "")
    existing(store, asked)
    return store.head, ("", "")


def existing(store: Storage, version: str) -> int:
    """The number; `Refusal` for one that is none, or from the future."""
    if version and not version.isdigit():
        text = f'resourceVersion: Invalid value: "{version}": strconv.ParseUint: parsing "{version}": invalid syntax'
        raise Refusal(500, "", text)
    number = int(version or 0)
    if number > store.head:
        raise refusals.future(number, store.head)
    return number


def _token(version: int, last: Place) -> str:
    """As the real one: the version, and the key after the last one of the page."""
    start = f"{'/'.join(part for part in last if part)}\0"
    content = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).rstrip(b"=").decode()


def _read_token(text: str) -> tuple[int, Place]:
    try:
        content = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        namespace, _, name = content["start"].rstrip("\0").rpartition("/")
        return int(content["rv"]), (namespace, name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise refusals.bad_request(f"invalid continue token: continue key is not valid: {error}") from None
