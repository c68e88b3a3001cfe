"""The mix of runs that every fault is met with, and how each of them must end.

Guarantees: the same seed gives the same mix; a mix of `len(SHAPES)` runs or more has every shape. A reward is only the
expected one if the agent's work was really done and the verifier really looked at it.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tests.chaos.starts import Starts
from tests.conformance import harness
from tests.conformance.harness import DEFAULT_TOML

WRONG = "0.03125"
"""What every verifier gives when it does not find the work that it expects: no run may end with it."""
HEAD, _, REST = DEFAULT_TOML.partition("\n")
SEPARATE = f'{HEAD}\nartifacts = ["/app"]\n{REST}[verifier]\nenvironment_mode = "separate"\n'
BULK = "import random, sys; sys.stdout.buffer.write(random.Random(sys.argv[1]).randbytes(30_000_000))"
FOREVER = 600
"""Seconds that a script sleeps which is to be ended by a limit or by its user."""


class Action(StrEnum):
    """What a user does to a run while it goes on."""

    CANCEL = "cancel"
    RESUME = "resume"


@dataclass(frozen=True)
class End:
    """How a run ends whose sandbox is not lost."""

    phase: str = "Succeeded"
    reward: str | None = None
    reason: str | None = None
    outcome: str | None = None


@dataclass(frozen=True)
class Case:
    """One run of the mix."""

    name: str
    spec: Mapping[str, Any]
    end: End
    action: Action | None = None
    after: float = 0.0
    """Seconds from the run's creation to the action."""
    steps: frozenset[str] = frozenset({"agent", "test"})
    """What must have been started once when there is a verdict."""
    keeps_pod: bool = False
    known: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of each file of its artifacts, by its path in the sandbox; empty: nobody knows it."""


@dataclass(frozen=True)
class Draft:
    """What a shape is made from: the case's name, its chances and its reports."""

    name: str
    random: random.Random
    starts: Starts
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def token(self) -> str:
        return f"work-of-{self.name}"

    def agent(self, *, before: str = "", after: str = "") -> str:
        """An agent that leaves its work."""
        return f"{before}echo {self.token} > /app/work\n{self.starts.lines(self.name, 'agent')}{after}"

    def test(self, reward: str, *, before: str = "") -> str:
        """A test.sh that gives this reward for the work."""
        found = f'[ "$(cat /app/work 2>/dev/null)" = {self.token} ]'
        give = f"if {found}; then echo {reward}; else echo {WRONG}; fi > /logs/verifier/reward.txt\n"
        return self.starts.lines(self.name, "test") + before + give

    def case(self, files: Mapping[str, str], agent: Mapping[str, Any], end: End, **more: Any) -> Case:
        return Case(self.name, harness.spec(files, agent, **self.more, **more.pop("spec", {})), end, **more)

    def sleep(self, low: float, high: float) -> str:
        return f"sleep {self.random.uniform(low, high):.2f}\n"


def oracle(draft: Draft) -> Case:
    solve = draft.agent(before=draft.sleep(0, 1))
    return draft.case(harness.task(draft.test("1"), solve=solve), harness.ORACLE, End(reward="1", outcome="Succeeded"))


def nop(draft: Draft) -> Case:
    test = draft.starts.lines(draft.name, "test") + "[ -e /app/work ]; echo $((! $?)) > /logs/verifier/reward.txt\n"
    end = End(reward="0", outcome="Skipped")
    return draft.case(harness.task(test), harness.NOP, end, steps=frozenset({"test"}))


def slow_agent(draft: Draft) -> Case:
    reward = draft.random.choice(["0.5", "0.25", "1"])
    agent = harness.script(draft.agent(before=draft.sleep(2, 6)))
    return draft.case(harness.task(draft.test(reward)), agent, End(reward=reward, outcome="Succeeded"))


def failing_agent(draft: Draft) -> Case:
    agent = harness.script(draft.agent(after="exit 7\n"))
    return draft.case(harness.task(draft.test("0.75")), agent, End(reward="0.75", outcome="Failed"))


def agent_over_its_limit(draft: Draft) -> Case:
    agent = harness.script(draft.agent(after=f"sleep {FOREVER}\n"), timeoutSeconds=3)
    end = End(reward="0.375", outcome="TimedOut")
    # The report may come too late in a sandbox that was cut off: that its work is there is proof enough of its start.
    return draft.case(harness.task(draft.test("0.375")), agent, end, steps=frozenset({"test"}))


def installed_agent(draft: Draft) -> Case:
    install = draft.starts.lines(draft.name, "install") + draft.sleep(0, 2)
    agent = harness.script(draft.agent(), install=install)
    steps = frozenset({"install", "agent", "test"})
    return draft.case(harness.task(draft.test("1")), agent, End(reward="1", outcome="Succeeded"), steps=steps)


def slow_verifier(draft: Draft) -> Case:
    test = draft.test("0.125", before=draft.sleep(2, 6))
    return draft.case(harness.task(test), harness.script(draft.agent()), End(reward="0.125", outcome="Succeeded"))


def invalid_reward(draft: Draft) -> Case:
    end = End(reward="0", reason="RewardInvalid", outcome="Succeeded")
    return draft.case(harness.task(draft.test("nan")), harness.script(draft.agent()), end)


