"""build/verifierrun.py: the manifest says about verification what the run says, and nothing else."""

import pytest
from tests.decide import worlds

from taskfold.api import unsupported
from taskfold.api.status import Mode
from taskfold.api.verifierrun import VerifierRun
from taskfold.build import verifierrun


def made(mode=Mode.SHARED, **spec):
    return verifierrun.manifest(worlds.run(worlds.running(), **spec), worlds.VERIFIER, 1, mode)


def test_it_grades_the_live_sandbox_of_its_run():
    manifest = made()
    assert manifest["spec"] == {
        "source": {"runRef": {"name": worlds.NAME, "uid": worlds.UID}},
        "mode": "shared",
        "environmentFrom": [],
        "secretsFrom": [],
    }
    metadata = manifest["metadata"]
    assert (metadata["name"], metadata["namespace"]) == (worlds.VERIFIER, worlds.NAMESPACE)
    assert metadata["labels"]["taskfold.dev/role"] == "verifier"
    assert (metadata["ownerReferences"][0]["uid"], metadata["ownerReferences"][0]["controller"]) == (worlds.UID, True)


def test_the_runs_words_about_verification_go_along():
    manifest = made(
        environmentFrom=[{"configMapRef": {"name": "c"}, "prefix": "P_"}],
        secretsFrom=[{"name": "s"}],
        verifier={
            "timeoutSeconds": 5,
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ],
        },
    )
    spec = VerifierRun.parse(manifest).spec
    assert spec.timeout_seconds == 5
    assert [each.name for each in spec.env] == ["A", "B"]
    assert spec.environment_from[0].prefix == "P_"
    assert spec.secrets_from[0].name == "s"


@pytest.mark.parametrize("mode", Mode)
def test_the_operator_takes_its_own_manifest(mode):
    assert unsupported.unsupported(VerifierRun.parse(made(mode))) == []


def test_the_rules_of_the_runs_pod_are_those_of_the_verifiers_own():
    options = {"pod": {"nodeSelector": {"a": "b"}}, "security": {"profile": "restricted"}}
    spec = VerifierRun.parse(made(Mode.SEPARATE, **options)).spec
    assert spec.pod is not None
    assert spec.security is not None
    assert (spec.pod.node_selector, spec.security.profile) == ({"a": "b"}, "restricted")
    assert not {"pod", "security"} & set(made(Mode.SHARED, **options)["spec"]), "there is no other pod"
