"""The wire format between the operator and the sandbox helper, as data.

Guarantees: a request built here is what `helper phase` accepts, a result parsed here is what it printed; unknown
keys are ignored, missing ones are errors. Never does I/O: `effects.sandbox` carries the bytes.
"""

PROTOCOL = 1
"""The version that both sides must name; pods carry it in the label `taskfold.dev/protocol`."""

SPOKEN = frozenset({PROTOCOL})
"""Versions of pods that this operator goes on with: its own, and from the first release on the one before."""
