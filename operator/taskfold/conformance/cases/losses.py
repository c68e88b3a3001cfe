"""Losses that the agent can cause itself, by both policies, and what is no loss (C13, C15, C28)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from taskfold.conformance.case import Case, Expect, Need, masked, rewarded, script, task
from taskfold.conformance.cases import steps

ONE = "echo 1 > /logs/verifier/reward.txt\n"
FOREVER = "sleep 1000\n"
RETRIES: Mapping[str, Any] = {"retries": {"infrastructure": 1}}
"""Which a loss of the agent's own must not use."""


def both(
    id: str,  # noqa: A002
    proves: str,
    how: tuple[str, str, str | None],
    agent: str,
    *,
    says: str = "",
    needs: frozenset[Need] = frozenset(),
    **spec: Any,
) -> tuple[Case, Case]:
    """The same loss by both policies: masked, and counted as 0. `how`: kind, reason, stage (None: either)."""
    kind, reason, stage = how
    once = {"attempts.-1.number": 1}
    zero = Expect(
        "Succeeded", "0", kind, reason, stage, says=("spec.onAgentCausedLoss is zero",), status=once, absent=("masked",)
    )
    return (
        Case(
            f"{id}-masked",
            f"{proves}: masked, and never retried",
            "C28",
            task(ONE),
            script(agent),
            masked(kind, reason, stage=stage, says=(says,), status=once),
            {**spec, **RETRIES, "onAgentCausedLoss": "mask"},
            needs=needs,
        ),
        Case(
            f"{id}-zero",
            f"{proves}: 0 where the run says onAgentCausedLoss zero",
            "C28",
            task(ONE),
            script(agent),
            zero,
            {**spec, **RETRIES, "onAgentCausedLoss": "zero"},
            needs=needs,
        ),
    )


FIRST_PROCESS_FIRST = "echo 1000 > /proc/1/oom_score_adj; exec head -c 64000000 /dev/zero > /dev/shm/large"
"""With cgroup v1 the kernel takes one process, and a root agent can say which: what a memory file system holds counts
for the sandbox and for no process, so the first one is the largest. With v2 the whole container goes.
"""


def stepwise(*cases: Case) -> tuple[Case, ...]:
    """The same in a task of two steps, the second of which brings files into a working directory of the agent's."""
    two = steps.stepped(
        steps.step(ONE),
        steps.step(ONE, **{"workdir/data": "x"}),
        tables='[agent]\nuser = "nobody"\n',
    )
    two["task.toml"] = two["task.toml"].replace('workdir = "/app"', 'workdir = "/tmp/work"')
    return tuple(replace(case, files=two) for case in cases)


KILLS = """
import os, time
def outside():
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{each}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == "0" and each != "1":
            yield int(each)
"""
KILL_ALWAYS = (
    f"cat > /tmp/kill.py <<'EOF'\n{KILLS}open('/tmp/ready', 'w')\nwhile True:\n    for each in outside():\n"
    "        try:\n            os.kill(each, 9)\n        except OSError:\n            pass\nEOF\n"
    "python3 /tmp/kill.py & until [ -e /tmp/ready ]; do sleep 0.05; done\n"
)
SOME_FILES = 13
"""With 11 the first process of today cannot take a connection, with 16 it starts programs."""

HOSTILE = (
    *both(
        "hostile-limits-files",
        "an agent that leaves the first process no descriptors ends it",
        ("provider_unavailable", "SandboxEnded", "verification"),
        "prlimit --pid 1 --nofile=3:3",
    ),
    *both(
        "hostile-limits-memory",
        "so does one that leaves it no memory",
        ("provider_unavailable", "SandboxEnded", None),
        "prlimit --pid 1 --as=1:1",
    ),
    *both(
        "hostile-limits-programs",
        "an agent that leaves the first process too few descriptors to start a program",
        ("verifier_error", "VerifierStartFailed", "verification"),
        f"prlimit --pid 1 --nofile={SOME_FILES}:{SOME_FILES}",
    ),
    *both(
        "hostile-kills-every-helper",
        "an agent that kills for ever whatever is put into its sandbox",
        ("provider_unavailable", "Tampered", "agent"),
        KILL_ALWAYS,
    ),
    *stepwise(
        *both(
            "hostile-link-of-the-workdir",
            "an agent that puts a link of its own in place of the working directory, between two steps",
            ("provider_unavailable", "Tampered", "agent"),
            "cd /; rm -rf /tmp/work; ln -s /etc /tmp/work",
            needs=frozenset({Need.ROOT}),
        )
    ),
)
CASES: tuple[Case, ...] = (
    *HOSTILE,
    *both(
        "deleted-bash",
        "an agent that deletes bash makes its sandbox ungradable",
        ("verifier_error", "Tampered", "verification"),
        "rm -f /usr/bin/bash /bin/bash",
        says="bash",
        needs=frozenset({Need.ROOT}),
    ),
    *both(
        "over-its-storage",
        "an agent over its own storage limit is evicted",
        ("provider_unavailable", "StorageLimitExceeded", "agent"),
        "head -c 400000000 /dev/zero > /large; " + FOREVER,
        needs=frozenset({Need.ROOT}),
        pod={"resources": {"limits": {"ephemeral-storage": "128Mi"}}},
    ),
    *both(
        "over-its-memory",
        "an agent that has the kernel kill the sandbox at its memory limit loses it",
        ("provider_oom_killed", "OOMKilled", "agent"),
        FIRST_PROCESS_FIRST,
        pod={"resources": {"requests": {"memory": "32Mi"}, "limits": {"memory": "48Mi"}}},
    ),
    Case(
        "no-loss-at-all",
        "a run that loses nothing is what it would be anyway, whatever the policy",
        "C28",
        task("echo 0.5 > /logs/verifier/reward.txt"),
        script("true"),
        rewarded("0.5", absent=("attempts.1",)),
        {**RETRIES, "onAgentCausedLoss": "zero"},
    ),
    Case(
        "process-killed-at-the-memory-limit",
        "with cgroup v1 a process killed at the memory limit is a warning; the agent's own end counts",
        "C13",
        task(ONE),
        script("python3 -c 'bytearray(200000000)'; [ $? = 137 ] && exit 9"),
        rewarded(outcome="Failed", status={"agent.returnCode": 9}),
        {"pod": {"resources": {"requests": {"memory": "32Mi"}, "limits": {"memory": "64Mi"}}}},
        needs=frozenset({Need.CGROUP_V1}),
    ),
)
