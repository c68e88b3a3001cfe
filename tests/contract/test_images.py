"""The image on record: kept in the store as a document, and pinned."""

import json

import pytest

from taskfold.contract.dockerfile import ImageConfig
from taskfold.contract.images import RecordedImage

DIGEST = "sha256:" + "9" * 64
BASE = ImageConfig(
    {"A": "1"}, "/srv", "app", ("entry", "x"), ("serve",), {"Test": ["CMD", "x"], "Retries": 2}, ("/bin/bash", "-c")
)


@pytest.mark.parametrize("config", [ImageConfig(), BASE])
def test_a_document_comes_back_as_it_was(config):
    recorded = RecordedImage("base:1", DIGEST, config, BASE)
    assert RecordedImage.of(json.loads(json.dumps(recorded.document()))) == recorded


@pytest.mark.parametrize("document", [{}, {"reference": "a", "digest": DIGEST, "config": {}, "base": {}}])
def test_another_document_is_an_error(document):
    with pytest.raises(KeyError):
        RecordedImage.of(document)


@pytest.mark.parametrize(
    ("reference", "pinned"),
    [
        ("python:3", f"python@{DIGEST}"),
        ("reg:5000/a/b:1", f"reg:5000/a/b@{DIGEST}"),
        ("reg:5000/a/b", f"reg:5000/a/b@{DIGEST}"),
        ("a@sha256:" + "1" * 64, f"a@{DIGEST}"),
    ],
)
def test_a_pod_gets_the_digest_and_not_the_tag(reference, pinned):
    assert RecordedImage(reference, DIGEST, BASE).pinned == pinned
