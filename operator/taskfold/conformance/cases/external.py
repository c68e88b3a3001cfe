"""The external agent: somebody outside works in the sandbox and sets `spec.finish`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taskfold.conformance.case import TOML, Case, Expect, Need, counted, facts, holds, refused, rewarded, task

EXTERNAL: Mapping[str, Any] = {"external": {}}
RUNNING = "Running"
ONE = "echo 1 > /logs/verifier/reward.txt\n"
SAYS = "grep -q 'It is forty-two.' /logs/agent/trajectory.json && echo 1 > /logs/verifier/reward.txt\n"
OBJECT = (
    '{"object": "response", "output": [{"type": "message", "role": "assistant", "content": '
    '[{"type": "output_text", "text": "It is "}, {"type": "output_text", "text": "forty-two."}]}]}'
)
PYTHON = "def verify(response):\n    return float(response['output'][-1]['content'][0]['text'] == 'forty-two')\n"
ANSWER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "case-external-answer"},
    "data": {"text": "It is forty-two."},
}
STEPS = TOML + '[[steps]]\nname = "one"\n'


def finish(outcome: str = "Succeeded", **response: object) -> tuple[tuple[str, dict[str, object]], ...]:
    """The patch that ends the work once the sandbox is ready."""
    return ((RUNNING, {"finish": {"outcome": outcome, **response}}),)


CASES = (
    Case(
        "external-succeeded",
        "an external agent's work is verified when spec.finish is set; its outcome stands in the status",
        "docs: external agents",
        task(ONE),
        EXTERNAL,
        rewarded(outcome="Succeeded", status={"agent.user": "0:0", "agent.workdir": "/app"}),
        patches=finish(),
        needs=frozenset({Need.ROOT}),
    ),
    Case(
        "external-failed",
        "an agent that says it failed is verified all the same, and counted by what the verifier says",
        "C11",
        task(ONE),
        EXTERNAL,
        rewarded(outcome="Failed"),
        patches=finish("Failed"),
    ),
    Case(
        "external-finished-at-its-creation",
        "finish that is set before the sandbox is ready acts as soon as it is",
        "docs: external agents",
        task(ONE),
        EXTERNAL,
        rewarded(outcome="Succeeded"),
        spec={"finish": {"outcome": "Succeeded"}},
    ),
    Case(
        "external-timed-out",
        "an external agent has the task's limit, times the multiplier; verification follows",
        "C1",
        task(ONE, toml=TOML + "[agent]\ntimeout_sec = 1\n"),
        EXTERNAL,
        rewarded(outcome="TimedOut"),
        spec={"multipliers": {"timeout": 0.5}},
    ),
    Case(
        "external-without-a-reward",
        "what an external agent's verifier does not write counts as 0, with the contract's kind",
        "seed: Reward files",
        task("true\n"),
        EXTERNAL,
        counted("harbor:missing_reward", "RewardMissing", outcome="Succeeded"),
        patches=finish(),
    ),
    Case(
        "external-response-text",
        "a final response that is a text stands in the transcript",
        "C24",
        task(SAYS),
        EXTERNAL,
        rewarded(),
        patches=finish(response="It is forty-two."),
    ),
    Case(
        "external-response-object",
        "a final response may be a Responses API object; its output_text parts are joined",
        "C21",
        task(SAYS),
        EXTERNAL,
        rewarded(),
        patches=finish(response=OBJECT),
    ),
    Case(
        "external-response-python",
        "a Python verifier gets the final response of an external agent as `response`",
        "seed: Python verifiers",
        {**task(), "tests/verifier.py": PYTHON},
        EXTERNAL,
        rewarded(),
        patches=finish(response="forty-two"),
    ),
    Case(
        "external-response-of-a-configmap",
        "a final response may stand in a ConfigMap",
        "docs: external agents",
        task(SAYS),
        EXTERNAL,
        rewarded(),
        objects=(ANSWER,),
        patches=finish(responseFrom={"configMapKeyRef": {"name": "case-external-answer", "key": "text"}}),
    ),
    Case(
        "external-response-that-is-none",
        "a response that looks like an object and is none costs the response, not the work",
        "docs: external agents",
        task(ONE),
        EXTERNAL,
        rewarded(warns=("verified without the agent's response",)),
        patches=finish(response='{"object": "response", "output": 3}'),
    ),
    Case(
        "external-handout",
        "an external agent finds the instruction in the sandbox, root's and readable, and nothing of its own has run",
        "docs: external agents",
        task(
            facts(
                instruction="grep -qx 'Do it.' /tmp/.nemo-gym/instruction.md",
                readable="test $(stat -c %U%a /tmp/.nemo-gym/instruction.md) = root644",
                quiet="test ! -e /logs/agent/stdout.txt",
            )
        ),
        EXTERNAL,
        holds(),
        patches=finish(),
        needs=frozenset({Need.ROOT}),
    ),
    Case(
        "external-cancelled",
        "a run whose external agent works can be cancelled; there is no reward",
        "docs: external agents",
        task(ONE),
        EXTERNAL,
        Expect("Cancelled", "", reason="Cancelled"),
        patches=((RUNNING, {"cancel": True}),),
    ),
    Case(
        "external-with-new-attempts",
        "whole new attempts are refused: nobody could tell somebody outside to begin again",
        "C14",
        task(ONE),
        EXTERNAL,
        refused("InvalidSpec", "spec.retries.infrastructure"),
        spec={"retries": {"infrastructure": 1}},
    ),
    Case(
        "external-with-steps",
        "a multi-step task is refused: finish is set once, and each step would need its own",
        "docs: external agents",
        {
            **task(toml=STEPS),
            "steps/one/instruction.md": "Do it.\n",
            "steps/one/tests/test.sh": ONE,
        },
        EXTERNAL,
        refused("InvalidSpec", "[[steps]]"),
    ),
)
