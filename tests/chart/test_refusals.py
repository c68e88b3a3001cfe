"""Values that cannot be meant are refused before anything is installed, in words that name the value."""

from __future__ import annotations

from pathlib import Path

import pytest

CHART = Path(__file__).resolve().parents[2] / "charts" / "taskfold"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("foo=1", "at '': additional properties 'foo' not allowed"),
        ("store.uri=s3://b", "at '/store': additional properties 'uri' not allowed"),
        ("settings.limit.x=1", "at '/settings': additional properties 'limit' not allowed"),
        ("settings.namespaces={a}", "at '/settings': additional properties 'namespaces' not allowed"),
        ("settings.store.url=s3://b", "at '/settings': additional properties 'store' not allowed"),
        ("settings.limits.seedTries=99", "at '/settings/limits/seedTries': maximum: got 99, want 10"),
        ("settings.pod.cpuLimit=4", "at '/settings/pod/cpuLimit': got number, want null or string"),
        ("settings.logFormat=xml", "at '/settings/logFormat': value must be one of 'json', 'text'"),
        ("clusterWide=maybe", "at '/clusterWide': got string, want boolean"),
        ("namespaces={A_b}", "at '/namespaces/0': 'A_b' does not match pattern"),
        ("namespaces={a,a}", "at '/namespaces': items at 0 and 1 are equal"),
        ("store.url=http://x", "at '/store/url': 'http://x' does not match pattern"),
        ("store.url=s3://key:word@bucket", "at '/store/url'"),
        ("store.url=file:///", "at '/store/url'"),
        ("image.digest=abc", "at '/image/digest'"),
        ("healthPort=80", "at '/healthPort': minimum: got 80, want 1,024"),
        ("store.persistence.size=lots", "at '/store/persistence/size'"),
        ("networkPolicy.metadataAddresses={169.254.169.254}", "at '/networkPolicy/metadataAddresses/0'"),
        (
            "store.persistence.enabled=false",
            "results would be lost with the operator's pod. Enable persistence, use an object store "
            "(store.url=s3://bucket/prefix), or accept the loss with store.ephemeral=true",
        ),
        ("store.ephemeral=true,store.url=s3://b", "store.ephemeral=true is for a file:// store"),
        (
            "store.ephemeral=true,store.persistence.existingClaim=c",
            "store.ephemeral=true and store.persistence.existingClaim exclude each other",
        ),
        ("clusterWide=true,namespaces={a}", "leave namespaces empty, or set clusterWide=false"),
        ("serviceAccount.create=false", "name the account that exists in serviceAccount.name"),
        ("replicas=0", "at '/replicas': minimum: got 0, want 1"),
        (
            "replicas=2",
            "replicas is 2, but the claim of the store can be mounted by one node only. Set "
            "store.persistence.accessModes={ReadWriteMany} if its StorageClass (or existingClaim) can do that, use an "
            "object store (store.url=s3://bucket/prefix), or set replicas=1",
        ),
        ("replicas=2,store.persistence.existingClaim=c", "can be mounted by one node only"),
        ("replicas=2,store.ephemeral=true", "store.ephemeral=true gives each of them a store of its own"),
        (
            "replicas=2,store.url=s3://b,leaderElection.enabled=false",
            "leaderElection.enabled is false: all of them would work on the same runs",
        ),
        ("leaderElection.leaseName=x", "at '/leaderElection': additional properties 'leaseName' not allowed"),
        ("settings.leaderElection.enabled=true", "additional properties 'leaderElection' not allowed"),
        (r"podLabels.taskfold\.dev/run=x", "podLabels: taskfold.dev/run is a label of sandboxes"),
    ],
)
def test_refused(helm, given, message):
    done = helm("template", "taskfold", str(CHART), "--set", given)
    assert done.returncode != 0
    assert message in done.stderr
