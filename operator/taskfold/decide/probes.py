"""Why the probe of a restricted pod failed: an init container of ours, whose last words are `protocol.probe`'s."""

from taskfold.decide.losses import Cause, Loss
from taskfold.protocol import probe

PROBE = "probe"
"""The init container that proves the restriction."""


def failed(message: str) -> Loss:
    """Why the probe ended with another code than 0, by what it left."""
    report = probe.parse(message)
    if report is None:
        return Loss(Cause.INIT_FAILED, f"the probe of the network restriction failed: {message}".rstrip(": "))
    tried = f"{report.opened} of {report.attempts} connections to a canary came through in {report.seconds:g} s"
    if not report.blocked:
        why = f" ({report.error})" if report.error else ""
        return Loss(Cause.NOT_ENFORCED, f"the cluster does not enforce the network restriction: {tried}{why}")
    return Loss(
        Cause.NO_GATEWAY, f"the gateway did not answer within {report.seconds:g} s: {report.error}".rstrip(": ")
    )
