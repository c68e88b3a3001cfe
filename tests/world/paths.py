"""What the path of a request names."""

from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote

from taskfold.effects.client import Resource


@dataclass(frozen=True)
class Target:
    """What a path names. `namespace` None: all of them, or the kind has none."""

    resource: Resource
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @classmethod
    def of(cls, path: str) -> Self | None:
        """None: not the path of a resource."""
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                return None
        namespace = None
        # `namespaces/x` alone is the namespace itself.
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        if not 1 <= len(rest) <= 3:
            return None
        return cls(Resource(group, version, rest[0]), namespace, *rest[1:])
