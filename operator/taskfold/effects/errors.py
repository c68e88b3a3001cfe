"""Everything that an effect can raise, as one tree.

EffectError                    problem, where, remedy: together they are the user's message
├── CredentialError            no way to log in to the cluster: kubeconfig or service account unusable
├── ApiError                   the API server answered with an error, or did not answer
│   ├── BadRequest             400 (and every other 4xx without a class of its own)
│   ├── Unauthorized           401, also after the credentials were read again
│   ├── Forbidden              403; the server's message names verb, resource and account
│   ├── NotFound               404
│   ├── AlreadyExists          409, reason AlreadyExists
│   ├── Conflict               409, otherwise: a precondition (resourceVersion, uid) did not hold
│   ├── Gone                   410: resourceVersion or continue token too old
│   ├── Invalid                422: refused by schema, CEL or admission
│   ├── TooManyRequests        429, after the bounded waits
│   └── Unavailable            5xx, time-out, connection lost or refused; `sent`: it may have acted
│       └── NoDescriptors      this process has no free file descriptor: nothing was sent, it passes by itself
├── ExecError                  a command in a container; a non-zero exit code is a value, never an error
│   ├── NotRunning             nothing ran: the pod or its container is not (or no longer) running
│   ├── SandboxLost            nothing ran: another sandbox has the name now
│   │   ├── PodReplaced        the uid differs
│   │   └── ContainerRestarted the restart count differs
│   ├── HandshakeRefused       nothing ran: the API server or the kubelet refused (403, 404, v4 only, …)
│   ├── StartFailed            nothing ran: the container runtime could not start the command
│   ├── InputRefused           the command ended before it took all of its input: `wait()` says why
│   ├── OutputTooLarge         the command printed more than the caller allowed
│   ├── ExecTimeout            the caller's total or idle limit; the command may still be running
│   └── ConnectionLost         closed without a final status: whether and how it ended is unknown
├── SandboxError               the helper in the sandbox, reached and answering
│   ├── HelperFailed           it ended with an exit code and no answer
│   ├── ProtocolError          its answer is not the protocol's
│   ├── PhaseFailed            nothing was started (`reason`); the same nonce may be tried again
│   └── UnknownPhase           attach only: the helper does not know this nonce
├── TransferError              a copy that is not proven to be complete and equal
│   ├── Truncated              the stream ended before its trailer
│   ├── DigestMismatch         sha256, bytes or entries differ between the two ends
│   ├── LimitExceeded          more bytes or entries than allowed
│   ├── UnsafeArchive          an entry that would leave its root
│   └── SourceChanged          the source cannot be read, or changed while it was read
├── StoreError                 the result store
└── RegistryError              a container registry
"""

# ruff: noqa: N818  (the names are those of the API server's reasons and of the outcomes)

from collections.abc import Mapping, Sequence
from typing import Any


class EffectError(Exception):
    """Base of the tree. `str()` is a sentence for users: `where: problem. remedy`."""

    def __init__(self, problem: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.problem}" if self.where else self.problem
        return f"{text.rstrip('.')}. {self.remedy}" if self.remedy else text


class CredentialError(EffectError):
    """The cluster cannot be reached with what is configured."""


