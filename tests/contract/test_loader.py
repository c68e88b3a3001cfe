"""A folder as a whole: what must be in it, what is refused, what is a warning."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract import build
from tests.contract.build import IMAGE, load, refusal, toml

from taskfold.contract import dialect, dockerfile, errors, folder, layout, loader, toml_file
from taskfold.contract.loader import ImageSource
from taskfold.contract.task_toml import VerifierMode

DOCKERFILE = "environment/Dockerfile"
NO_IMAGE = {"task.toml": ""}


def test_the_smallest_task():
    task = load()
    assert (task.id, task.instruction) == ("hello", "Write hello into hello.txt.\n")
    assert task.image == ImageSource(IMAGE)
    assert (task.solution, task.warnings) == (None, ())


def test_a_task_with_everything_that_is_supported():
    task = load(
        {
            "task.toml": f"""
            schema_version = "1.4"
            source = "somewhere"
            [task]
            name = "acme/hello"
            authors = [{{name = "A", email = "a@b"}}]
            [metadata]
            difficulty = "easy"
            [environment]
            docker_image = "{IMAGE}"
            build_timeout_sec = 60.5
            cpus = 0.5
            memory_mb = 512
            storage_mb = 1024
            workdir = "/app"
            env = {{A = "${{B:-c}}"}}
            [agent]
            user = "app"
            timeout_sec = 5.5
            [verifier]
            user = 0
            timeout_sec = 0.25
            env = {{KEY = "${{KEY}}"}}
            [[verifier.collect]]
            command = "pg_dump > /logs/artifacts/dump"
            user = "1000"
            [solution]
            env = {{X = "1"}}
            """,
            "solution/solve.sh": "true",
        }
    )
    assert task.warnings == ()
    assert task.solution == "solution/solve.sh"
    assert task.config.verifier.timeout_sec == 0.25
    assert task.config.environment.env == {"A": "${B:-c}"}
    assert task.config.verifier.collect[0].user == "1000"


@pytest.mark.parametrize(
    ("files", "file", "problem"),
    [
        ({"task.toml": None}, "task.toml", "is missing"),
        ({"instruction.md": None}, "instruction.md", "is missing"),
        ({"tests/test.sh": None}, "tests/", "is missing"),
        ({"tests/test.sh": None, "tests/helper.py": ""}, "tests/test.sh", "is missing"),
        ({"instruction.md": b"\xff"}, "instruction.md", "is not UTF-8 text (at byte 0)"),
        ({"task.toml": "x = "}, "task.toml", "is not valid TOML"),
        ({"task.toml": b"\xff"}, "task.toml", "is not UTF-8 text"),
        ({"task.toml": ""}, "task.toml", "no image is named"),
        ({"task.toml": b"#" * (toml_file.MAX_BYTES + 1)}, "task.toml", "is larger than 524,288 bytes"),
        ({"instruction.md": b"x" * (layout.MAX_INSTRUCTION_BYTES + 1)}, "instruction.md", "is larger than"),
        ({**NO_IMAGE, DOCKERFILE: b"#" * (dockerfile.MAX_BYTES + 1)}, DOCKERFILE, "is larger than"),
        ({**NO_IMAGE, DOCKERFILE: ""}, DOCKERFILE, "is empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_broken_folder_is_refused(files, file, problem):
    error = refusal(files)
    assert (error.file, error.unsupported) == (file, False)
    assert problem in str(error)
    assert error.remedy


@pytest.mark.parametrize(
    ("files", "file"),
    [
        ({"environment/docker-compose.yaml": ""}, "environment/docker-compose.yaml"),
        ({**NO_IMAGE, DOCKERFILE: "FROM a\nCOPY x y"}, DOCKERFILE),
        ({**NO_IMAGE, DOCKERFILE: 'FROM a\nENTRYPOINT ["x"]'}, DOCKERFILE),
        ({**NO_IMAGE, DOCKERFILE: "ARG X=1\nFROM a:$X"}, DOCKERFILE),
    ],
)
def test_not_supported_yet(files, file):
    error = refusal(files)
    assert (error.file, error.unsupported, error.others) == (file, True, ())
    assert str(error).startswith(f"{file}: ")
    assert str(error).endswith("not supported yet")


@pytest.mark.parametrize(
    "files",
    [
        {"instruction.md": ""},
        {"tests/Dockerfile": "FROM x", "tests/docker-compose.yaml": "services: {}"},
        {"tests/verifier.py": "a helper"},
        {"solution/answer.md": "42", "solution/solve.sh": ""},
        {"task_data.json": '{"a": [1, null, "x"]}'},
        {"README.md": "x", "dataset.toml": "[", "verifier.py": "x"},
        {"tests/test.sh": ""},
    ],
    ids=", ".join,
)
def test_what_is_harmless_is_let_pass_in_silence(files):
    assert load(files).warnings == ()


@pytest.mark.parametrize(
    ("files", "warning"),
    [
        ({"task_data.json": '{"a": 1, "b": {"a": 1}, "a": 2}'}, 'task_data.json: "a" stands twice'),
        ({"trajectory.json": "{}"}, "trajectory.json: an agent's earlier work is not continued"),
        ({"solution/notes.md": ""}, "solution/: has neither solve.sh nor answer.md"),
        ({"steps/one/instruction.md": ""}, "steps/one/: no [[steps]] of task.toml names it"),
        (toml("agent.colour = 1"), "task.toml: agent.colour is not a key"),
        ({DOCKERFILE: "FROM other:1"}, 'is FROM "other:1", not FROM docker_image'),
        ({DOCKERFILE: "FROM"}, "docker_image is used without it"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_ignored_is_one_warning(files, warning):
    (found,) = load(files).warnings
    assert warning in found


@pytest.mark.parametrize(
    "lines",
    [
        ['verifier.environment_mode = "separate"'],
        ["verifier.environment = {os = 'windows'}"],
        ['verifier.environment_mode = "separate"', 'steps = [{name = "a", verifier = {environment = {}}}]'],
    ],
)
def test_the_mode_of_the_run_is_decided_before_anything_is_refused(lines):
    source = build.folder(toml(*lines) | {"steps/a/instruction.md": ""})
    task = loader.load(source, task_id="x", terms=loader.Terms(VerifierMode.SHARED))
    assert task.config.verifier.mode is VerifierMode.SHARED
    assert {step.config.verifier.mode for step in task.steps} <= {VerifierMode.SHARED}
    assert task.separate is None
    task = loader.load(build.folder(), task_id="x", terms=loader.Terms(VerifierMode.SEPARATE))
    assert task.separate is not None


def test_the_harbor_dialect_knows_no_python_verifier_and_no_answer():
    terms = loader.Terms(rules=dialect.HARBOR)
    source = build.folder({"solution/answer.md": "42"})
    assert loader.load(source, task_id="x", terms=terms).solution is None
    for path in ("tests/verifier.py", "dataset/verifier.py"):
        with pytest.raises(errors.TaskError, match="is missing") as caught:
            loader.load(build.folder({"tests/test.sh": None, path: ""}), task_id="x", terms=terms)
        assert "verifier.py" not in caught.value.remedy


def test_a_leading_canary_is_not_sent_to_the_agent():
    assert load({"instruction.md": "<!-- canary -->\n\nDo it.\n"}).instruction == "Do it.\n"


# images


def test_a_pull_mode_dockerfile_gives_the_image_and_its_settings():
    image = load({**NO_IMAGE, DOCKERFILE: "FROM python:3\nWORKDIR /app\n"}).image
    assert image.reference == "python:3"
    assert image.dockerfile is not None
    assert dockerfile.apply(image.dockerfile, dockerfile.ImageConfig()).workdir == "/app"


@pytest.mark.parametrize("base", [IMAGE, f"docker.io/library/{IMAGE}", f"library/{IMAGE}"])
def test_a_pull_mode_dockerfile_from_docker_image_beside_it_puts_it_on_record(base):
    image = load({DOCKERFILE: f"FROM {base}\nUSER app\n"}).image
    assert image.reference == IMAGE
    assert image.dockerfile is not None


@pytest.mark.parametrize("text", [f"FROM {IMAGE}\nRUN x", f"FROM {IMAGE}\nCOPY a b", "FROM other\nWORKDIR /x"])
def test_any_other_dockerfile_beside_docker_image_contributes_nothing(text):
    assert load({DOCKERFILE: text}).image == ImageSource(IMAGE)


def test_run_lines_are_kept_to_be_run_at_seed():
    image = load({**NO_IMAGE, DOCKERFILE: "FROM python:3\nRUN x\n"}).image
    assert image.reference == "python:3"
    assert image.dockerfile is not None
    assert [each.run.text for each in dockerfile.overlays(image.dockerfile, dockerfile.ImageConfig())] == ["x"]


def test_the_line_that_asks_for_a_build_is_named():
    assert "line 2: COPY asks for building an image" in str(refusal({**NO_IMAGE, DOCKERFILE: "FROM a\nCOPY x y"}))


# sizes


def test_a_folder_with_too_many_files_is_refused(monkeypatch):
    monkeypatch.setattr(folder, "MAX_FILES", 2)
    assert "holds more than 2 files" in str(refusal({}))


def test_a_folder_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(folder, "MAX_BYTES", 10)
    assert "more than 10" in str(refusal({}))


def test_a_link_in_the_folder_is_refused(tmp_path):
    for path, text in build.TASK.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    source = folder.DirectoryFolder(tmp_path)
    assert loader.load(source, task_id="x").id == "x"
    (tmp_path / "tests/link").symlink_to("test.sh")
    with pytest.raises(errors.TaskError, match="tests/link: is a symbolic link"):
        loader.load(folder.DirectoryFolder(tmp_path), task_id="x")


# all findings


def test_check_finds_every_problem_and_every_warning():
    files = toml("agent.timeout_sec = 0") | {
        "instruction.md": None,
        "tests/test.sh": None,
        "trajectory.json": "{}",
    }
    findings = loader.check(build.folder(files), task_id="x")
    assert findings.task is None
    assert [problem.file for problem in findings.problems] == ["task.toml", "instruction.md", "tests/"]
    assert len(findings.warnings) == 1


def test_broken_things_come_before_what_is_not_supported_yet():
    servers = 'environment.mcp_servers = [{name = "a", url = "u"}]'
    error = refusal(toml(servers) | {"instruction.md": None, "environment/docker-compose.yaml": ""})
    assert [each.unsupported for each in (error, *error.others)] == [False, True, True]
    image = {"task.toml": 'agent.user = "a:b"', DOCKERFILE: "FROM a\nCOPY b c"}
    assert [each.file for each in (refusal(image), *refusal(image).others)] == ["task.toml", DOCKERFILE]


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "task.toml",
                "instruction.md",
                "tests/test.sh",
                "tests/verifier.py",
                DOCKERFILE,
                "solution/answer.md",
                "steps/a/b",
            ]
        ),
        st.binary(max_size=100) | st.sampled_from([b"FROM a", b"environment.docker_image = 'a'", b"FROM a\nRUN b"]),
    )
)
def test_any_folder_is_a_task_or_a_task_error(files):
    source = folder.MemoryFolder({path: (content, False) for path, content in files.items()})
    findings = loader.check(source, task_id="x")
    assert (findings.task is None) == bool(findings.problems)
    for problem in findings.problems:
        assert str(problem).encode()
        assert problem.remedy
