"""Who runs what, and who owns what (seed "Users"; C26, C30)."""

from typing import Any

import pytest

from tests.conformance import ahead
from tests.conformance.facts import broken, facts
from tests.conformance.harness import IMAGE, NOP, ORACLE, script, task

Status = dict[str, Any]

TEST = "docker.io/taskfold-test"
ROOT, NOBODY = "0:0", "65534:65534"
WHO = 'echo "$(id -u):$(id -g)"'


def toml(image: str = IMAGE, *, agent: str = "", verifier: str = "", workdir: str = "/app") -> str:
    """task.toml with users as they are written in TOML."""
    text = f'[environment]\ndocker_image = "{image}"\n' + (f'workdir = "{workdir}"\n' if workdir else "")
    text += f"[agent]\nuser = {agent}\n" if agent else ""
    return text + (f"[verifier]\nuser = {verifier}\n" if verifier else "")


def runs_as(user: str, agent: str | None = None) -> str:
    """A test.sh that checks its own user and group, and those that the agent noted."""
    noted = {} if agent is None else {"agent": f'[ "$(cat /logs/agent/who)" = "{agent}" ]'}
    return facts(verifier=f'[ "$({WHO})" = "{user}" ]', **noted)


NOTE = f"{WHO} > /logs/agent/who"


# -- test.sh -------------------------------------------------------------------------------------------------------


@ahead.run(task(runs_as(ROOT, ROOT)), script(NOTE))
def test_unset_everything_runs_as_the_user_the_image_starts_with(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(facts(name='[ "$(id -un)" = nobody ]', home='[ "$HOME" = /nonexistent ]'), toml=toml(verifier='"nobody"'))
)
def test_test_sh_runs_as_verifier_user_by_name(status: Status) -> None:
    assert not broken(status)


@pytest.mark.parametrize(("user", "ids"), [("65534", NOBODY), ("4321", "4321:0"), ("0", ROOT)])
@ahead.run(lambda user, ids: task(runs_as(ids), toml=toml(verifier=user)))
def test_test_sh_runs_as_verifier_user_by_number(status: Status, user: str, ids: str) -> None:
    assert not broken(status)


@ahead.run(task(runs_as(ROOT, NOBODY), toml=toml(agent='"nobody"')), script(NOTE))
def test_without_a_record_and_with_agent_user_set_test_sh_runs_as_root(status: Status) -> None:
    assert not broken(status)


@ahead.run(task(runs_as(ROOT, NOBODY), toml=toml(f"{TEST}/user:1", agent="65534", workdir="")), script(NOTE))
def test_without_a_record_test_sh_is_root_even_if_the_image_has_another_user(status: Status) -> None:
    assert not broken(status)


@ahead.run(task(runs_as("4321:0", NOBODY), toml=toml(agent='"nobody"', verifier="4321")), script(NOTE))
def test_verifier_user_and_agent_user_are_independent(status: Status) -> None:
    assert not broken(status)


# -- the image's user ----------------------------------------------------------------------------------------------


@ahead.run(task(runs_as("1234:2345", "1234:2345"), toml=toml(f"{TEST}/user:1", workdir="")), script(NOTE))
def test_a_numeric_image_user_runs_agent_and_test_sh_as_that_uid(status: Status) -> None:
    assert not broken(status)


@ahead.run(task(runs_as("1500:1500", "1500:1500"), toml=toml(f"{TEST}/named-user:1", workdir="")), script(NOTE))
def test_a_named_image_user_runs_agent_and_test_sh(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(
        facts(
            user='[ "$(id -u)" = 1500 ]',
            groups='[ "$(id -G | tr " " "\\n" | sort -n | tr "\\n" " ")" = "1500 1600 " ]',
            home='[ "$HOME" = /home/app ]',
        ),
        toml=toml(verifier='"app"').replace(IMAGE, f"{TEST}/named-user:1"),
    )
)
def test_a_user_by_name_has_the_groups_of_etc_group(status: Status) -> None:
    assert not broken(status)


DOCKERFILES = {
    "of the base": (f"FROM {TEST}/user:1\n", "1234:2345"),
    "a number": (f"FROM {IMAGE}\nUSER 4321\n", "4321:0"),
    "a number and a group": (f"FROM {IMAGE}\nUSER 4321:99\n", "4321:99"),
    "a name": (f"FROM {TEST}/named-user:1\nUSER app\n", "1500:1500"),
    "a name and a group": (f"FROM {TEST}/named-user:1\nUSER app:builders\n", "1500:1600"),
    "a number and a group's name": (f"FROM {TEST}/named-user:1\nUSER 1500:builders\n", "1500:1600"),
}


@pytest.mark.parametrize("case", DOCKERFILES)
@ahead.run(
    lambda case: task(
        runs_as(DOCKERFILES[case][1], DOCKERFILES[case][1]),
        toml="[environment]\n",
        **{"environment/Dockerfile": DOCKERFILES[case][0]},
    ),
    script(NOTE),
)
def test_the_user_of_an_image_on_record_runs_agent_and_test_sh(status: Status, case: str) -> None:
    assert not broken(status)


