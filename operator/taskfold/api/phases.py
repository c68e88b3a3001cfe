"""The phases of a run, in order. A phase is for people and columns; decisions read the facts behind it."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """`status.phase` of a TaskRun and of a VerifierRun (without Running; Closing and Seeding in mode separate only)."""

    PENDING = "Pending"
    QUEUED = "Queued"
    SEEDING = "Seeding"
    RUNNING = "Running"
    CLOSING = "Closing"
    VERIFYING = "Verifying"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    MASKED = "Masked"
    CANCELLED = "Cancelled"

    @property
    def sentence(self) -> str:
        """What the phase means, in one sentence."""
        return SENTENCES[self]

    @property
    def final(self) -> bool:
        """No later phase follows. Collecting and cleaning up may go on: that is what `Complete` says."""
        return self in FINAL


SENTENCES: dict[Phase, str] = {
    Phase.PENDING: "Accepted by the API server, not yet admitted by the operator, or suspended.",
    Phase.QUEUED: "Admitted; waits for a start slot, for quota or for a scheduling gate.",
    Phase.SEEDING: "The pod is being created and prepared; nothing of the agent has run.",
    Phase.RUNNING: "The agent works.",
    Phase.CLOSING: "The agent has ended; what verification needs is collected from its sandbox.",
    Phase.VERIFYING: "The verifier runs, or its result is being read.",
    Phase.SUCCEEDED: "There is a verdict: `status.reward` counts, also when it is 0.",
    Phase.FAILED: "The run did not get as far as a verdict; it has no row among the results.",
    Phase.MASKED: "The episode took place but cannot be graded; its row stays and is left out of every mean.",
    Phase.CANCELLED: "Somebody set `spec.cancel`; there is no verdict.",
}

FINAL: frozenset[Phase] = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.MASKED, Phase.CANCELLED})


def table_rows() -> list[tuple[str, str]]:
    """(phase, sentence), for the reference."""
    return [(phase.value, phase.sentence) for phase in Phase]
