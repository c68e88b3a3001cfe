"""Manifests of the documentation work by copy and paste: every block marked `<!-- test: apply -->` is applied."""

import re
from pathlib import Path

import pytest
import yaml

from tests.conformance import harness

MARKED = re.compile(r"<!-- test: apply(?: (?P<reward>\S+))? -->\n+```yaml\n(?P<text>.*?)```", re.DOTALL)
PAGES = [harness.ROOT / "README.md", *sorted((harness.ROOT / "docs").rglob("*.md"))]


def examples() -> list[tuple[str, str, str]]:
    """(page, expected reward, manifest) of every marked block."""
    found = []
    for page in PAGES:
        for match in MARKED.finditer(page.read_text(encoding="utf-8")):
            found.append((str(page.relative_to(harness.ROOT)), match["reward"] or "1", match["text"]))
    return found


def test_there_are_examples() -> None:
    assert {page for page, _, _ in examples()} >= {"README.md"}


@pytest.mark.parametrize(("page", "reward", "text"), examples(), ids=lambda value: str(value)[:40].splitlines()[0])
def test_an_example_works_as_written(
    cluster: harness.Cluster, namespace: str, operator: harness.Operator, page: str, reward: str, text: str
) -> None:
    documents = [document for document in yaml.safe_load_all(text) if document]
    run = next(document for document in documents if document["kind"] == "TaskRun")
    harness.kubectl(cluster, "apply", "--namespace", namespace, "--filename", "-", text=text)
    assert cluster.finished(namespace, run["metadata"]["name"]).get("reward") == reward, page


def test_pages_link_to_files_that_exist() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (Path(page).parent / target).exists():
                broken.append(f"{page.relative_to(harness.ROOT)} → {target}")
    assert not broken
