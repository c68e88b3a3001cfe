"""`spec.pod`: what a run may say about its pods. A typed allow-list, not a PodSpec.

A whole PodSpec is too large for client-side apply, rules cannot see into preserved fields, and half of it
would be a privilege. All types here are subsets of the Kubernetes types of the same name; other namespaces
cannot be named.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from .common import Model, Name, Quantity
from .rules import rule, rules

MAX_LABELS = 64
MAX_TERMS = 16
MAX_VALUES = 64

LabelKey = Annotated[str, Field(min_length=1, max_length=317)]
LabelValue = Annotated[str, Field(max_length=63)]
AnnotationValue = Annotated[str, Field(max_length=4096)]
LabelKeys = Annotated[
    list[LabelKey], Field(max_length=MAX_TERMS, json_schema_extra={"x-kubernetes-list-type": "atomic"})
]
LabelMap = Annotated[dict[str, LabelValue], Field(max_length=MAX_LABELS)]

_ATOMIC: JsonDict = {"x-kubernetes-list-type": "atomic"}
_NOT_OURS = rules(
    rule(
        "self.all(key, !key.startsWith('taskfold.dev/'))",
        "keys that start with taskfold.dev/ belong to the operator",
    )
)


class Toleration(Model):
    """A taint that the pods tolerate, as in a Kubernetes pod."""

    key: str | None = Field(
        default=None, max_length=317, description="Key of the taint. Unset with Exists: every taint."
    )
    operator: Literal["Exists", "Equal"] = Field(
        default="Equal", description="Exists: the key is enough. Equal or unset: the value must match too."
    )
    value: LabelValue | None = Field(default=None, description="Value of the taint, for Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect that is tolerated. Unset: every effect."
    )
    toleration_seconds: int | None = Field(
        default=None,
        ge=0,
        description="For NoExecute: seconds that the pods stay after the taint appears. Unset: for ever.",
    )


class LabelSelectorRequirement(Model):
    """One expression of a label selector."""

    key: LabelKey = Field(description="Key of the label.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(description="How the key relates to the values.")
    values: list[LabelValue] = Field(
        default_factory=list,
        max_length=MAX_VALUES,
        description="Values, for In and NotIn.",
        json_schema_extra=_ATOMIC,
    )


class LabelSelector(Model):
    """Pods by their labels."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    match_labels: LabelMap = Field(default_factory=dict, description="Labels that must all be there with these values.")
    match_expressions: list[LabelSelectorRequirement] = Field(
        default_factory=list,
        max_length=MAX_TERMS,
        description="Expressions that must all hold.",
        json_schema_extra=_ATOMIC,
    )


class NodeSelectorRequirement(Model):
    """One expression about a node."""

    key: LabelKey = Field(description="Label or field of the node.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        description="How the key relates to the values."
    )
    values: list[LabelValue] = Field(
        default_factory=list,
        max_length=MAX_VALUES,
        description="Values; one number for Gt and Lt, none for Exists and DoesNotExist.",
        json_schema_extra=_ATOMIC,
    )


class NodeSelectorTerm(Model):
    """Expressions about a node that must all hold."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    match_expressions: list[NodeSelectorRequirement] = Field(
        default_factory=list,
        max_length=MAX_TERMS,
        description="Expressions about the node's labels.",
        json_schema_extra=_ATOMIC,
    )
    match_fields: list[NodeSelectorRequirement] = Field(
        default_factory=list,
        max_length=MAX_TERMS,
        description="Expressions about the node's fields, for example metadata.name.",
        json_schema_extra=_ATOMIC,
    )


class NodeSelector(Model):
    """Nodes that fit at least one term."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    node_selector_terms: list[NodeSelectorTerm] = Field(
        min_length=1,
        max_length=MAX_TERMS,
        description="Terms; one of them must fit.",
        json_schema_extra=_ATOMIC,
    )


class PreferredSchedulingTerm(Model):
    """A wish about the node, with its weight."""

    weight: int = Field(ge=1, le=100, description="Weight of the wish, 1 to 100.")
    preference: NodeSelectorTerm = Field(description="The node that is wished for.")


class NodeAffinity(Model):
    """Nodes that the pods must or should run on."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = Field(
        default=None, description="Nodes that the pods must run on."
    )
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] = Field(
        default_factory=list,
        max_length=MAX_TERMS,
        description="Nodes that are preferred.",
        json_schema_extra=_ATOMIC,
    )


class PodAffinityTerm(Model):
    """Pods of the run's own namespace, and the topology in which they count as near."""

    topology_key: LabelKey = Field(description="Node label that makes a topology, for example kubernetes.io/hostname.")
    label_selector: LabelSelector | None = Field(
        default=None, description="Pods of the run's namespace that are meant."
    )
    match_label_keys: LabelKeys = Field(
        default_factory=list,
        description="Keys whose values are taken from the new pod and added to the selector.",
    )


