"""The words every custom resource shares: model bases, text with bounds, quantities, environment variables,
references.

Guarantees: each type here becomes a structural piece of the CRD (see `crd.py`), each text and list has a
bound, and names are camelCase on the wire, snake_case in Python. Never holds a rule that only one kind needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from .rules import rule, rules

GROUP = "taskfold.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

# A child of a run is `<run>-<attempt>-<try>` or `<run>-<attempt>-verify`; a pod's name is also a host name
# and a label value, 63 characters at most. Two digits of attempt, "-verify" and the dashes leave 53; the rest
# is room for a try or a hashed step.
MAX_RUN_NAME = 48

# Bounds. Whatever a CEL rule walks needs one, else the API server's cost estimate refuses the whole CRD.
MAX_NAME = 253
MAX_ENV = 256
MAX_ENV_VALUE = 32_768
MAX_SOURCES = 32
MAX_FAILURE_MESSAGE = 2_000  # the contract's failure_reason
MAX_CONDITION_MESSAGE = 1_024
MAX_WARNINGS = 20
MAX_WARNING = 500
MAX_SHORT_TEXT = 512

MAX_UID = 2**31 - 1  # Kubernetes takes no larger runAsUser

ELLIPSIS = " […]"

OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_.-]*$"
DIGEST = r"^sha256:[0-9a-f]{64}$"
QUANTITY = r"^(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?$"


def clip(text: str, limit: int) -> str:
    """`text`, at most `limit` characters long; a cut text ends in ` […]`."""
    return text if len(text) <= limit else text[: limit - len(ELLIPSIS)] + ELLIPSIS


@dataclass(frozen=True)
class Clipped:
    """Marks a text that is shortened when too long, never refused: a status must never fail to be written."""

    limit: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._shorten, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "maxLength": self.limit}

    def _shorten(self, value: object) -> object:
        return clip(_encodable(value), self.limit) if isinstance(value, str) else value


def _encodable(text: str) -> str:
    """Without lone surrogates: a hostile task's JSON can contain them, UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


class Model(BaseModel):
    """Base of everything: frozen, camelCase on the wire, unknown fields ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", use_enum_values=False
    )

    def wire(self) -> dict[str, Any]:
        """The object as JSON data for the API server: camelCase, nothing that is unset."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=OBJECT_NAME)]
Key = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
Digest = Annotated[str, Field(max_length=71, pattern=DIGEST)]
Timestamp = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Seconds = Annotated[float, Field(gt=0, le=31_536_000)]
Quantity = Annotated[
    int | str,
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": QUANTITY, "maxLength": 64}),
]


class ConfigMapKeySelector(Model):
    """One key of a ConfigMap in the run's namespace."""

    name: Name = Field(description="Name of the ConfigMap, in the run's own namespace.")
    key: Key = Field(description="Key inside the ConfigMap whose value is used.")
    optional: bool = Field(
        default=False,
        description="True: a missing ConfigMap or key leaves the value unset. Else the run is refused.",
    )


class SecretKeySelector(Model):
    """One key of a Secret in the run's namespace."""

    name: Name = Field(description="Name of the Secret, in the run's own namespace.")
    key: Key = Field(description="Key inside the Secret whose value is used.")
    optional: bool = Field(
        default=False,
        description="True: a missing Secret or key leaves the value unset. Else the run is refused.",
    )


