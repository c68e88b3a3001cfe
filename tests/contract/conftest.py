"""Settings of the property tests: a busy machine is no failure."""

from hypothesis import settings

settings.register_profile("contract", deadline=None)
settings.load_profile("contract")