class WeightedPodAffinityTerm(Model):
    """A wish about near or far pods, with its weight."""

    weight: int = Field(ge=1, le=100, description="Weight of the wish, 1 to 100.")
    pod_affinity_term: PodAffinityTerm = Field(description="The pods that are meant.")


class PodAffinity(Model):
    """Pods that the run's pods must or should be near to (affinity) or far from (anti-affinity)."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = Field(
        default_factory=list,
        max_length=MAX_TERMS,
        description="Terms that must hold.",
        json_schema_extra=_ATOMIC,
    )
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] = Field(
        default_factory=list,
        max_length=MAX_TERMS,
        description="Terms that are preferred.",
        json_schema_extra=_ATOMIC,
    )


class Affinity(Model):
    """Rules for where the pods are placed, as in a Kubernetes pod, without references to other namespaces."""

    node_affinity: NodeAffinity | None = Field(default=None, description="Rules about nodes.")
    pod_affinity: PodAffinity | None = Field(default=None, description="Pods to be near to.")
    pod_anti_affinity: PodAffinity | None = Field(default=None, description="Pods to be far from.")


class TopologySpreadConstraint(Model):
    """How the pods are spread over zones or nodes, as in a Kubernetes pod."""

    max_skew: int = Field(ge=1, le=1000, description="How unequal the number of pods per topology may be.")
    topology_key: LabelKey = Field(description="Node label that makes a topology.")
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        description="What happens when the skew cannot be kept."
    )
    label_selector: LabelSelector | None = Field(default=None, description="Pods that are counted.")
    min_domains: int | None = Field(default=None, ge=1, description="Least number of topologies, for DoNotSchedule.")
    node_affinity_policy: Literal["Honor", "Ignore"] | None = Field(
        default=None, description="Whether nodes that the affinity excludes are counted. Unset: Honor."
    )
    node_taints_policy: Literal["Honor", "Ignore"] | None = Field(
        default=None, description="Whether tainted nodes are counted. Unset: Ignore."
    )
    match_label_keys: LabelKeys = Field(
        default_factory=list,
        description="Keys whose values are taken from the new pod and added to the selector.",
    )


class ImagePullSecret(Model):
    """A Secret with registry credentials."""

    name: Name = Field(description="Name of a Secret of type kubernetes.io/dockerconfigjson in the run's namespace.")


ResourceMap = Annotated[dict[str, Quantity], Field(max_length=16)]


class Resources(Model):
    """Requests and limits of the container that holds the task, over those of the task."""

    requests: ResourceMap = Field(
        default_factory=dict,
        description=(
            "Least amounts by resource name (cpu, memory, ephemeral-storage, an extended resource), "
            "for example cpu: 500m."
        ),
    )
    limits: ResourceMap = Field(
        default_factory=dict,
        description=(
            "Most amounts by resource name. Wins over the task's cpus, memory_mb, storage_mb and the multiplier."
        ),
    )


class PodOptions(Model):
    """What a run says about its pods: the agent's and the verifier's."""

    labels: LabelMap = Field(
        default_factory=dict,
        description="Further labels of the pods, at most 64. Keys under taskfold.dev/ are refused.",
        json_schema_extra=_NOT_OURS,
    )
    annotations: dict[str, AnnotationValue] = Field(
        default_factory=dict,
        max_length=MAX_LABELS,
        description="Further annotations of the pods, at most 64. Keys under taskfold.dev/ are refused.",
        json_schema_extra=_NOT_OURS,
    )
    node_selector: LabelMap = Field(
        default_factory=dict, description="Labels that a node must have to take the pods, at most 64."
    )
    tolerations: list[Toleration] = Field(
        default_factory=list,
        max_length=64,
        description="Taints that the pods tolerate, at most 64.",
        json_schema_extra=_ATOMIC,
    )
    affinity: Affinity | None = Field(default=None, description="Rules for where the pods are placed.")
    topology_spread_constraints: list[TopologySpreadConstraint] = Field(
        default_factory=list,
        max_length=MAX_TERMS,
        description="How the pods are spread over zones or nodes, at most 16.",
        json_schema_extra=_ATOMIC,
    )
    priority_class_name: Name | None = Field(
        default=None, description="PriorityClass of the pods. Unset: the cluster's default."
    )
    runtime_class_name: Name | None = Field(
        default=None, description="RuntimeClass of the pods, for example gvisor. Unset: the node's default."
    )
    image_pull_secrets: list[ImagePullSecret] = Field(
        default_factory=list,
        max_length=16,
        description="Secrets with registry credentials for the images of the pods, at most 16.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    resources: Resources | None = Field(
        default=None,
        description=("Requests and limits, ephemeral storage included, over those of the task. Unset: the task's."),
    )
    service_account_name: Name | None = Field(
        default=None,
        description=(
            "ServiceAccount of the pods, for image pulls and policies; its token is never mounted. Unset: default."
        ),
    )
