"""Findings: what is an error, what is advice, and that each rule speaks when it should and is silent when not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract import build
from tests.contract.build import toml

from taskfold.contract import effective, lint, lint_dataset, toml_lines
from taskfold.contract.lint import Severity
from taskfold.contract.lint_subject import SENTENCES, Rule

QUIET = {
    "task.toml": f'environment.docker_image = "{build.IMAGE}"\nagent.user = "app"\n',
    "solution/solve.sh": "touch done\n",
}
SEPARATE = 'verifier.environment_mode = "separate"'


def findings(files=None, *, listed=()):
    source = effective.compose(build.folder(QUIET | (files or {})))
    return lint.lint(source, task_id="hello", listed=listed)


def told(files=None, **more):
    return [(str(each.rule), each.file, each.line) for each in findings(files, **more)]


def with_toml(*lines):
    return {"task.toml": "\n".join((QUIET["task.toml"], *lines))}


def test_a_task_that_is_well_made_is_passed_in_silence():
    assert findings() == ()


ADVICE = {
    "a template that is filled with a secret": (
        with_toml('verifier.env = {KEY = "${KEY}"}'),
        ("shared-verifier", "task.toml", 4),
    ),
    "a root agent and tests of files": (toml(), ("shared-verifier", "task.toml", None)),
    "a root agent by number": (
        toml("agent.user = 0"),
        ("shared-verifier", "task.toml", None),
    ),
    "COPY of tests": (
        {"environment/Dockerfile": f"FROM {build.IMAGE}\n# x\nCOPY tests /t\n"},
        ("tests-in-image", "environment/Dockerfile", 3),
    ),
    "COPY of a solution as a list": (
        {"environment/Dockerfile": f'FROM {build.IMAGE}\nADD ["a/solve.sh", "/x"]\n'},
        ("tests-in-image", "environment/Dockerfile", 2),
    ),
    "apt-get": (
        {"tests/test.sh": "# apt-get install x\nset -e\napt-get -y install jq > /logs/verifier/x\n"},
        ("installs-at-run-time", "tests/test.sh", 3),
    ),
    "pip": (
        {"tests/test.sh": "python -m pip install -q pytest; echo /logs/verifier"},
        ("installs-at-run-time", "tests/test.sh", 1),
    ),
    "curl to sh": (
        {"tests/test.sh": "curl -LsSf https://x/install.sh | sh\n# /logs/verifier"},
        ("installs-at-run-time", "tests/test.sh", 1),
    ),
    "no tag": (
        {"task.toml": 'environment.docker_image = "python"\nagent.user = 1\n'},
        ("image-tag", "task.toml", 1),
    ),
    "latest behind a port": (
        {"task.toml": 'agent.user = 1\nenvironment.docker_image = "r.example:5000/a:latest"\n'},
        ("image-tag", "task.toml", 2),
    ),
    "no reward": ({"tests/test.sh": "pytest\n"}, ("no-reward-path", "tests/test.sh", None)),
    "a verifier that is no Python": (
        {"tests/test.sh": None, "tests/verifier.py": "import os\ndef verify(:\n"},
        ("broken-verifier", "tests/verifier.py", 2),
    ),
    "a verifier without verify": (
        {"tests/test.sh": None, "tests/verifier.py": "def check(): return 1\n"},
        ("broken-verifier", "tests/verifier.py", None),
    ),
    "no solution": ({"solution/solve.sh": None}, ("no-solution", "task.toml", None)),
    "an empty instruction": ({"instruction.md": " \n"}, ("empty-instruction", "instruction.md", None)),
    "a secret": (
        with_toml('environment.env = {A = "1", OPENAI_API_KEY = "sk-4711-4711"}'),
        ("secret-in-task", "task.toml", 4),
    ),
    "CR LF": (
        {"tests/test.sh": "#!/bin/bash\necho /logs/verifier\r\n"},
        ("crlf", "tests/test.sh", 2),
    ),
    "a variable of ours": (with_toml('environment.env.TASKFOLD_X = "1"'), ("reserved-name", "task.toml", 4)),
    "an unknown key": (with_toml("agent.colour = 1"), ("unknown-key", "task.toml", 4)),
    "a file without effect": ({"trajectory.json": "{}"}, ("no-effect", "trajectory.json", None)),
    "a rule that does not exist": (
        with_toml("[metadata.taskfold.lint]", 'ignore = ["no-solutions"]'),
        ("unknown-rule", "task.toml", None),
    ),
}


@pytest.mark.parametrize(("files", "expected"), ADVICE.values(), ids=ADVICE)
def test_advice_names_rule_file_and_line(files, expected):
    assert told(files) == [expected]
    assert {each.severity for each in findings(files)} == {Severity.ADVICE}


def test_a_run_line_is_one_of_every_seed():
    files = {"task.toml": "agent.user = 1", "environment/Dockerfile": "FROM python:3\nENV A=1\nRUN x\n"}
    advice = [each for each in told(files) if each[0] != "unsupported"]
    assert advice == [("run-at-seed", "environment/Dockerfile", 3)]


def test_artifacts_that_overlap():
    lines = ('artifacts = ["/app", "/app/report", {source = "/x", destination = "app/y"}, "/application"]',)
    overlaps = [each for each in findings(with_toml(*lines)) if each.rule is Rule.ARTIFACT_OVERLAP]
    assert [each.message.partition(": ")[2].partition(" ")[0] for each in overlaps] == ["/app/report", "/x"]
    assert {each.line for each in overlaps} == {4}


SEPARATELY = (SEPARATE, 'artifacts = ["/a"]')
OWN_STEP = 'steps = [{name = "a", artifacts = ["/logs/agent/x"], verifier = {environment_mode = "separate"}}]'
OF_SEPARATE = {
    "an artifact in the agent's logs": (
        with_toml(SEPARATE, 'artifacts = ["/logs//agent/x.log"]'),
        [("artifact-in-logs", "task.toml", 5)],
    ),
    "an artifact of a step in the agent's logs": (
        with_toml(OWN_STEP)
        | {"steps/a/instruction.md": "x", "steps/a/solution/solve.sh": "x", "solution/solve.sh": None},
        [("artifact-in-logs", "task.toml", 4)],
    ),
    "the agent's logs in shared mode": (
        with_toml('artifacts = ["/logs/agent"]'),
        [("shared-verifier", "task.toml", 4)],
    ),
    "nothing declared": (with_toml(SEPARATE), [("no-artifacts", "task.toml", None)]),
    "a download": (
        with_toml(*SEPARATELY) | {"tests/test.sh": "# curl https://x.y\ncurl -o a https://x.y/a > /logs/verifier/b\n"},
        [("downloads-at-run-time", "tests/test.sh", 2)],
    ),
    "a clone": (
        with_toml(*SEPARATELY) | {"tests/test.sh": "git clone -q git@host:a/b /logs/verifier/b\n"},
        [("downloads-at-run-time", "tests/test.sh", 1)],
    ),
    "a download from the sandbox itself": (
        with_toml(*SEPARATELY) | {"tests/test.sh": "curl http://localhost:80/a > /logs/verifier/b\n"},
        [],
    ),
    "a download in shared mode": (
        {"tests/test.sh": "wget https://x.y/a -O /logs/verifier/b\n"},
        [],
    ),
    "a working directory that nothing brings": (
        with_toml(*SEPARATELY, 'environment.workdir = "/app"') | {"tests/check.py": "open('/app/x')"},
        [("workspace-not-kept", "tests/check.py", None)],
    ),
    "a part of it is brought": (
        with_toml(SEPARATE, 'artifacts = ["src"]', 'environment.workdir = "/app"')
        | {"tests/check.py": "open('/app/x')"},
        [],
    ),
    "a folder of a longer name": (
        with_toml(*SEPARATELY, 'environment.workdir = "/app"') | {"tests/check.py": "open('/apple/x')"},
        [],
    ),
    "a workspace that nothing brings": (
        with_toml(*SEPARATELY, 'environment.workdir = "/app"')
        | {"tests/test.sh": None, "tests/verifier.py": "def verify(workspace): ..."},
        [("workspace-not-kept", "tests/verifier.py", None)],
    ),
    "a verifier of the response": (
        with_toml(*SEPARATELY, 'environment.workdir = "/app"')
        | {"tests/test.sh": None, "tests/verifier.py": "def verify(response): ..."},
        [],
    ),
    "an image of the verifier's that moves": (
        with_toml('verifier.environment.docker_image = "a/b"', 'artifacts = ["/a"]'),
        [("image-tag", "task.toml", 4)],
    ),
}


@pytest.mark.parametrize(("files", "expected"), OF_SEPARATE.values(), ids=OF_SEPARATE)
def test_advice_about_separate_verification(files, expected):
    assert told(files) == expected


def test_tests_that_look_at_a_living_environment_are_not_told_to_be_separate():
    files = toml() | {"tests/test.sh": "curl localhost:8080 && echo 1 > /logs/verifier/reward.txt\n"}
    assert told(files) == []


def test_separate_verification_is_not_told_to_be_separate():
    assert "shared-verifier" not in {rule for rule, *_ in told(toml(SEPARATE))}


@pytest.mark.parametrize("path", ["tests/.ng/x.py", "dataset/verifier.py"])
def test_files_of_ours(path):
    assert told({path: "x"}, listed=[path]) == [("reserved-name", path, None)]


@pytest.mark.parametrize(
    "text",
    [
        "from functools import partial\nverify = partial(print)",
        "async def verify(): ...",
        "from checks import verify",
        "from checks import *",
        "try:\n    import x\nexcept ImportError:\n    def verify(): ...",
        "if True:\n    verify: object = print",
        "import checks as verify",
    ],
)
def test_every_way_to_define_verify_counts(text):
    assert told({"tests/test.sh": None, "tests/verifier.py": text}) == []


@pytest.mark.parametrize("image", ["a:1", f"a@sha256:{'0' * 64}", "r.example:5000/a:1"])
def test_a_tag_or_a_digest_is_enough(image):
    assert told({"task.toml": f'agent.user = 1\nenvironment.docker_image = "{image}"\n'}) == []


def test_a_stage_of_a_build_is_no_image():
    files = {"environment/Dockerfile": f"FROM {build.IMAGE} AS one\nFROM one\nFROM other\n"}
    assert told(files) == [("image-tag", "environment/Dockerfile", 3)]


def test_no_value_of_an_env_table_is_shown():
    for finding in findings(with_toml('environment.env.MY_SECRET = "4711-4711-4711"')):
        assert "4711" not in finding.message


# silence


def test_a_task_silences_a_rule_of_the_advice():
    assert told(with_toml("[metadata.taskfold.lint]", 'ignore = ["no-solution"]') | {"solution/solve.sh": None}) == []


def test_nothing_silences_an_error():
    lines = with_toml("agent.timeout_sec = 0", "[metadata.taskfold.lint]", 'ignore = ["invalid"]')
    assert ("invalid", "task.toml", 4) in told(lines)


@pytest.mark.parametrize("value", ["1", '"no-solution"', "{}", "[1, [2]]"])
def test_a_list_of_rules_that_is_none_breaks_nothing(value):
    assert all(rule == "unknown-rule" for rule, *_ in told(with_toml(f"metadata.taskfold.lint.ignore = {value}")))


# errors


def test_every_error_is_found_at_once_before_all_advice():
    found = findings(
        with_toml("environment.gpus = 1", "agent.timeout_sec = 0") | {"tests/test.sh": None, "instruction.md": None}
    )
    assert [(each.rule, each.file, each.line) for each in found] == [
        ("invalid", "task.toml", 5),
        ("invalid", "instruction.md", None),
        ("invalid", "tests/", None),
    ]
    assert {each.severity for each in found} == {Severity.ERROR}


def test_a_task_toml_that_cannot_be_read_hides_no_advice_about_other_files():
    files = {"task.toml": "agent.user = true", "tests/test.sh": "pip install x\r\n"}
    assert told(files) == [
        ("invalid", "task.toml", 1),
        ("crlf", "tests/test.sh", 1),
        ("installs-at-run-time", "tests/test.sh", 1),
        ("no-reward-path", "tests/test.sh", None),
    ]


def test_the_line_of_broken_toml():
    assert told({"task.toml": "a = 1\nb = \n"})[0] == ("invalid", "task.toml", 2)


def test_what_is_not_supported_yet_is_an_error_of_its_own():
    servers = 'environment.mcp_servers = [{name = "a", url = "u"}]'
    assert told(with_toml(servers))[0] == ("unsupported", "task.toml", 4)


def test_every_rule_says_when_it_is_given():
    assert set(SENTENCES) == set(Rule)
    assert all(rule.sentence.endswith(".") for rule in Rule)
    assert not set(lint.ERRORS) & set(Rule)


@given(
    st.dictionaries(
        st.sampled_from(["task.toml", "tests/test.sh", "tests/verifier.py", "environment/Dockerfile"]),
        st.binary(max_size=80),
    )
)
def test_any_folder_has_findings_and_no_crash(files):
    for finding in findings(files):
        assert finding.message.encode()


# datasets


def of_dataset(text, tasks=("a", "b/c"), *, verifier=False, graded=()):
    content = text.encode() if text is not None else None
    found = lint_dataset.lint(content, tasks, verifier=verifier, graded=graded)
    return [(str(each.rule), each.file, each.line) for each in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, []),
        ("[gym.tasks.a.environment]\ncpus = 1\n[gym.tasks.c]\n", []),
        ("[gym.defaults]\n[gym.tasks.x.environment]\ncpus = 1\n", [("unknown-task", "dataset.toml", 2)]),
        ("[gym]\n\ntypo = 1\n", [("invalid", "dataset.toml", 3)]),
        ("[gym\n", [("invalid", "dataset.toml", 1)]),
        (
            '[dataset]\nname = "x"\ncolour = 1\n',
            [("harbor-table", "dataset.toml", 2), ("harbor-table", "dataset.toml", 3)],
        ),
    ],
)
def test_findings_of_a_dataset_toml(text, expected):
    assert of_dataset(text) == expected


def test_two_tasks_of_one_name():
    assert of_dataset(None, ("a", "b", "c/a")) == [("duplicate-task", "c/a", None)]


def test_a_verifier_that_grades_nothing():
    assert of_dataset(None, verifier=True) == [("no-effect", "verifier.py", None)]
    assert of_dataset(None, verifier=True, graded=["a"]) == []


# lines


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        ("[a]\nb = 1", "a.b", 2),
        ("a.b = 1", "a.b", 1),
        ("[a]\n[a.b]\nc = 1\n[d]\nc = 2", "d.c", 5),
        ("[[a.b]]\nc = 1\n[[a.b]]\nc = 2", "a.b[1].c", 4),
        ('[a."x.y"]\nb = 1', 'a."x.y".b', 2),
        ("[a] # heading\n  b=1", "a.b", 2),
        ("[a]\nb = {c = 1}", "a.b.c", 2),
        ("x = 1", "a.b", None),
        ("", "", None),
    ],
)
def test_the_line_of_a_key(text, field, line):
    assert toml_lines.of_field(text, field) == line


@given(st.text(max_size=60), st.text(max_size=20))
def test_a_line_is_in_the_text(text, field):
    line = toml_lines.of_field(text, field)
    assert line is None or 1 <= line <= len(text.splitlines())
