"""From the observed world to a plan: pure functions without a clock, without I/O.

`taskrun.decide` and `verifierrun.decide` are ladders of early returns in the order of a run's life; `pod` reads a
pod's status; `plan` is what they answer with.
"""