@ahead.run(
    task(
        runs_as("1234:2345", NOBODY),
        toml="[environment]\n[agent]\nuser = 65534\n",
        **{"environment/Dockerfile": f"FROM {TEST}/user:1\n"},
    ),
    script(NOTE),
)
def test_with_a_record_test_sh_runs_as_the_images_user_and_never_as_agent_user(status: Status) -> None:
    assert not broken(status)


# -- refusals ------------------------------------------------------------------------------------------------------

UNKNOWN = {
    "verifier": (toml(verifier='"grader"'), NOP, "grader"),
    "agent": (toml(agent='"solver"'), NOP, "solver"),
    "a number as text": (toml(verifier='"1234"'), NOP, "1234"),
    "a hook": (toml() + '[[verifier.collect]]\ncommand = "true"\nuser = "hooker"\n', NOP, "hooker"),
    "the script agent": (toml(), script("true", user="worker"), "worker"),
}


@pytest.mark.parametrize("case", UNKNOWN)
@ahead.run(
    lambda case: task("echo 1 > /logs/verifier/reward.txt", toml=UNKNOWN[case][0]), lambda case: UNKNOWN[case][1]
)
def test_an_unknown_user_is_refused_at_seed(status: Status, case: str) -> None:
    assert ahead.failure(status) == (None, "UnknownUser", "seed")
    assert status["phase"] == "Failed"
    assert status["failure"]["terminal"] is True
    assert f'"{UNKNOWN[case][2]}"' in status["failure"]["message"]
    assert status["attempts"][-1]["tries"] == 1


@pytest.mark.parametrize("table", ["agent", "verifier"])
@ahead.run(lambda table: task("true", toml=toml(**{table: '"nobody:nogroup"'})))
def test_a_user_with_a_group_is_refused(status: Status, table: str) -> None:
    assert status["phase"] == "Failed"
    assert status["failure"]["terminal"] is True
    assert f'{table}.user = "nobody:nogroup"' in status["failure"]["message"]


# -- the rest of the users -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("user", "ids"), [("nobody", NOBODY), (4321, "4321:0")])
@ahead.run(
    lambda ids: task(runs_as(ROOT, ids) + "[ $(stat -c %u /installed) = 0 ] || rm /logs/verifier/reward.json"),
    lambda user: script(NOTE, user=user, install="touch /installed"),
)
def test_the_script_agent_runs_as_its_own_user_and_its_install_as_root(status: Status, user: Any, ids: str) -> None:
    assert not broken(status)


@ahead.run(
    task(
        runs_as(NOBODY, f"{NOBODY}\n1500:1500"),
        toml=toml(f"{TEST}/named-user:1", agent='"nobody"', verifier='"nobody"', workdir="")
        + f"[[verifier.collect]]\ncommand = '{WHO} >> /logs/agent/hook'\n"
        + '[[verifier.collect]]\nuser = 0\ncommand = "cat /logs/agent/hook >> /logs/agent/who"\n',
    ),
    script(NOTE),
)
def test_hooks_run_as_the_images_user_unless_they_name_one(status: Status) -> None:
    assert not broken(status)


# -- ownership (C26) -----------------------------------------------------------------------------------------------

SEEN = "stat -c '%n %a %U' /logs/agent /logs/verifier /logs/artifacts /app > /logs/artifacts/before"


@ahead.run(
    task(
        facts(
            before="diff - /logs/artifacts/before <<END\n"
            "/logs/agent 777 root\n/logs/verifier 777 root\n/logs/artifacts 777 root\n/app 755 nobody\nEND\n",
            verifier_folder='[ "$(stat -c %U /logs/verifier)" = games ]',
            tests='[ -z "$(find /tests ! -user root)" ]',
            readable='[ -z "$(find /tests ! -perm -a+r)" ]',
            not_writable="! touch /tests/x",
        ),
        toml=toml(agent='"nobody"', verifier='"games"'),
    ),
    script(SEEN),
)
def test_logs_are_open_to_the_agent_and_the_verifiers_folder_is_the_verifiers(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(
        facts(kept='[ "$(stat -c %a:%u:%g /home/app)" = 755:1234:2345 ]'),
        toml=toml(f"{TEST}/user:1", agent="65534", workdir="/home/app"),
    )
)
def test_a_working_directory_that_the_image_has_keeps_owner_and_mode(status: Status) -> None:
    assert not broken(status)


@ahead.run(
    task(
        facts(owner='[ "$(cat owner)" = nobody ]', solution='[ "$(cat solution)" = "755 root 644 root" ]'),
        solve="stat -c %U . > owner; echo $(stat -c '%a %U' /solution/solve.sh /solution/data) > solution",
        toml=toml(agent='"nobody"'),
        **{"solution/data": "x"},
    ),
    ORACLE,
)
def test_the_oracle_works_as_agent_user_on_files_that_belong_to_root(status: Status) -> None:
    assert not broken(status)
