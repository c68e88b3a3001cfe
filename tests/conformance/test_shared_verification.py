"""Shared verification, seen from outside: an object of its own that the run owns. What it does is in the table."""

from tests.conformance import harness
from tests.conformance.conftest import Runner
from tests.conformance.harness import NOP, task


def test_the_verification_is_an_object_of_its_own_that_the_run_owns(
    run: Runner, cluster: harness.Cluster, namespace: str, name: str
) -> None:
    status = run(task("echo 0.5 > /logs/verifier/reward.txt; exit 4"), NOP)
    verifier = cluster.verifier(namespace, status["verifier"]["name"])
    owner = verifier["metadata"]["ownerReferences"][0]
    assert verifier["metadata"]["name"] == f"{name}-1-verify"
    assert (owner["kind"], owner["name"]) == ("TaskRun", name)
    assert verifier["spec"]["mode"] == status["verifier"]["mode"] == "shared"
    assert (verifier["status"]["reward"], verifier["status"]["complete"]) == ("0.5", True)
    assert verifier["status"]["verifier"]["returnCode"] == status["verifier"]["returnCode"] == 4
