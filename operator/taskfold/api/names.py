"""Names, labels and annotations of everything that belongs to a run: a function of the run, never a choice."""

import re

MANAGED_BY = "app.kubernetes.io/managed-by"
RUN = "taskfold.dev/run"
RUN_UID = "taskfold.dev/run-uid"
ATTEMPT = "taskfold.dev/attempt"
ROLE = "taskfold.dev/role"
PROTOCOL = "taskfold.dev/protocol"
TASK_DIGEST = "taskfold.dev/task-digest"
USABLE = "taskfold.dev/usable"
NETWORK = "taskfold.dev/network"
"""How a restricted pod, or a gateway, is connected. Pods with it are left out of the policy for all others."""
NETWORK_OF = "taskfold.dev/network-of"
"""Of a restricted pod and its gateway: the uid of the TaskRun or VerifierRun whose restriction it is."""
CANARIES = "taskfold.dev/canaries"
"""Annotation of a restricted pod: the uids of the canaries that its probe tries, separated by commas."""

MAX_LABEL = 63
_PLAIN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_UNFIT = re.compile(r"[^a-z0-9]+")

OPERATOR = "taskfold"
"""Value of `managed-by`, field manager and Event source."""


def pod(run: str, attempt: int, try_number: int) -> str:
    """The sandbox of one try. Another try is another name: a deleted pod may take its time to go."""
    return f"{run}-{attempt}-{try_number}"


def verifier(run: str, attempt: int, step: str | None = None, number: int = 0) -> str:
    """The VerifierRun of one attempt, or of one of its steps, which is the `number`th from 1.

    A step whose name is no part of a label, or too long for one, is told by as much of it as fits and its number, with
    two dashes between, which no name has that stands as it is.
    """
    name = f"{run}-{attempt}-verify"
    if step is None:
        return name
    room = MAX_LABEL - len(name) - 1
    if len(step) <= room and _PLAIN.fullmatch(step):
        return f"{name}-{step}"
    start = _UNFIT.sub("-", step.lower())[: max(0, room - len(f"--{number}"))].strip("-")
    return f"{name}-{start}--{number}" if start else f"{name}--{number}"


def verifier_pod(verifier: str, try_number: int) -> str:
    """The own sandbox of a separate verification, of one try."""
    return f"{verifier}-{try_number}"


def network(owner_uid: str) -> str:
    """The NetworkPolicy of this TaskRun's or VerifierRun's restricted pods."""
    return f"network-{owner_uid}"


def gateway(owner_uid: str) -> str:
    """Service and policy of the gateway of this TaskRun's or VerifierRun's pod: a DNS label, as a Service's must be."""
    return f"gateway-{owner_uid}"


def gateway_pod(owner_uid: str, number: int) -> str:
    """Its `number`th pod: one that is lost is followed by another behind the same Service."""
    return f"{gateway(owner_uid)}-{number}"


WAITER = "wait-"


def waiter(nonce: str) -> str:
    """The container that waits for the end of this phase."""
    return WAITER + nonce[:12]