def missing_reward(draft: Draft) -> Case:
    test = draft.starts.lines(draft.name, "test") + draft.sleep(0, 2)
    end = End(reward="0", reason="RewardMissing", outcome="Succeeded")
    return draft.case(harness.task(test), harness.script(draft.agent()), end)


def verifier_over_its_limit(draft: Draft) -> Case:
    test = draft.starts.lines(draft.name, "test") + f"sleep {FOREVER}\n"
    toml = DEFAULT_TOML + "[verifier]\ntimeout_sec = 3\n"
    end = End(reward="0", reason="VerifierTimedOut", outcome="Succeeded")
    return draft.case(harness.task(test, toml=toml), harness.script(draft.agent()), end, steps=frozenset({"agent"}))


def many_rewards(draft: Draft) -> Case:
    """More rewards than a status holds, and collect hooks: a verification of many steps."""
    hooks = "".join(f"[[verifier.collect]]\ncommand = 'sleep 0.{n}; echo {n} >> /app/hooks'\n" for n in (1, 2, 3))
    rewards = 'rewards = {"reward": 0.625, **{f"part-{n}": n for n in range(300)}}'
    write = f"import json; {rewards}; json.dump(rewards, open('/logs/verifier/reward.json', 'w'))"
    done = f'[ "$(cat /app/work)" = {draft.token} ] && [ "$(tr -d "\\n" < /app/hooks)" = 123 ]'
    test = f"{draft.starts.lines(draft.name, 'test')}{done} || exit 1\npython3 - <<'E'\n{write}\nE\n"
    files = harness.task(test, toml=DEFAULT_TOML + hooks)
    return draft.case(files, harness.script(draft.agent()), End(reward="0.625", outcome="Succeeded"))


def large_logs(draft: Draft) -> Case:
    """Keeps the collection of files busy, between the verdict and the run's completion."""
    bulk = "head -c 30000000 /dev/urandom > /logs/agent/bulk\n"
    agent = harness.script(draft.agent(after=bulk))
    return draft.case(harness.task(draft.test("0.875")), agent, End(reward="0.875", outcome="Succeeded"))


def kept_pod(draft: Draft) -> Case:
    agent, end = harness.script(draft.agent()), End(reward="1", outcome="Succeeded")
    kept = {"podRetention": "Always"}
    return draft.case(harness.task(draft.test("1")), agent, end, spec=kept, keeps_pod=True)


def cancelled(draft: Draft) -> Case:
    agent = harness.script(draft.agent(after=f"sleep {FOREVER}\n"))
    after = draft.random.uniform(3, 12)
    end = End("Cancelled", reason="Cancelled")
    return draft.case(harness.task(draft.test("1")), agent, end, action=Action.CANCEL, after=after)


def suspended(draft: Draft) -> Case:
    agent, end = harness.script(draft.agent()), End(reward="0.5", outcome="Succeeded")
    after = draft.random.uniform(3, 8)
    files, held = harness.task(draft.test("0.5")), {"suspend": True}
    return draft.case(files, agent, end, spec=held, action=Action.RESUME, after=after)


def separate(draft: Draft) -> Case:
    """Graded in a sandbox of its own, from 30 MB that are copied twice: each byte must be there."""
    bulk = f"python3 -c '{BULK}' {draft.token}"
    agent = harness.script(draft.agent(before=f"{bulk} > /app/bulk\n"))
    same = f'[ "$({bulk} | sha256sum)" = "$(sha256sum < /app/bulk)" ] || rm -f /app/work\n'
    files = harness.task(draft.test("0.6875", before=same), toml=SEPARATE)
    return draft.case(files, agent, End(reward="0.6875", outcome="Succeeded"))


def separate_tree(draft: Draft) -> Case:
    """The same with many small files, and a hook before they are taken."""
    tree = "for n in $(seq 500); do echo $n > /app/file-$n; done\n"
    agent = harness.script(draft.agent(before=tree))
    found = '"$(cat /app/file-* | sort -n | tr -d "\\n")"'
    whole = f'[ {found} = "$(seq 500 | tr -d "\\n")" ] && [ -e /app/hook ] || rm -f /app/work\n'
    toml = SEPARATE + "[[verifier.collect]]\ncommand = 'touch /app/hook'\n"
    files = harness.task(draft.test("0.4375", before=whole), toml=toml)
    return draft.case(files, agent, End(reward="0.4375", outcome="Succeeded"))


SHAPES: tuple[Callable[[Draft], Case], ...] = (
    oracle,
    separate,
    cancelled,
    slow_verifier,
    nop,
    many_rewards,
    failing_agent,
    suspended,
    slow_agent,
    large_logs,
    agent_over_its_limit,
    invalid_reward,
    kept_pod,
    missing_reward,
    installed_agent,
    verifier_over_its_limit,
    separate_tree,
)
"""In the order in which a short mix takes them."""


def mix(count: int, chances: random.Random, starts: Starts, more: Mapping[str, Any]) -> list[Case]:
    """`count` runs in a random order. `more`: what the spec of each has besides."""
    shapes = [SHAPES[number % len(SHAPES)] for number in range(count)]
    chances.shuffle(shapes)
    named = [(shape, f"{shape.__name__.replace('_', '-')}-{number}") for number, shape in enumerate(shapes)]
    return [shape(Draft(name, chances, starts, more)) for shape, name in named]
