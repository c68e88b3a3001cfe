"""The chart's values of the store, and the examples of docs/store.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from taskfold.api.settings import Settings
from taskfold.effects import backends

from .test_reading import found

PAGE = Path(__file__).resolve().parents[2] / "docs/store.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)


def settings(helm, values: dict) -> Settings:
    (found,) = [each for each in helm.objects("ns", values) if each["kind"] == "ConfigMap"]
    return Settings.model_validate(yaml.safe_load(found["data"]["settings.yaml"]))


def test_the_values_of_the_page_render_and_make_a_client(helm):
    examples = blocks("yaml")
    assert len(examples) == 2
    for example in examples:
        values = yaml.safe_load(example)
        store = settings(helm, values).store
        assert store.url == values["store"]["url"]
        backends.make(store.url, store.client_options())
        (deployment,) = found(helm.objects("ns", values), "Deployment")
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        secret = values["store"].get("secretName")
        assert container.get("envFrom") == ([{"secretRef": {"name": secret}}] if secret else None)


def test_encryption_and_retention_reach_the_operator(helm):
    encryption = {"type": "aws:kms", "kmsKeyId": "alias/results", "bucketKey": False}
    store = settings(
        helm, {"store": {"url": "s3://b", "serverSideEncryption": encryption, "retentionSeconds": 86400}}
    ).store
    assert store.retention_seconds == 86400
    assert store.client_options() == {
        "server_side_encryption": "aws:kms",
        "sse_kms_key_id": "alias/results",
        "sse_bucket_key_enabled": "false",
    }
    assert settings(helm, {}).store.retention_seconds is None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("store.serverSideEncryption.type=AES256", "store.serverSideEncryption is for an s3:// store"),
        ("store.url=s3://b,store.serverSideEncryption.type=rot13", "at '/store/serverSideEncryption/type'"),
        ("store.url=s3://b,store.serverSideEncryption.kmsKeyId=k", "kmsKeyId and bucketKey are for the types aws:kms"),
        ("store.retentionSeconds=0", "at '/store/retentionSeconds'"),
    ],
)
def test_what_does_not_fit_is_refused(helm, values, said):
    chart = PAGE.parents[1] / "charts/taskfold"
    done = helm("template", "x", str(chart), "--set", values)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_rules_of_the_page_are_what_s3_takes():
    (text,) = blocks("json")
    rules = json.loads(text)["Rules"]
    assert len({each["ID"] for each in rules}) == len(rules)
    known = {"ID", "Status", "Filter", "AbortIncompleteMultipartUpload", "NoncurrentVersionExpiration", "Expiration"}
    for rule in rules:
        assert set(rule) <= known
        assert rule["Status"] == "Enabled"
        assert rule["Filter"]["Prefix"].startswith("taskfold/")
    assert rules[0]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 2}


@pytest.mark.parametrize("name", ["secret_access_key", "aws_session_token", "account_key", "sse_customer_key_base64"])
def test_a_secret_among_the_options_is_refused(name):
    with pytest.raises(ValueError, match="is a secret"):
        Settings.model_validate({"store": {"url": "s3://b", "options": {name: "x"}}})


@pytest.mark.parametrize(
    "store",
    [
        {"serverSideEncryption": {"type": "AES256"}},
        {"url": "s3://b", "serverSideEncryption": {"kmsKeyId": "k"}},
        {"url": "s3://b", "serverSideEncryption": {"type": "AES256", "bucketKey": True}},
        {"retentionSeconds": 0},
    ],
)
def test_settings_that_contradict_each_other_are_refused(store):
    with pytest.raises(ValueError, match="store"):
        Settings.model_validate({"store": store})
