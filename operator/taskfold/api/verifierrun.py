"""VerifierRun: one verification, in the sandbox of a TaskRun or in a fresh one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from . import digest
from .common import Clipped, EnvFromList, EnvList, Model, Name, Resource, Seconds, SecretsFromList, Spec, Timestamp
from .pod_options import PodOptions
from .rules import rule, rules
from .status import Attempt, Mode, Status, Word
from .task_source import FolderSource
from .taskrun import NetworkRestriction, Security


class RunReference(Model):
    """A TaskRun of the same namespace, by name, and by uid if it is given."""

    name: Name = Field(description="Name of the TaskRun, in the same namespace.")
    uid: str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description=(
            "metadata.uid of the TaskRun; another one of that name is refused. Unset: the one that has the name when "
            "the operator first looks, see status.runUID."
        ),
    )


class VerifierSource(Model):
    """What is graded."""

    run_ref: RunReference = Field(
        description=(
            "The TaskRun that is graded: its live sandbox in mode shared, its kept artifacts in mode separate."
        )
    )


class VerifierRunSpec(Spec):
    """What shall be graded, and how. Fixed after creation, apart from the fields in MUTABLE."""

    MUTABLE: ClassVar[frozenset[str]] = frozenset({"cancel", "ttl_seconds_after_finished"})

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!oldSelf.cancel || self.cancel",
                "cancel cannot be taken back; create a new VerifierRun",
                at=".cancel",
            )
        )
    )

    source: VerifierSource = Field(description="What is graded: the TaskRun by name, and by uid if it is given.")
    mode: Mode = Field(
        description=(
            "shared: in the run's live sandbox. separate: in a fresh one, from the artifacts that the agent left."
        )
    )
    tests: FolderSource | None = Field(
        default=None,
        description=(
            "Another tests folder than that of the run's task: a source whose folder holds test.sh or verifier.py. "
            "For a VerifierRun of your own, which grades a complete run again."
        ),
    )
    force: bool = Field(
        default=False,
        description=(
            "True: grade a run again although it was graded in its agent's sandbox, or not all artifacts were kept. "
            "The verdict carries a warning."
        ),
    )
    step: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="Step of a multi-step task that is graded. Unset: the whole task.",
    )
    timeout_seconds: Seconds | None = Field(
        default=None,
        description="Limit for test.sh, in seconds, fractions allowed. Unset: the task's, else 600.",
    )
    env: EnvList = Field(
        default_factory=list,
        description="Further variables for test.sh; they win over the task's. At most 256.",
    )
    environment_from: EnvFromList = Field(
        default_factory=list,
        description="ConfigMaps and Secrets that fill ${VAR} in the task's env tables. At most 32.",
    )
    secrets_from: SecretsFromList = Field(
        default_factory=list,
        description="Secrets that fill ${VAR} in [verifier].env only, and win there. At most 32.",
    )
    network: NetworkRestriction | None = Field(
        default=None,
        description="Restriction of the verifier's own pod, for mode separate; added to the task's own.",
    )
    pod: PodOptions | None = Field(
        default=None,
        description="Labels, placement and resources of the verifier's own pod, for mode separate.",
    )
    security: Security | None = Field(
        default=None,
        description="How much the containers of the verifier's own pod may do, for mode separate.",
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=2_147_483_647,
        description=(
            "Of a VerifierRun of your own: seconds after completion when it is deleted; its files in the store stay as "
            "long as the operator keeps files. One that a TaskRun made goes with its TaskRun. Unset: never. May be "
            "changed."
        ),
    )
    cancel: bool = Field(
        default=False, description="True: ends the verification without a verdict. Cannot be taken back."
    )


class VerifierRunStatus(Status):
    """How the verification goes, and how it went. Written by the operator only."""

    run_uid: Word | None = Field(
        default=None,
        alias="runUID",
        description="Uid of the TaskRun that spec.source names by its name alone, as it was first found. It stays.",
    )
    attempts: list[Attempt] = Field(
        default_factory=list,
        description="The verifier's own pod, in mode separate, and how many were tried.",
        json_schema_extra={"maxItems": 1, "x-kubernetes-list-type": "atomic"},
    )
    agent_stopped_time: Timestamp | None = Field(
        default=None,
        description="When every container of the agent's pod was proven to have ended. Nothing was delivered before.",
    )
    store: Annotated[str, Clipped(512)] | None = Field(
        default=None,
        description="Prefix in the operator's store under which the verification's files are kept.",
    )


class VerifierRun(Resource):
    """One verification of a TaskRun's work; the reward lands in its status and is copied to the TaskRun."""

    KIND: ClassVar[str] = "VerifierRun"
    PLURAL: ClassVar[str] = "verifierruns"
    SHORT_NAME: ClassVar[str] = "vr"

    spec: VerifierRunSpec = Field(description="What shall be graded, and how.")
    status: VerifierRunStatus = Field(
        default_factory=VerifierRunStatus,
        description="How the verification goes, and how it went. Written by the operator only.",
    )

    @property
    def run_uid(self) -> str | None:
        """Which TaskRun it grades; None: its name has not been looked up yet."""
        return self.spec.source.run_ref.uid or self.status.run_uid


def spec_digest(spec: Mapping[str, Any]) -> str:
    """Digest of the immutable part of a VerifierRun's spec as read; see `digest.of_spec`."""
    return digest.of_spec(VerifierRunSpec.model_validate(spec))
