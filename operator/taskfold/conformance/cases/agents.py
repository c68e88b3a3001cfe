"""The agents oracle, nop and script, how their work ends, and what that means for the score (C1, C2, C11, C12)."""

from __future__ import annotations

from taskfold.conformance.case import (
    NOP,
    ORACLE,
    TOML,
    Case,
    Expect,
    facts,
    holds,
    refused,
    rewarded,
    script,
    soon,
    task,
)

ONE = "echo 1 > /logs/verifier/reward.txt\n"
LIMIT = 4
"""Seconds. Room for an agent's first commands on a machine that has much else to do."""
SHORT = TOML + f"[agent]\ntimeout_sec = {LIMIT}\n"
SETTINGS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "case-agent-settings"},
    "data": {"MODEL": "m1", "PLACE": "here"},
}
WORDS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "case-agent-words"},
    "data": {"word": "of the map"},
}

REFERENCE = (
    Case(
        "oracle-runs-solve-sh",
        "the oracle runs the reference solution by bash in the working directory, with solution/ beside it",
        "seed: Reference answers",
        task(
            facts(
                where='[ "$(cat /app/where)" = /app ]',
                bash="[ -s /app/bash ]",
                data='[ "$(cat /app/data)" = "of the solution" ]',
                stdin="[ -e /app/no-input ]",
            ),
            solve="pwd > where; echo $BASH_VERSION > bash; cp /solution/files/data data; read x || touch no-input",
            **{"solution/files/data": "of the solution"},
        ),
        ORACLE,
        holds(outcome="Succeeded", status={"agent.name": "oracle", "agent.returnCode": 0}),
    ),
    Case(
        "oracle-that-fails",
        "a reference solution that fails is graded all the same",
        "C11",
        task(ONE, solve="exit 5"),
        ORACLE,
        rewarded(outcome="Failed", status={"agent.returnCode": 5}),
    ),
    Case(
        "oracle-without-a-solution",
        "the oracle of a task without a solution is refused before a pod exists",
        "seed: Reference answers",
        task(ONE),
        ORACLE,
        refused("InvalidTask", "solution/solve.sh", absent=("podName",)),
    ),
    Case(
        "nop-touches-nothing",
        "an agent that does nothing leaves the sandbox untouched, without the solution",
        "spec.agent.nop",
        task(facts(untouched='[ -z "$(ls -A /app)" ]', no_solution="[ ! -e /solution ]"), solve="touch x"),
        NOP,
        holds(outcome="Skipped", status={"agent.name": "nop"}, absent=("agent.returnCode",)),
    ),
)

SCRIPT = (
    Case(
        "script-env",
        "a script agent and its install have env and envFrom and wait for what they name; test.sh sees none of it",
        "spec.agent.script",
        task(
            facts(
                run='[ "$(cat seen)" = "m2|here|one|of the map|three" ]',
                install='[ "$(cat /installed)" = "m2|here|/app|0" ]',
                not_in_tests='[ -z "$MODEL$DIRECT" ]',
            ),
            toml=TOML + '[environment.env]\nTASK = "three"\nPLACE = "overridden"\n',
        ),
        script(
            'echo "$MODEL|$PLACE|$DIRECT|$FROM_KEY|$TASK" > seen',
            install='echo "$MODEL|$PLACE|$(pwd)|$(id -u)" > /installed',
            env=[
                {"name": "DIRECT", "value": "one"},
                {"name": "MODEL", "value": "m2"},
                {"name": "FROM_KEY", "valueFrom": {"configMapKeyRef": {"name": "case-agent-words", "key": "word"}}},
            ],
            envFrom=[{"configMapRef": {"name": "case-agent-settings"}}],
        ),
        holds(outcome="Succeeded"),
        objects=(SETTINGS,),
        applies=(("Running", WORDS),),
    ),
    Case(
        "script-that-fails",
        "an agent whose program fails is counted by what the verifier says",
        "C11",
        task(ONE),
        script("echo 'no idea' >&2; exit 3"),
        rewarded(outcome="Failed", status={"agent.returnCode": 3}),
    ),
    Case(
        "script-killed-by-a-signal",
        "an agent that a signal ends has failed, and is graded",
        "C11",
        task(ONE),
        script("kill -9 $$"),
        rewarded(outcome="Failed", absent=("agent.returnCode",)),
    ),
)


def late(id: str, proves: str, source: str, toml: str, agent: object = None, **spec: object) -> Case:  # noqa: A002
    """An agent over its limit."""
    body = script("touch begun; sleep 600") if agent is None else agent
    test = facts(begun="[ -e begun ]")
    return Case(id, proves, source, task(test, toml=toml), body, holds(outcome="TimedOut"), spec)  # type: ignore[arg-type]


LIMITS = (
    late("agent-timeout", "running out of time is not the end: verification follows and decides", "C1", SHORT),
    late(
        "agent-timeout-of-the-run",
        "a limit of the agent in the run wins over the task's",
        "spec.agent.script.timeoutSeconds",
        TOML,
        script("touch begun; sleep 600", timeoutSeconds=LIMIT),
    ),
    late(
        "agent-timeout-scaled",
        "the timeout multiplier scales the agent's limit too",
        "spec.multipliers",
        SHORT.replace(f"= {LIMIT}\n", f"= {LIMIT * 100}\n"),
        multipliers={"timeout": 0.01},
    ),
    Case(
        "agent-timeout-and-its-processes",
        "at the limit the process group is killed; what has a session of its own keeps running",
        "C1",
        task(facts(group=soon("! kill -0 $(cat group)"), own_session="kill -0 $(cat own)"), toml=SHORT),
        script("sleep 600 & echo $! > group; setsid sleep 600 & echo $! > own; wait"),
        holds(outcome="TimedOut"),
    ),
    Case(
        "agent-end-signals-nothing",
        "at a normal end nothing is signalled",
        "C1",
        task(facts(group="kill -0 $(cat group)", own_session="kill -0 $(cat own)")),
        script("sleep 600 & echo $! > group; setsid sleep 600 & echo $! > own"),
        holds(outcome="Succeeded"),
    ),
)

NEVER = (
    Case(
        "install-that-fails",
        "an agent that was never installed fails the run in stage agent, after three tries within the attempt",
        "C12",
        task(ONE),
        script("true", install="echo 'no such package' >&2; exit 100"),
        Expect(
            "Failed",
            "",
            kind="",
            reason="AgentInstallFailed",
            stage="agent",
            terminal=False,
            says=("no such package",),
            status={"attempts.-1.tries": 3},
            absent=("attempts.1", "agent.outcome"),
        ),
    ),
    Case(
        "install-that-leaves-a-process",
        "an installation may leave a process running",
        "C12",
        task(ONE),
        script("true", install="while true; do sleep 0.1; done & exit 0"),
        rewarded(outcome="Succeeded"),
    ),
)

CASES: tuple[Case, ...] = (*REFERENCE, *SCRIPT, *LIMITS, *NEVER)
