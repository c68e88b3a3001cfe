"""Transcripts and responses: what an agent is told, what it leaves, and what its verifier finds of it (C24)."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from typing import Any

from taskfold.conformance.case import NOP, ORACLE, TOML, Case, Need, counted, facts, holds, rewarded, script, task

TRAJECTORY = "/logs/agent/trajectory.json"
ATIF = "C24"
HANDOUT = "/tmp/.nemo-gym"  # noqa: S108 - the contract's own path


def transcript_has(expression: str) -> str:
    """A check of the transcript in Python; `t` is the document, `s` its steps."""
    program = f"import json; t = json.load(open({TRAJECTORY!r})); s = t['steps']; assert {expression}, t"
    return f"python3 -c {shlex.quote(program)}"


def own(version: str = "ATIF-v1.7", **changes: Any) -> Mapping[str, Any]:
    """A trajectory of an agent."""
    return {
        "schema_version": version,
        "agent": {"name": "mine", "version": "7", "model_name": "m"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "hello from the agent"},
            {"step_id": 2, "source": "agent", "message": "done", "metrics": {"prompt_tokens": 3}},
        ],
        **changes,
    }


def writes(document: Mapping[str, Any], path: str = TRAJECTORY) -> str:
    """A script's line that leaves this document."""
    return f"printf %s {shlex.quote(json.dumps(document))} > {path}\n"


BUILT = transcript_has('t["schema_version"] == "ATIF-v1.7" and t["agent"]["name"] == "script" and len(s) == 1')
"""Made by the operator: of the instruction alone."""
TAKEN = transcript_has('t["schema_version"] == "ATIF-v1.7" and t["agent"]["name"] == "mine" and len(s) == 2')
"""The agent's own."""

RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "model": "m-1",
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "look first"}]},
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"path": "/app"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "answer.txt"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 42."}]},
    ],
}
TURNS = (
    'len(s) == 3 and s[1]["reasoning_content"] == "look first" and s[1]["model_name"] == "m-1"'
    ' and s[1]["tool_calls"] == [{"tool_call_id": "c1", "function_name": "ls", "arguments": {"path": "/app"}}]'
    ' and s[1]["observation"]["results"] == [{"source_call_id": "c1", "content": "answer.txt"}]'
    ' and s[2]["message"] == "It is 42." and t["final_metrics"]["total_steps"] == 3'
)

OWN = (
    Case(
        "transcript-of-the-agent",
        "the agent's own trajectory is the transcript when it is valid ATIF v1.7, byte for byte",
        ATIF,
        task(facts(taken=TAKEN, same=f"cmp {TRAJECTORY} kept", owner=f'[ "$(stat -c %u {TRAJECTORY})" = 0 ]')),
        script(writes(own()) + f"cp {TRAJECTORY} kept"),
        holds(absent=("warnings.0",)),
        needs=frozenset({Need.ROOT}),
    ),
    Case(
        "transcript-of-an-older-version",
        "an own trajectory of ATIF 1.0 to 1.6 is taken, as v1.7",
        ATIF,
        task(facts(taken=TAKEN)),
        script(writes(own("ATIF-v1.4"))),
        holds(absent=("warnings.0",)),
    ),
    Case(
        "transcript-of-a-newer-version",
        "one of a newer version is replaced by one that is made, with a warning that says why",
        ATIF,
        task(facts(built=BUILT)),
        script(writes(own("ATIF-v1.8"))),
        holds(warns=(f"{TRAJECTORY} is no valid ATIF v1.7 file: schema_version",)),
    ),
    Case(
        "transcript-that-is-invalid",
        "so is an invalid one, and the warning names the first field that is wrong",
        ATIF,
        task(facts(built=BUILT)),
        script(writes(own(steps=[{"step_id": 1, "source": "user", "message": "hi", "model_name": "m"}]))),
        holds(warns=("steps.0: only a step of the agent has a model",)),
    ),
    Case(
        "transcript-that-is-a-link",
        "a planted link in place of the trajectory is never followed, neither to read nor to write",
        "C19",
        task(
            facts(
                built=BUILT,
                replaced=f"[ ! -L {TRAJECTORY} ]",
                test_sh_is_whole="head -1 /tests/test.sh | grep -q bash",
                precious_is_whole='[ "$(cat /app/precious)" = precious ]',
            )
        ),
        script(f"echo precious > precious; ln -s /tests/test.sh {TRAJECTORY}"),
        holds(warns=(f"{TRAJECTORY} is no regular file",)),
    ),
    Case(
        "transcript-behind-a-linked-folder",
        "nor is a link followed that stands for /logs/agent itself, and nothing is left where it led",
        "C19",
        task(
            facts(
                built=BUILT,
                folder="[ -d /logs/agent ] && [ ! -L /logs/agent ]",
                elsewhere="[ ! -e /app/elsewhere/trajectory.json ]",
            )
        ),
        script("mkdir elsewhere; rm -rf /logs/agent; ln -s /app/elsewhere /logs/agent"),
        holds(),
    ),
)


def verifier(*lines: str) -> dict[str, Any]:
    """A Python verifier with these lines; `t` and `s` are the transcript and its steps."""
    body = (f"t = json.load(open({TRAJECTORY!r}))", 's = t["steps"]', *lines)
    text = "import json\n\n\ndef verify(response):\n" + "".join(f"    {line}\n" for line in body)
    return {"tests/verifier.py": text}


