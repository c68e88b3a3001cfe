"""What stands in the store about what stands in the store: every archive that a document names is there, whole.

Guarantees: nothing of the engine's is used to read them.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

Object = dict[str, Any]

LOGS = ("agent.json", "verifier.json")
INDEX = "collected.json"
MANIFEST = "artifacts.json"


def broken(objects: Mapping[str, bytes]) -> list[str]:
    """Each archive that is not what a document says of it, and each place in which a document lacks another."""
    found = []
    for key, content in objects.items():
        place, _, name = key.rpartition("/")
        if name in (INDEX, MANIFEST, *LOGS) or place.endswith("/artifacts"):
            found += [f"{key}: {why}" for why in _wrong(objects, f"{place}/", name, content)]
    return found


def _wrong(objects: Mapping[str, bytes], place: str, name: str, content: bytes) -> Iterator[str]:
    if name.endswith(".tar"):
        return
    document = json.loads(content)
    below = place.removesuffix("artifacts/") if place.endswith("/artifacts/") else place
    for key, digest, size in _archives(name, document):
        archive = objects.get(below + key)
        if archive is None:
            yield f"names {key}, which is not there"
        elif (len(archive), hashlib.sha256(archive).hexdigest()) != (size, digest):
            yield f"{key} is another archive than it says"
    if name == INDEX:
        named = {each["key"] for each in document["artifacts"]}
        yield from (f"names {key}, which is not there" for key in named if below + key not in objects)
    if name == MANIFEST:
        wanted = {f"{place}transcript.json"} if f"{place}agent.json" in objects else set()
        yield from (f"written before {key}" for key in wanted if key not in objects)


def _archives(name: str, document: Object) -> Iterator[tuple[str, str, int]]:
    """Key, sha256 and size of each archive that is named."""
    if name in LOGS:
        kept = [document["archive"]] if document["archive"] is not None else []
        yield from ((each["key"], each["sha256"], each["bytes"]) for each in kept)
    elif name == INDEX:
        yield from ((each["key"], each["sha256"], each["bytes"]) for each in document["archives"])
    else:
        archives = (each["archive"] for each in document["artifacts"])
        yield from ((each["key"], each["sha256"], each["size"]) for each in archives if each is not None)
