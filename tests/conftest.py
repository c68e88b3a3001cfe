"""Settings of the property tests: a busy machine is no failure."""

from hypothesis import HealthCheck, settings

# Here, not in a package of tests: a test takes the profile that is loaded when its module is.
settings.register_profile("taskfold", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("taskfold")
