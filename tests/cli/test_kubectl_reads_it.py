"""kubectl's own parser reads what `render` writes. `kubectl label --local` asks no server."""

import json
import shutil
import subprocess

import pytest

from taskfold.cli import manifest_text

TEXTS = [
    "", "y", "No", "on", "1e3", "1E5", "0o17", "0x1f", "0b1", "1_000", "1:30", "~", "null", ".inf", ".5", "+1", "=",
    "2020-01-01", "2020-01-01T00:00:00Z", "<<", "- a", "a: b", "#x", "x #y", "!tag", "&a", "*a", "%a", "@a", "`a`",
    "'", '"', "\\", "\\n", "a\n", "a\n\n", "a\n\n\n", "\na", " a\n", "\ta\n", "a\tb\n", "a\n\tb\n", "a\n  b\n",
    "a \nb\n",    "a\n \nb\n", "---\n", "...\n", "a\n---\nb\n", "# x\n", "naïve ☃\n", "👩‍🚀", "👩‍🚀\nb\n",
    "\u200b", "\u2028", "a\u2028b\nc\n",
    "x" * 300, "x " * 300, "#!/bin/bash\nset -eu\ncat <<'E'\n\tdone: \"$x\" # y\nE\n",
]  # fmt: skip


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_every_text_comes_back() -> None:
    files = {f"f{index}": text for index, text in enumerate(TEXTS)} | {text: "v" for text in TEXTS if text.strip()}
    run = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": files,
    }
    command = ["kubectl", "label", "--local", "--filename=-", "--output=json", "a=b"]
    text = manifest_text.as_yaml([run])
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"] == files
