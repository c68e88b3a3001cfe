"""`spec.dialect: harbor`: the same folders, with Harbor's meaning where it is another one."""

from __future__ import annotations

from typing import Any

from taskfold.conformance.case import NOP, ORACLE, TOML, Case, Expect, Need, masked, refused, rewarded, script, task

SOURCE = "dialect: harbor"
HARBOR = {"dialect": "harbor"}
NAMED_USER = 'environment.docker_image = "docker.io/taskfold-test/named-user:1"\nagent.user = 0\n'
ONE = "echo 1 > /logs/verifier/reward.txt\n"


def left_out(kind: str, reason: str, **more: Any) -> Expect:
    """The kind of the contract, and no 0."""
    return masked(kind, reason, stage="verification", says=("harbor dialect",), **more)


def graded(id: str, proves: str, body: str, expect: Expect, *, toml: str = TOML, agent: Any = NOP) -> Case:  # noqa: A002
    """A test.sh with this body, in Harbor's meaning."""
    return Case(id, proves, SOURCE, task(body, toml=toml), agent, expect, HARBOR)


CASES: tuple[Case, ...] = (
    graded(
        "harbor-missing-reward",
        "a row without a reward file is left out, not counted as 0",
        "true\n",
        left_out("harbor:missing_reward", "RewardMissing"),
    ),
    graded(
        "harbor-invalid-reward",
        "a row with a malformed reward file is left out, not counted as 0",
        "echo '{}' > /logs/verifier/reward.json\n",
        left_out("harbor:invalid_reward", "RewardInvalid"),
    ),
    graded(
        "harbor-late-reward",
        "a reward that was written before test.sh ran past its limit is lost",
        ONE + "sleep 60\n",
        left_out("harbor:verifier_timeout", "VerifierTimedOut"),
        toml=TOML + "[verifier]\ntimeout_sec = 4\n",
    ),
    graded(
        "harbor-components",
        "without a key reward the values are kept, and nothing is summed",
        'echo \'{"a": 0.25, "b": 0.5}\' > /logs/verifier/reward.json\n',
        Expect("Succeeded", "", kind="none", rewards={"a": 0.25, "b": 0.5}, components=()),
    ),
    graded(
        "harbor-reset",
        "only the reward files are removed: the rest of /tests and /logs/verifier stays",
        "test ! -e /logs/verifier/reward.json && test -e /logs/verifier/report && test -e /tests/planted && " + ONE,
        rewarded(),
        agent=script(
            "mkdir -p /tests; echo x > /tests/planted; echo x > /logs/verifier/report; echo '{\"reward\": 9}' "
            "> /logs/verifier/reward.json"
        ),
    ),
    Case(
        "harbor-executed-itself",
        "test.sh is executed itself: its first line says with what",
        SOURCE,
        {**task(), "tests/test.sh": "#!/usr/bin/env python3\nopen('/logs/verifier/reward.txt', 'w').write('0.5')\n"},
        NOP,
        rewarded("0.5"),
        HARBOR,
    ),
    Case(
        "harbor-verifier-user",
        "test.sh runs as the image's own user, also beside [agent].user",
        SOURCE,
        task("id -u > /logs/verifier/reward.txt\n", toml=NAMED_USER),
        NOP,
        rewarded("1500"),
        HARBOR,
        needs=frozenset({Need.ROOT, Need.TEST_IMAGES}),
    ),
    Case(
        "harbor-python-verifier",
        "there are no Python verifiers: a folder without tests/test.sh is refused",
        SOURCE,
        {**task(), "tests/verifier.py": "def verify() -> float:\n    return 1.0\n"},
        NOP,
        refused("InvalidTask", "tests/test.sh"),
        HARBOR,
    ),
    Case(
        "harbor-reference-answer",
        "answer.md is no solution",
        SOURCE,
        {**task(ONE), "solution/answer.md": "42"},
        ORACLE,
        refused("InvalidTask", "oracle"),
        HARBOR,
    ),
)
