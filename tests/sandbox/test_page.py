"""docs/reference/python-verifiers.md: its examples run, and its signatures are the code's."""

import inspect
import re
import sys
from pathlib import Path

import pytest

from taskfold.sandbox.nemo_gym import verifiers
from taskfold.sandbox.nemo_gym.verifiers import files

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "python-verifiers.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
RESPONSE = {
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 42."}]}]
}
REWARDS = [
    {"reward.txt": "1.0\n"},
    {"reward.json": '{"reward": 1.0, "files": 1.0}\n'},
    {"reward.txt": "1.0\n"},
    {"reward.json": '{"reward": 1.0, "words": 3.0}\n'},
]


@pytest.mark.parametrize(("source", "rewards"), [*zip(EXAMPLES, REWARDS, strict=True)], ids=range(4))
def test_an_example_runs_as_written(place, source, rewards):
    place.fill(
        {"tests/verifier.py": source}, data={"answer": "42"}, response=RESPONSE, workspace={"answer.txt": "42\n"}
    )
    done = place.run(sys.executable)
    assert done.rewards == rewards, done.output


@pytest.mark.parametrize("module", [verifiers, files], ids=["verifiers", "files"])
def test_every_helper_is_there_with_its_signature(module):
    for name in module.__all__:
        parameters = inspect.signature(getattr(module, name)).parameters.values()
        plain = [p.replace(annotation=p.empty) for p in parameters]
        written = str(inspect.Signature(plain)).replace("'", '"')
        assert f"| `{name}{written}` |" in TEXT
