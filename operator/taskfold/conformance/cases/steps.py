"""Multi-step tasks: turn after turn in one sandbox, and how the rewards of the steps become one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taskfold.conformance.case import NOP, ORACLE, TOML, Case, Expect, Need, counted, facts, masked, rewarded, script
from taskfold.conformance.cases.environment import secret

STEPS = "multi-step tasks"
REWARD = "echo {} > /logs/verifier/reward.txt\n"
JSON = "cat > /logs/verifier/reward.json <<'E'\n{}\nE\n"
AS_NOBODY = '[agent]\nuser = "nobody"\n'
AS_ROOT = frozenset({Need.ROOT})
NO_FILES: Mapping[str, str] = {}
FINAL = 'multi_step_reward_strategy = "final"\n'


def step(test: str | None = None, *, table: str = "", setup: str | None = None, **files: str) -> dict[str, str]:
    """One step: `table` is added to its [[steps]]; `files` by their paths below its folder."""
    found = {"table": table, **files}
    if test is not None:
        found["tests/test.sh"] = "#!/bin/bash\n" + test
    if setup is not None:
        found["workdir/setup.sh"] = setup
    return found


def stepped(
    *steps: Mapping[str, str],
    keys: str = "",
    tables: str = "",
    names: tuple[str, ...] = (),
    files: Mapping[str, str] = NO_FILES,
) -> dict[str, Any]:
    """A task of these steps, named one, two, three unless `names` says otherwise. `keys` stand above all tables.
    `files`: of the whole task.
    """
    lines, folder = [keys + TOML + tables], dict[str, Any](files)
    for name, each in zip(names or ("one", "two", "three"), steps, strict=False):
        lines.append(f'[[steps]]\nname = "{name}"\n{each["table"]}')
        folder[f"steps/{name}/instruction.md"] = f"Do {name}.\n"
        folder |= {f"steps/{name}/{path}": text for path, text in each.items() if path != "table"}
    return {"task.toml": "\n".join(lines), **folder}


def told(number: int, **fields: Any) -> dict[str, Any]:
    """Fields of `status.steps` by their place."""
    return {f"steps.{number}.{name.replace('__', '.')}": value for name, value in fields.items()}


def _reward(value: str) -> str:
    return REWARD.format(value)


def _json(text: str) -> str:
    return JSON.replace("{}", text)


def _solved(name: str) -> dict[str, str]:
    return {"solution/solve.sh": f"echo {name} >> log\n"}


ORDER = (
    step(facts(one='[ "$(cat log)" = one ]', alone="[ ! -e /app/later ]"), **_solved("one")),
    step(facts(both='[ "$(tr "\\n" " " < log)" = "one two " ]'), **_solved("two")),
    step(facts(all='[ "$(tr "\\n" " " < log)" = "one two three " ]'), **_solved("three")),
)

_CLEAN = (
    "ls -A /tests /logs/verifier /logs/agent > seen-$TASKFOLD_STEP 2>&1; mkdir -p /tests; "
    "echo 'exit 0' > /tests/test.sh; echo planted > /tests/helper; echo 1 > /logs/verifier/reward.json; "
    "echo 1 > /logs/verifier/reward.txt; ln -s /tests/test.sh /logs/agent/trajectory.json; true"
)
_AS_IT_WAS = (
    "{ cat /logs/steps/*/*/* || ls /logs/steps/one/verifier || ls -A /tests | grep . "
    "|| ls -A /logs/verifier | grep .; } && echo open > /tmp/open; true"
)

CASES: tuple[Case, ...] = (
    Case(
        id="steps-in-order",
        proves="Steps run in order in one sandbox, each with its own solution, verifier and result",
        source=STEPS,
        files=stepped(*ORDER),
        agent=ORACLE,
        expect=Expect(
            "Succeeded",
            "1",
            kind="none",
            outcome="Succeeded",
            status={
                **told(0, name="one", reward="1", agent__outcome="Succeeded", verifier__returnCode=0),
                **told(1, name="two", reward="1", rewards__both=1),
                **told(2, name="three", reward="1", rewards__all=1),
            },
        ),
    ),
    Case(
        id="step-names-of-any-letters",
        proves="Steps may have capitals, dots and underscores in their names, and long ones",
        source=STEPS,
        files=stepped(step(_reward("1")), step(_reward("1")), step(_reward("1")), names=("A.b_C", "a-b-c", "x" * 200)),
        agent=NOP,
        expect=rewarded(
            status={
                **told(0, name="A.b_C"),
                **told(1, name="a-b-c"),
                **told(2, name="x" * 200),
                "agent.outcome": "Skipped",
            }
        ),
    ),
    Case(
        id="step-workdir-and-setup",
        proves="A step's workdir is merged into the working directory as the agent's, and setup.sh runs there before "
        "the agent and stays",
        source=STEPS,
        files=stepped(
            step(
                facts(
                    merged='[ "$(cat given)" = agent ]',
                    owner='[ "$(stat -c %U given deep deep/er/file by-setup | sort -u)" = nobody ]',
                    setup='[ "$(cat by-setup)" = "one nobody" ]',
                    seen='[ "$(cat seen)" = "one nobody" ]',
                    stays="[ -f setup.sh ]",
                ),
                setup='echo "$TASKFOLD_STEP $(id -un)" > by-setup\n',
                **{"workdir/given": "task", "workdir/deep/er/file": "x"},
            ),
            step(
                facts(replaced='[ "$(cat given)" = again ]', kept="[ -f by-setup ]"),
                **{"workdir/given": "again"},
            ),
            tables=AS_NOBODY,
        ),
        agent=script('cat by-setup > seen 2>/dev/null; [ "$TASKFOLD_STEP" = two ] || echo agent > given'),
        needs=AS_ROOT,
        expect=rewarded(status={**told(0, rewards__owner=1, rewards__setup=1), **told(1, rewards__replaced=1)}),
    ),
    Case(
        id="step-setup-fails-first",
        proves="A setup.sh that fails in the first step fails the run: the agent has not worked, no row is made",
        source="C37",
        files=stepped(step(_reward("1"), setup="echo no way; exit 3\n"), step(_reward("1"))),
        agent=script("true"),
        expect=Expect("Failed", "", reason="StepSetupFailed", says=("step one", "return code 3", "no way")),
    ),
    Case(
        id="step-setup-fails-later",
        proves="A setup.sh that fails in a later step masks the run; what came before stays on record",
        source="C37; C17",
        files=stepped(step(_reward("1")), step(_reward("1"), setup="exit 3\n"), step(_reward("1"))),
        agent=script("true"),
        expect=masked(
            "provider_unavailable",
            "StepSetupFailed",
            says=("step two",),
            status={**told(0, reward="1"), **told(1, name="two", masked=True, reason="StepSetupFailed")},
            absent=("steps.2",),
        ),
    ),
    Case(
        id="step-healthcheck",
        proves="A step's healthcheck is waited for after its setup and before its agent",
        source=STEPS,
        files=stepped(
            step(
                facts(healthy='[ "$(cat seen)" = ready ]'),
                table='[steps.healthcheck]\ncommand = "test -e ready"\ninterval_sec = 0.2\nretries = 50\n',
                setup="(sleep 1; echo ready > ready) > /dev/null 2>&1 &\n",
            ),
            step(_reward("1")),
        ),
        agent=script("cat ready > seen; true"),
        expect=rewarded(status=told(0, rewards__healthy=1)),
    ),
    Case(
        id="step-unhealthy-later",
        proves="A later step whose healthcheck fails masks the run, and its agent is not started",
        source="C37",
        files=stepped(
            step(_reward("1")),
            step(_reward("1"), table='[steps.healthcheck]\ncommand = "exit 1"\ninterval_sec = 0.1\nretries = 2\n'),
        ),
        agent=script("true"),
        expect=masked("provider_unavailable", "StepUnhealthy", says=("step two",), absent=("steps.1.agent",)),
    ),
    Case(
        id="step-tests-are-layered",
        proves="A step's tests lie over the task's: its own files win, the others are there",
        source=STEPS,
        files=stepped(
            step(**{"tests/reward": "0.25"}),
            step(_reward("0.75")),
            files={
                "tests/test.sh": "#!/bin/bash\ncat /tests/reward /tests/common > /logs/verifier/reward.txt\n",
                "tests/reward": "9",
                "tests/common": "\n",
            },
        ),
        agent=NOP,
        expect=rewarded("0.5", status={**told(0, reward="0.25"), **told(1, reward="0.75")}),
    ),
    Case(
        id="step-reset-between-turns",
        proves="Before a step nothing of the last verification is left, and what an agent plants is gone",
        source=STEPS,
        files=stepped(
            step(facts(own="[ ! -e /tests/helper ]"), **{"tests/secret": "of one"}),
            step(
                facts(
                    unseen="! grep -q 'test.sh\\|reward\\|secret' seen-two",
                    gone="[ ! -e /tests/secret ] && [ ! -e /tests/helper ]",
                    ours="[ ! -L /logs/agent/trajectory.json ]",
                )
            ),
        ),
        agent=script(_CLEAN),
        needs=AS_ROOT,
        expect=rewarded(
            status={**told(0, rewards__own=1), **told(1, rewards__unseen=1, rewards__gone=1, rewards__ours=1)}
        ),
    ),
    Case(
        id="step-logs-are-not-the-agents",
        proves="An agent that is not root cannot read what earlier steps were graded with",
        source=STEPS,
        files=stepped(step(_reward("1")), step(facts(closed="[ ! -e /tmp/open ]")), tables=AS_NOBODY),
        agent=script(f'[ "$TASKFOLD_STEP" = one ] || {{ {_AS_IT_WAS}; }} 2> /dev/null'),
        needs=AS_ROOT,
        expect=rewarded(status=told(1, rewards__closed=1)),
    ),
    Case(
        id="step-min-reward-number",
        proves="A step below its min_reward ends the task; what comes after is not in the mean",
        source=STEPS,
        files=stepped(
            step(_reward("1"), table="min_reward = 1\n"),
            step(_reward("0.5"), table="min_reward = 0.75\n"),
            step(_reward("0")),
        ),
        agent=NOP,
        expect=rewarded("0.75", warns=("after two",), status=told(1, reward="0.5"), absent=("steps.2",)),
    ),
    Case(
        id="step-min-reward-table",
        proves="A table as min_reward is about each of its keys, and a key that is missing is below every number",
        source=STEPS,
        files=stepped(
            step(_json('{"reward": 0, "safe": 1}'), table="min_reward = { safe = 0.5 }\n"),
            step(_json('{"reward": 1}'), table="min_reward = { safe = -5 }\n"),
            step(_reward("1")),
        ),
        agent=NOP,
        expect=rewarded("0.5", warns=("safe is missing",), absent=("steps.2",)),
    ),
    Case(
        id="steps-mean-with-missing-keys",
        proves="The mean is that of each key over the steps with a result, a missing key counting as 0",
        source=STEPS,
        files=stepped(
            step(_json('{"reward": 1, "style": 1}')),
            step(_json('{"reward": 0.5}')),
            step(_json('{"reward": 0, "speed": 3}')),
        ),
        agent=NOP,
        expect=rewarded("0.5", rewards={"reward": 0.5, "style": 1 / 3, "speed": 1}),
    ),
    Case(
        id="steps-mean-of-parts",
        proves="Steps that write parts are rolled up by part, and the score is their sum",
        source=STEPS,
        files=stepped(step(_json('{"a": 1, "b": 0.5}')), step(_json('{"a": 0.5}'))),
        agent=NOP,
        expect=rewarded("1", rewards={"a": 0.75, "b": 0.25}, components=("a", "b")),
    ),
    Case(
        id="steps-final",
        proves="With the strategy final the last step that ran is the score",
        source=STEPS,
        files=stepped(step(_reward("1")), step(_json('{"reward": 0.25, "x": 2}')), keys=FINAL),
        agent=NOP,
        expect=rewarded("0.25", rewards={"reward": 0.25, "x": 2}),
    ),
    Case(
        id="steps-counted-zero",
        proves="A step whose verifier writes nothing counts as 0 in the mean, and the task goes on",
        source="C38; seed: Reward files",
        files=stepped(step("true\n"), step(_reward("1"))),
        agent=NOP,
        expect=rewarded("0.5", status=told(0, reward="0", kind="harbor:missing_reward", reason="RewardMissing")),
    ),
    Case(
        id="steps-nothing-but-zeros",
        proves="When the score is 0 because a verifier wrote nothing, the failure says of which step",
        source="C38; seed: Reward files",
        files=stepped(step(_reward("0")), step(_reward("nan"))),
        agent=NOP,
        expect=counted("harbor:invalid_reward", "RewardInvalid", says=("step two",)),
    ),
    Case(
        id="step-users-limits-and-env",
        proves="Users, limits and variables are the step's own; the limit of its verifier does not fall back",
        source=STEPS,
        files=stepped(
            step(
                facts(
                    who='[ "$(cat who-one)" = nobody ]', me='[ "$(id -un)" = root ]', env='[ "$MODE$BASE" = stepall ]'
                ),
                table='[steps.agent]\nuser = "nobody"\n[steps.verifier]\nenv = { MODE = "step" }\n',
            ),
            step(
                facts(
                    who='[ "$(cat who-two)" = root ]', me='[ "$(id -un)" = nobody ]', env='[ "$MODE$BASE" = taskall ]'
                )
                + "sleep 2\n",
                table='[steps.agent]\ntimeout_sec = 1\n[steps.verifier]\nuser = "nobody"\n',
            ),
            tables='[verifier]\ntimeout_sec = 1\nenv = { MODE = "task", BASE = "all" }\n',
        ),
        agent=script('id -un > /app/who-$TASKFOLD_STEP; [ "$TASKFOLD_STEP" = one ] || sleep 60'),
        needs=AS_ROOT,
        expect=rewarded(
            status={
                **told(0, rewards__who=1, rewards__me=1, rewards__env=1),
                **told(1, rewards__who=1, rewards__me=1, rewards__env=1, agent__outcome="TimedOut"),
                **told(1, verifier__timedOut=False),
            },
            outcome="TimedOut",
        ),
    ),
    Case(
        id="step-secrets",
        proves="A step's verifier env is filled from the Secrets, which the agent does not see",
        source="seed: Environment variables and secrets",
        files=stepped(
            step(
                facts(key='[ "$KEY" = of-the-judge ]', hidden="[ ! -s seen ]"),
                table='[steps.verifier]\nenv = { KEY = "${STEP_KEY}" }\n',
            ),
            step(facts(none='[ -z "$KEY" ]')),
        ),
        agent=script("env | grep KEY= > seen; true"),
        spec={"secretsFrom": [{"name": "case-step-key"}]},
        objects=(secret("case-step-key", STEP_KEY="of-the-judge"),),
        expect=rewarded(status={**told(0, rewards__key=1, rewards__hidden=1), **told(1, rewards__none=1)}),
    ),
    Case(
        id="step-without-a-solution",
        proves="The oracle leaves out a step that has no solution, and answers one that has an answer.md",
        source=STEPS,
        files=stepped(
            step(_reward("1")),
            step(facts(answered='[ "$(cat answer.md)" = 42 ]'), **{"solution/answer.md": "42\n"}),
        ),
        agent=ORACLE,
        expect=rewarded(
            status={
                **told(0, agent__outcome="Skipped"),
                **told(1, agent__outcome="Succeeded", rewards__answered=1),
            }
        ),
    ),
    Case(
        id="step-masked-masks-the-run",
        proves="A step that cannot be graded masks the whole run",
        source="C17",
        files=stepped(step(_reward("1")), step(_reward("1")), step(_reward("1"))),
        agent=script('[ "$TASKFOLD_STEP" = one ] || rm -f /bin/bash /usr/bin/bash'),
        needs=AS_ROOT,
        expect=masked(
            "verifier_error",
            "Tampered",
            says=("step two",),
            status={**told(0, reward="1"), **told(1, masked=True)},
            absent=("steps.2",),
        ),
    ),
    Case(
        id="step-hooks-are-the-steps",
        proves="Collect hooks are those of the step, and run before each of its verifications",
        source=STEPS,
        files=stepped(
            step(
                facts(ran='[ "$(cat hooked)" = one ]'),
                table='[[steps.verifier.collect]]\ncommand = "echo one > hooked"\n',
            ),
            step(facts(none='[ "$(cat hooked)" = one ]')),
        ),
        agent=NOP,
        expect=rewarded(status={**told(0, rewards__ran=1), **told(1, rewards__none=1)}),
    ),
    Case(
        id="step-instruction",
        proves="The agent of a step gets the step's instruction; the task's own is never sent",
        source=STEPS,
        files=stepped(
            step(facts(own='[ "$(cat got-one)" = "Do one." ]')),
            step(facts(own='[ "$(cat got-two)" = "Do two." ]')),
            files={"instruction.md": "Never sent.\n"},
        ),
        agent=script("cat $TASKFOLD_INSTRUCTION > got-$TASKFOLD_STEP"),
        expect=rewarded(status={**told(0, rewards__own=1), **told(1, rewards__own=1)}),
    ),
)
