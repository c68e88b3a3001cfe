"""Reference answers and sidecar inputs: solution/answer.md, and files that outlive the reset of /logs/verifier."""

from __future__ import annotations

import hashlib
from typing import Any

from taskfold.conformance.case import ORACLE, TOML, Case, facts, holds, rewarded, script, task

ANSWERS = "seed: Reference answers"
INPUTS = "seed: Sidecar inputs"
ODD = b"\xff\x00 42 \xc3\xbc\r\n\n"
ODD_SUM = hashlib.sha256(ODD).hexdigest()
BINARY: dict[str, Any] = {"solution/answer.md": ODD}

GRADES_TEXT = """from nemo_gym.verifiers import final_text
from nemo_gym.verifiers.files import read_text


def verify(workspace, response):
    assert final_text(response) == "forty-two\\n", response
    return float(read_text(workspace, "answer.md") == "forty-two")
"""

REFERENCE = (
    Case(
        "answer-is-copied-byte-for-byte",
        "without a solve.sh the oracle copies answer.md byte for byte into the working directory, as the task's user",
        ANSWERS,
        task(
            facts(
                same=f'[ "$(sha256sum < answer.md | cut -d " " -f 1)" = {ODD_SUM} ]',
                owner='[ "$(stat -c %U answer.md)" = nobody ]',
            ),
            toml=TOML + '[agent]\nuser = "nobody"\n',
            **BINARY,
        ),
        ORACLE,
        holds(outcome="Succeeded"),
    ),
    Case(
        "answer-is-the-response",
        "its text is submitted as the response, and is the last step of the transcript",
        f"{ANSWERS}; C24",
        task(**{"solution/answer.md": "forty-two\n", "tests/verifier.py": GRADES_TEXT}),
        ORACLE,
        rewarded("1", outcome="Succeeded"),
    ),
    Case(
        "answer-beside-a-solution",
        "when both exist solve.sh wins",
        "C16",
        task(
            facts(solved="[ -e solved ]", no_answer="[ ! -e answer.md ]"),
            solve="touch solved",
            **{"solution/answer.md": "forty-two\n"},
        ),
        ORACLE,
        holds(),
    ),
    Case(
        "answer-that-cannot-be-written",
        "an answer that the task's user cannot write is the oracle's failure, and is graded all the same",
        f"{ANSWERS}; C11",
        task(
            facts(none="[ ! -e answer.md ]"),
            toml=TOML.replace('"/app"', '"/usr"') + '[agent]\nuser = "nobody"\n',
            **{"solution/answer.md": "forty-two\n"},
        ),
        ORACLE,
        holds(outcome="Failed"),
    ),
)

DECLARED = '[gym.tasks."inputs".verifier]\ninputs = ["actions.jsonl", "link.log", "folder", "later.txt"]\n'
IN = "/logs/verifier"
WRITES = (
    f"echo acted > {IN}/actions.jsonl; echo planted > {IN}/other.jsonl; echo 1 > {IN}/reward.txt\n"
    f"ln -s /etc/passwd {IN}/link.log; mkdir {IN}/folder; echo x > {IN}/folder/x"
)

SIDECAR = (
    Case(
        "inputs-outlive-the-reset",
        "a declared input survives the reset of /logs/verifier, only as a regular file; everything else is gone",
        f"{INPUTS}; C20",
        {
            **{f"inputs/{path}": content for path, content in task(
                facts(
                    kept=f"grep -qx acted {IN}/actions.jsonl",
                    others=f'[ "$(ls -A {IN} | sort | paste -sd " ")" = "actions.jsonl reward.json test-stdout.txt" ]',
                )
            ).items()},
            "dataset.toml": DECLARED,
        },
        script(WRITES),
        holds(
            warns=(
                "the input folder was no regular file after the agent's end",
                "the input link.log was no regular file after the agent's end",
            )
        ),
        {"task": {"path": "inputs"}},
    ),
)  # fmt: skip

CASES: tuple[Case, ...] = (*REFERENCE, *SIDECAR)
