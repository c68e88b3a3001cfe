"""The resource types that the world's API server knows, and what is special about each."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from taskfold.effects import client as api
from taskfold.effects.client import Resource
from tests.world.schema import Schema

CRDS = Path(__file__).parents[2] / "crds"
NODES = Resource("", "v1", "nodes")
RESOURCEQUOTAS = Resource("", "v1", "resourcequotas")
_ALWAYS = ("metadata.name", "metadata.namespace")
_POD = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT = (
    *(f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid", "apiVersion")),
    "reason",
    "reportingComponent",
    "source",
    "type",
)


@dataclass(frozen=True)
class Kind:
    """`status`: it has the subresource. `counted`: `metadata.generation` counts changes of its spec."""

    resource: Resource
    name: str
    namespaced: bool = True
    status: bool = False
    counted: bool = False
    selectable: tuple[str, ...] = ()
    """Fields of a field selector besides the name and the namespace."""
    schema: Schema | None = None
    """Of a custom resource."""

    @property
    def api_version(self) -> str:
        return "/".join(part for part in (self.resource.group, self.resource.version) if part)

    @property
    def structure(self) -> dict[str, Any] | None:
        """The schema as it stands in the CRD."""
        return self.schema.root if self.schema is not None else None

    @property
    def subresources(self) -> tuple[str, ...]:
        """With "", the object itself."""
        more = ("ephemeralcontainers",) if self.resource == api.PODS else ()
        return ("", *(["status"] if self.status else []), *more)

    @property
    def selectors(self) -> tuple[str, ...]:
        return (*_ALWAYS, *self.selectable)


BUILT_IN = (
    Kind(api.PODS, "Pod", status=True, counted=True, selectable=_POD),
    Kind(api.CONFIGMAPS, "ConfigMap"),
    Kind(api.SECRETS, "Secret", selectable=("type",)),
    Kind(api.EVENTS, "Event", selectable=_EVENT),
    Kind(api.NAMESPACES, "Namespace", namespaced=False, status=True, selectable=("status.phase",)),
    Kind(NODES, "Node", namespaced=False, status=True, selectable=("spec.unschedulable",)),
    Kind(api.SERVICES, "Service"),
    Kind(api.NETWORKPOLICIES, "NetworkPolicy", counted=True),
    Kind(api.LEASES, "Lease"),
    Kind(RESOURCEQUOTAS, "ResourceQuota", status=True),
)


def custom(path: Path) -> Kind:
    """The kind that a CRD file defines (its first version)."""
    spec = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]
    version = spec["versions"][0]
    return Kind(
        Resource(spec["group"], version["name"], spec["names"]["plural"]),
        spec["names"]["kind"],
        namespaced=spec["scope"] == "Namespaced",
        status="status" in (version.get("subresources") or {}),
        counted=True,
        selectable=tuple(each["jsonPath"].removeprefix(".") for each in version.get("selectableFields") or ()),
        schema=Schema(version["schema"]["openAPIV3Schema"]),
    )


@functools.cache
def known() -> tuple[Kind, ...]:
    """Everything: what is built in, and the committed CRDs."""
    return (*BUILT_IN, *(custom(path) for path in sorted(CRDS.glob("*.yaml"))))