class EnvVarSource(Model):
    """Where the value of an environment variable comes from, when it is not written in the object."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.secretKeyRef) != has(self.configMapKeyRef)",
                "set exactly one of secretKeyRef, configMapKeyRef",
            )
        )
    )

    secret_key_ref: SecretKeySelector | None = Field(
        default=None,
        description=("Takes the value from a key of a Secret. It reaches the sandbox at the moment of use only."),
    )
    config_map_key_ref: ConfigMapKeySelector | None = Field(
        default=None, description="Takes the value from a key of a ConfigMap."
    )


class EnvVar(Model):
    """One environment variable, written like in a Kubernetes container."""

    model_config = ConfigDict(
        json_schema_extra=rules(rule("!(has(self.value) && has(self.valueFrom))", "set value or valueFrom, not both"))
    )

    name: str = Field(
        min_length=1,
        max_length=253,
        pattern=ENV_NAME,
        description="Name of the variable, for example MODEL_URL.",
    )
    value: str | None = Field(
        default=None,
        max_length=MAX_ENV_VALUE,
        description=("Value of the variable, at most 32,768 characters. Unset without valueFrom means the empty text."),
    )
    value_from: EnvVarSource | None = Field(
        default=None, description="Takes the value from a Secret or a ConfigMap instead of `value`."
    )


EnvList = Annotated[
    list[EnvVar],
    Field(
        max_length=MAX_ENV,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
]


class SourceReference(Model):
    """A ConfigMap or Secret of the run's namespace, taken whole."""

    name: Name = Field(description="Name of the object, in the run's own namespace.")
    optional: bool = Field(
        default=False,
        description="True: a missing object counts as empty. Else the run is refused.",
    )


class EnvFromSource(Model):
    """All keys of one ConfigMap or Secret as variables, written like `envFrom` of a Kubernetes container."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("has(self.configMapRef) != has(self.secretRef)", "set exactly one of configMapRef, secretRef")
        )
    )

    config_map_ref: SourceReference | None = Field(
        default=None, description="ConfigMap whose keys become variable names."
    )
    secret_ref: SourceReference | None = Field(default=None, description="Secret whose keys become variable names.")
    prefix: str | None = Field(
        default=None,
        max_length=253,
        pattern=ENV_NAME,
        description="Text put before each key, for example OPENAI_. Unset adds nothing.",
    )


EnvFromList = Annotated[
    list[EnvFromSource], Field(max_length=MAX_SOURCES, json_schema_extra={"x-kubernetes-list-type": "atomic"})
]
SecretsFromList = Annotated[
    list[SourceReference],
    Field(max_length=MAX_SOURCES, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
]


class Condition(Model):
    """One condition, the shape of metav1.Condition."""

    type: str = Field(
        max_length=316,
        pattern=r"^[A-Za-z][A-Za-z0-9]*$",
        description="What the condition speaks about, for example Succeeded or Complete.",
    )
    status: str = Field(
        json_schema_extra={"enum": ["True", "False", "Unknown"]}, description="Whether the condition holds."
    )
    reason: str = Field(
        max_length=128,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="One word from the closed list of reasons in the reference.",
    )
    message: Annotated[str, Clipped(MAX_CONDITION_MESSAGE)] = Field(
        default="", description="What happened and what to do about it, for people. At most 1,024 characters."
    )
    observed_generation: int | None = Field(
        default=None, ge=0, description="The metadata.generation that the condition was computed from."
    )
    last_transition_time: Timestamp = Field(
        description="When `status` of this condition last changed, RFC 3339 in UTC."
    )


class OwnerReference(Model):
    """The fields of an owner reference that decisions need."""

    api_version: str = Field(default="")
    kind: str = Field(default="")
    name: str = Field(default="")
    uid: str = Field(default="")
    controller: bool = Field(default=False)


class Metadata(Model):
    """The fields of an object's metadata that decisions need; all others are ignored."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: list[OwnerReference] = Field(default_factory=list)
    finalizers: list[str] = Field(default_factory=list)


class Spec(Model):
    """Base of a kind's `spec`: knows which of its fields may change after creation."""

    MUTABLE: ClassVar[frozenset[str]] = frozenset()


class Resource(Model):
    """Base of a kind: what `parse` reads and what the CRD generator needs to know about the kind."""

    KIND: ClassVar[str]
    PLURAL: ClassVar[str]
    SHORT_NAME: ClassVar[str]

    metadata: Metadata = Field(default_factory=Metadata)

    @classmethod
    def parse(cls, obj: Mapping[str, Any]) -> Self:
        """The object as read from the API server. Unknown fields are ignored.

        Raises pydantic.ValidationError when the spec is not valid for this version: such an object was made
        under another CRD, or by a hand that went past the API server.
        """
        return cls.model_validate(obj)
