#!/usr/bin/env python3
"""Writes what is generated from the models: crds/*.yaml, with their copies in the chart, the `settings` part of the
chart's values.schema.json, and in docs/reference taskrun.md, verifierrun.md, settings.md, conformance.md,
failure-kinds.md, lint.md, losses.md and task-folder.md.

`--check` writes nothing, prints what differs and ends with 1 when a file is stale.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "taskfold"
sys.path.insert(0, str(ROOT / "operator"))

from taskfold.api import crd, docs, settings_docs  # noqa: E402
from taskfold.conformance import docs as conformance  # noqa: E402
from taskfold.contract import reference  # noqa: E402
from taskfold.decide import reference as losses  # noqa: E402


def wanted() -> dict[Path, str]:
    """Path → content of every generated file."""
    folders = (ROOT / "crds", CHART / "crds")
    crds = {folder / name: text for folder in folders for name, text in crd.files().items()}
    folder = ROOT / "docs" / "reference"
    contract = reference.files((folder / reference.TASK_FOLDER).read_text(encoding="utf-8"))
    texts = docs.files() | settings_docs.files() | contract | losses.files() | conformance.files()
    pages = {folder / name: text for name, text in texts.items()}
    schema = CHART / "values.schema.json"
    return crds | pages | {schema: settings_docs.with_chart_schema(schema.read_text(encoding="utf-8"))}


def difference(path: Path, text: str) -> str:
    """What would change in one file, as a unified diff; empty when it is current."""
    name = str(path.relative_to(ROOT))
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    return "".join(difflib.unified_diff(before.splitlines(True), text.splitlines(True), name, f"{name} (generated)"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 when a file is stale")
    check = parser.parse_args().check
    stale = {path: diff for path, text in wanted().items() if (diff := difference(path, text))}
    if check:
        sys.stdout.write("".join(stale.values()))
        if stale:
            print(f"stale: {', '.join(str(path.relative_to(ROOT)) for path in stale)}. Run hack/generate.py.")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted()[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
