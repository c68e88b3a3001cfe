"""The VerifierRun that the command makes (build/regrade.py)."""

import pytest
from tests.decide import worlds

from taskfold.api.verifierrun import VerifierRun
from taskfold.build import regrade
from taskfold.build.refused import Refused
from taskfold.contract import folder

RUN = worlds.run(
    verifier={"timeoutSeconds": 30, "env": [{"name": "A", "value": "1"}]},
    secretsFrom=[{"name": "judge"}],
    pod={"nodeSelector": {"disk": "fast"}},
    security={"profile": "userns"},
)


def made(**changes):
    return regrade.manifest(RUN, regrade.Wanted("again", **changes))


def test_it_has_the_runs_own_words_and_no_owner():
    manifest = made()
    spec = manifest["spec"]
    assert manifest["metadata"] == {"name": "again", "namespace": RUN.metadata.namespace}
    assert spec["source"] == {"runRef": {"name": RUN.metadata.name, "uid": RUN.metadata.uid}}
    assert (spec["mode"], spec["timeoutSeconds"], spec["secretsFrom"]) == (
        "separate",
        30,
        [{"name": "judge", "optional": False}],
    )
    assert spec["pod"]["nodeSelector"] == {"disk": "fast"}
    assert spec["security"] == {"profile": "userns"}
    assert spec["env"][0]["name"] == "A"
    assert spec.keys().isdisjoint({"tests", "step", "force"})
    assert VerifierRun.parse(manifest).spec.mode == "separate"


def test_what_is_asked_for_wins():
    tests = folder.MemoryFolder({"test.sh": (b"#!/bin/bash\n", True), "data.bin": (b"\xff", False)})
    spec = made(tests=tests, step="build", timeout_seconds=5, force=True)["spec"]
    assert (spec["step"], spec["timeoutSeconds"], spec["force"]) == ("build", 5, True)
    assert spec["tests"] == {"inline": {"files": {"test.sh": "#!/bin/bash\n"}, "binaryFiles": {"data.bin": "/w=="}}}


def test_tests_that_no_object_holds_are_refused():
    tests = folder.MemoryFolder({"test.sh": (b"x" * 2**21, True)})
    with pytest.raises(Refused, match="ConfigMap"):
        made(tests=tests)
