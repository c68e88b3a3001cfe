"""What holds of all tests: property tests take their time, and what a test lists is shown at the end of the run."""

import gc

import pytest
from hypothesis import HealthCheck, settings

# Here, not in a package of tests: a test takes the profile that is loaded when its module is.
settings.register_profile("taskfold", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("taskfold")

LISTED = "listed"
"""A test's `record_property(LISTED, text)` is shown after the last test, from whichever process it ran in."""


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not look through it again and again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == LISTED and getattr(report, "when", "") == "call":
                    terminalreporter.section(report.nodeid.rpartition("::")[2])
                    terminalreporter.write_line(text)