class ApiError(EffectError):
    """An answer of the API server that is not a success.

    `status`: HTTP status, None without an answer. `reason`: the Status object's reason (or the HTTP phrase).
    `problem`: the server's message. `where`: verb and object. `retry_after`: seconds the server asked for.
    `details`: the Status object's details (causes by field).
    """

    def __init__(
        self,
        problem: str,
        *,
        status: int | None = None,
        reason: str = "",
        where: str = "",
        remedy: str = "",
        retry_after: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(problem, where=where, remedy=remedy)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.details = details or {}


class BadRequest(ApiError):
    """400, or a 4xx that has no class of its own."""


class Unauthorized(ApiError):
    """401 with freshly read credentials."""


class Forbidden(ApiError):
    """403."""


class NotFound(ApiError):
    """404."""


class AlreadyExists(ApiError):
    """409 on create: an object has this name."""


class Conflict(ApiError):
    """409 on anything else: read again, decide again."""


class Gone(ApiError):
    """410: list again from the start."""


class Invalid(ApiError):
    """422."""


class TooManyRequests(ApiError):
    """429 although the waits it asked for (within the client's bound) were kept."""


class Unavailable(ApiError):
    """No usable answer. `sent` False: the request did not reach the server. True: it may have acted."""

    def __init__(self, problem: str, *, sent: bool, status: int | None = None, **more: Any) -> None:
        super().__init__(problem, status=status, **more)
        self.sent = sent


class NoDescriptors(Unavailable):
    """EMFILE or ENFILE: wait and try again; a descriptor comes free when something of ours ends."""

    def __init__(self, problem: str, *, where: str = "") -> None:
        super().__init__(problem, sent=False, where=where, reason="NoDescriptors")


class ExecError(EffectError):
    """A command in a container that has no exit code to show."""


class NotRunning(ExecError):
    """The pod is gone, or its container is waiting or terminated. `state`: what was seen, for example
    `Succeeded`.
    """

    def __init__(self, problem: str, *, state: str, where: str = "", remedy: str = "") -> None:
        super().__init__(problem, where=where, remedy=remedy)
        self.state = state


class SandboxLost(ExecError):
    """The name leads to another sandbox than the one that was pinned."""


class PodReplaced(SandboxLost):
    """A pod with this name exists, with another uid."""


class ContainerRestarted(SandboxLost):
    """The pod is the same, its container was started again."""


class HandshakeRefused(ExecError):
    """Refused before anything ran. `status`: HTTP status where there was one."""

    def __init__(
        self, problem: str, *, status: int | None = None, reason: str = "", where: str = "", remedy: str = ""
    ) -> None:
        super().__init__(problem, where=where, remedy=remedy)
        self.status = status
        self.reason = reason


class StartFailed(ExecError):
    """The runtime could not start the command, for example because the image has no such program."""


class InputRefused(ExecError):
    """The command (or the connection) ended while input was being sent: `wait()` says which."""


class OutputTooLarge(ExecError):
    """More output than `limit` bytes."""

    def __init__(self, problem: str, *, limit: int, where: str = "", remedy: str = "") -> None:
        super().__init__(problem, where=where, remedy=remedy)
        self.limit = limit


class ExecTimeout(ExecError):
    """The caller's patience ended after `seconds`. `idle`: nothing was transferred for that long."""

    def __init__(self, problem: str, *, seconds: float, idle: bool, where: str = "", remedy: str = "") -> None:
        super().__init__(problem, where=where, remedy=remedy)
        self.seconds = seconds
        self.idle = idle


class ConnectionLost(ExecError):
    """No final status: look at the journal (attach again) before concluding anything."""


class SandboxError(EffectError):
    """The helper did not do what it was asked."""


class HelperFailed(SandboxError):
    """The helper ended with `code`; the problem is the end of its stderr."""

    def __init__(self, problem: str, *, code: int, where: str = "", remedy: str = "") -> None:
        super().__init__(problem, where=where, remedy=remedy)
        self.code = code


class ProtocolError(SandboxError):
    """Not an answer of this protocol version."""


class PhaseFailed(SandboxError):
    """Preparation failed, nothing was started.

    `reason`: Busy, TooManyPhases, Digest, Unpack, Prepare, Protocol, MissingTools, UnknownUser or Idle.
    `results`: what the prepare operations said, as far as they ran (raw objects of the protocol).
    """

    def __init__(
        self, problem: str, *, reason: str, results: Sequence[Mapping[str, Any]] = (), where: str = ""
    ) -> None:
        super().__init__(problem, where=where)
        self.reason = reason
        self.results = tuple(results)


class UnknownPhase(SandboxError):
    """Attach only, and the nonce is unknown: the phase was never claimed in this container."""


class TransferError(EffectError):
    """The copy must not be used."""


class Truncated(TransferError):
    """Ended before the trailer."""


class DigestMismatch(TransferError):
    """Both ends are done and do not have the same."""


class LimitExceeded(TransferError):
    """A bound on bytes or entries."""


class UnsafeArchive(TransferError):
    """Refused by the filter."""


class SourceChanged(TransferError):
    """A file vanished, changed its size, or cannot be read."""


class StoreError(EffectError):
    """The result store refused or is unreachable."""


class RegistryError(EffectError):
    """A container registry refused or is unreachable."""
