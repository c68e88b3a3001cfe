"""The closed set of failure kinds, and what each one does to the score.

Guarantees: every kind that a run can carry is here, with its effect; the page docs/reference/failure-kinds.md
is made from `table_rows`. A kind says what happened. It never decides whether to retry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """What a failure does to the score."""

    COUNTED = "counted"  # a reward of 0, part of the mean
    MASKED = "masked"  # the row stays, left out of every mean
    FAILED = "failed"  # no row: the episode did not get that far


class FailureKind(StrEnum):
    """Names as they appear in `status.failure.kind` and in rows. `harbor:` marks the kinds of a verifier."""

    MISSING_REWARD = "harbor:missing_reward"
    INVALID_REWARD = "harbor:invalid_reward"
    VERIFIER_TIMEOUT = "harbor:verifier_timeout"
    ENTRYPOINT_FAILED = "harbor:entrypoint_failed"
    VERIFIER_ERROR = "verifier_error"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    PROVIDER_OOM_KILLED = "provider_oom_killed"
    PROVIDER_QUOTA_EXHAUSTED = "provider_quota_exhausted"
    AGENT_TIMEOUT = "agent_timeout"
    AGENT_RUN_ERROR = "agent_run_error"
    AGENT_REQUEST_FAILED = "agent_request_failed"
    AGENT_COMMAND_NOT_ALLOWED = "agent_command_not_allowed"
    TRANSPORT_UNREACHABLE = "transport_unreachable"
    TRANSPORT_PEER_DROP = "transport_peer_drop"
    TRANSPORT_TIMEOUT = "transport_timeout"
    TRANSPORT_LOCAL_RESOURCE = "transport_local_resource"
    JUDGE_FAILED = "judge_failed"
    JUDGE_UNPARSEABLE = "judge_unparseable"
    SESSION_LOST = "session_lost"
    SESSION_EXPIRED = "session_expired"
    SESSION_RELEASE_FAILED = "session_release_failed"
    CANCELLED = "cancelled"
    KILL_SHAPED = "kill_shaped"
    SHUTDOWN = "shutdown"
    PERSISTENCE_FAILED = "persistence_failed"
    COHORT_INCOMPLETE = "cohort_incomplete"

    @property
    def effect(self) -> Effect:
        """What a run that carries this kind counts as."""
        return _FACTS[self].effect

    @property
    def emitted(self) -> bool:
        """Whether this release produces the kind; a reserved one is a known name only."""
        return _FACTS[self].emitted

    @property
    def sentence(self) -> str:
        """When it happens, for people."""
        return _FACTS[self].sentence


@dataclass(frozen=True)
class _Facts:
    effect: Effect
    emitted: bool
    sentence: str


def _emitted(effect: Effect, sentence: str) -> _Facts:
    return _Facts(effect, True, sentence)


def _reserved(effect: Effect, sentence: str) -> _Facts:
    return _Facts(effect, False, sentence)


_FACTS = {
    FailureKind.MISSING_REWARD: _emitted(
        Effect.COUNTED, "The verifier ended and left neither reward.json nor reward.txt."
    ),
    FailureKind.INVALID_REWARD: _emitted(
        Effect.COUNTED,
        "The reward file is empty or malformed, holds a value that is not a finite number, or its components "
        "have no finite sum.",
    ),
    FailureKind.VERIFIER_TIMEOUT: _emitted(
        Effect.COUNTED, "The verifier ran past its limit and had written no reward."
    ),
    FailureKind.ENTRYPOINT_FAILED: _emitted(
        Effect.MASKED, "The image's ENTRYPOINT ended with another code than 0 beside the agent or its verifier."
    ),
    FailureKind.VERIFIER_ERROR: _emitted(
        Effect.MASKED, "The image has no bash or no timeout, so test.sh could not be started."
    ),
    FailureKind.PROVIDER_UNAVAILABLE: _emitted(
        Effect.MASKED,
        "The sandbox was lost, the image has no tar, gzip or find, or files could not be copied in or out.",
    ),
    FailureKind.PROVIDER_OOM_KILLED: _emitted(
        Effect.MASKED, "The sandbox was killed because it used more memory than its limit."
    ),
    FailureKind.PROVIDER_QUOTA_EXHAUSTED: _reserved(Effect.FAILED, "The provider has no quota left for a sandbox."),
    FailureKind.AGENT_TIMEOUT: _reserved(
        Effect.COUNTED,
        "The agent ran out of time. Here that is an agent outcome; the verifier decides the score.",
    ),
    FailureKind.AGENT_RUN_ERROR: _reserved(
        Effect.COUNTED,
        "The agent's program failed. Here that is an agent outcome; the verifier decides the score.",
    ),
    FailureKind.AGENT_REQUEST_FAILED: _reserved(Effect.FAILED, "A request to the agent failed."),
    FailureKind.AGENT_COMMAND_NOT_ALLOWED: _reserved(Effect.FAILED, "The agent asked for a command it may not run."),
    FailureKind.TRANSPORT_UNREACHABLE: _reserved(Effect.FAILED, "A peer process could not be reached."),
    FailureKind.TRANSPORT_PEER_DROP: _reserved(Effect.FAILED, "A peer process closed the connection."),
    FailureKind.TRANSPORT_TIMEOUT: _reserved(Effect.FAILED, "A peer process did not answer in time."),
    FailureKind.TRANSPORT_LOCAL_RESOURCE: _reserved(Effect.FAILED, "This side ran out of sockets, files or memory."),
    FailureKind.JUDGE_FAILED: _reserved(Effect.MASKED, "A model that judges could not be asked."),
    FailureKind.JUDGE_UNPARSEABLE: _reserved(Effect.MASKED, "The answer of a model that judges could not be read."),
    FailureKind.SESSION_LOST: _reserved(Effect.FAILED, "A session vanished."),
    FailureKind.SESSION_EXPIRED: _reserved(Effect.FAILED, "A session outlived its limit."),
    FailureKind.SESSION_RELEASE_FAILED: _reserved(Effect.FAILED, "A session could not be given back."),
    FailureKind.CANCELLED: _reserved(Effect.FAILED, "A user cancelled the episode."),
    FailureKind.KILL_SHAPED: _reserved(Effect.FAILED, "A process ended as if somebody had killed it."),
    FailureKind.SHUTDOWN: _reserved(Effect.FAILED, "A process was told to shut down."),
    FailureKind.PERSISTENCE_FAILED: _reserved(Effect.FAILED, "A result could not be stored."),
    FailureKind.COHORT_INCOMPLETE: _reserved(Effect.FAILED, "Other episodes of the same group are missing."),
}


def table_rows() -> Sequence[tuple[str, str, str, str]]:
    """Rows (kind, effect, emitted or reserved, sentence) for the reference page, in the order of the enum."""
    return tuple(
        (f"`{kind}`", kind.effect.value, "emitted" if kind.emitted else "reserved", kind.sentence)
        for kind in FailureKind
    )