RESPONSES = (
    Case(
        "response-of-a-script",
        "a script agent's response.json reaches the verifier as it is, and is told turn by turn in the transcript",
        "seed: Python verifiers; C24",
        task(**verifier(f"assert {TURNS}, t", f"return float(response == json.loads({json.dumps(RESPONSE)!r}))")),
        script(writes(RESPONSE, "/logs/agent/response.json") + "echo ignored > /logs/agent/response.txt"),
        rewarded("1", absent=("warnings.0",)),
    ),
    Case(
        "response-as-text",
        "response.txt is the text of the answer: the verifier has it in the Responses API's shape",
        "seed: Python verifiers; C21; C24",
        task(
            **verifier(
                "from nemo_gym.verifiers import final_text",
                'assert [m["role"] for m in response["output"]] == ["assistant"], response',
                'assert [x["source"] for x in s] == ["user", "agent"] and s[1]["message"] == "42 \u00fc\\n", s',
                'return float(final_text(response) == "42 \u00fc\\n")',
            )
        ),
        script("echo '42 \u00fc' > /logs/agent/response.txt"),
        rewarded("1", absent=("warnings.0",)),
    ),
    Case(
        "response-that-is-broken",
        "a response.json that is no response is passed over with a warning that names the field; the text counts",
        "C24",
        task(**verifier('return float(response["output"][0]["content"][0]["text"] == "42")')),
        script(
            writes({"object": "response", "output": [{"type": "message"}]}, "/logs/agent/response.json")
            + "printf 42 > /logs/agent/response.txt"
        ),
        rewarded("1", warns=("/logs/agent/response.json is no Responses API object: output.0.role",)),
    ),
    Case(
        "response-that-is-a-link",
        "a link in place of a response is not followed: it could lead to what the agent must not read",
        "C19",
        task(**verifier("return 1.0")),
        script("ln -s /etc/shadow /logs/agent/response.txt"),
        counted("harbor:missing_reward", "RewardMissing", warns=("/logs/agent/response.txt is no regular file",)),
    ),
    Case(
        "response-of-nop",
        "an agent that does nothing gives no response: a verifier that requires one has nothing to grade",
        "seed: Python verifiers",
        task(**verifier("return 1.0")),
        NOP,
        counted("harbor:missing_reward", "RewardMissing", says=("response",)),
    ),
)

INSTRUCTION = "<!-- canary 0123 -->\n\n  Do \u00fc, $(twice).\r\n\n"
TOLD = INSTRUCTION.partition("\n\n")[2]
TASK_JSON = f"{HANDOUT}/task.json"

TOLD_WHAT = (
    Case(
        "instruction-for-the-agent",
        "the agent finds the instruction, byte for byte and without its canary, where TASKFOLD_INSTRUCTION says",
        "agents: instruction",
        task(
            facts(
                same=f'[ "$(cat told)" = {shlex.quote(hashlib.sha256(TOLD.encode()).hexdigest())} ]',
                path=f'[ "$(cat path)" = {HANDOUT}/instruction.md ]',
                nothing_else="[ ! -s others ]",
                not_in_test_sh='[ -z "$TASKFOLD_INSTRUCTION" ]',
            ),
            **{"instruction.md": INSTRUCTION},
        ),
        script(
            'sha256sum < "$TASKFOLD_INSTRUCTION" | cut -d " " -f 1 > told; echo "$TASKFOLD_INSTRUCTION" > path\n'
            f"ls -A {HANDOUT} | grep -v '^instruction.md$' > others; true",
            install="test -s $TASKFOLD_INSTRUCTION",
        ),
        holds(),
    ),
    Case(
        "instruction-for-another-user",
        "the agent's user can read it and not change it; what an installation planted there is gone before",
        "agents: instruction; C19",
        task(
            facts(
                read="grep -q 'Do it' seen", kept='[ "$(cat changed)" = no ]', modes='[ "$(cat modes)" = "755 644 0" ]'
            ),
            toml=TOML + '[agent]\nuser = "nobody"\n',
        ),
        script(
            'cat "$TASKFOLD_INSTRUCTION" > seen; (echo x > "$TASKFOLD_INSTRUCTION") 2>/dev/null && echo yes > changed '
            f'|| echo no > changed\necho $(stat -c %a {HANDOUT}) $(stat -c "%a %u" "$TASKFOLD_INSTRUCTION") > modes'
        ),
        holds(),
    ),
    Case(
        "instruction-that-is-long",
        "an instruction may be larger than a request to the sandbox",
        "agents: instruction",
        task(facts(size='[ "$(cat size)" = 900000 ]'), **{"instruction.md": "x" * 900_000}),
        script('stat -c %s "$TASKFOLD_INSTRUCTION" > size'),
        holds(),
    ),
    Case(
        "skills-for-the-agent",
        "skills_dir is told in /tmp/.nemo-gym/task.json, a folder of mode 755 and a file of mode 644",
        "task.toml: environment.skills_dir",
        task(
            facts(
                told=f'grep -q \'"skills_dir": "/opt/skills"\' {TASK_JSON}',
                modes=f'[ "$(stat -c %a {HANDOUT} {TASK_JSON} | paste -sd " ")" = "755 644" ]',
            ),
            solve=f"test -s {TASK_JSON}",
            toml=TOML + 'skills_dir = "/opt/skills"\n',
        ),
        ORACLE,
        holds(outcome="Succeeded"),
    ),
)

CASES: tuple[Case, ...] = (*OWN, *RESPONSES, *TOLD_WHAT)
