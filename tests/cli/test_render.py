"""`taskfold render`: golden manifests, sizes, modes, refusals."""

import base64
import gzip
import io
import json
import os
import random
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from taskfold.api.task_source import InlineSource
from taskfold.api.taskrun import TaskRun
from taskfold.build import manifests
from taskfold.cli import manifest_text
from taskfold.contract import digest
from taskfold.contract.folder import DirectoryFolder, MemoryFolder
from taskfold.engine import sources

from .conftest import ROOT, Cli

GOLDEN = Path(__file__).parent / "golden"
HELLO = ROOT / "environments/hello_dataset"
BINARY = bytes(range(256))


def noise(size: int) -> bytes:
    """Bytes that do not compress."""
    return random.Random(size).randbytes(size)


@pytest.fixture
def zoo(write: Any) -> Path:
    return write(
        "Zoo of_Files",
        {
            "tests/data.bin": BINARY,
            "tests/empty": "",
            "tests/odd.txt": "  leading blanks\ttab \n\n\ntrailing  \n",
            "tests/no-newline": "1e3",
            "tests/crlf.txt": "a\r\nb\r\n",
            "tests/unicode.txt": "naïve ☃ 👩‍🚀\n",
            "README.md": "not part of the task\n",
        },
    )


@pytest.mark.parametrize(
    ("golden", "words"),
    [
        ("inline.yaml", []),
        ("inline.json", ["--output", "json"]),
        ("script.yaml", ["--agent", "script:{folder}/solution/solve.sh", "--set", "verifier.timeoutSeconds=30"]),
        ("named.yaml", ["--name", "other", "--namespace", "team", "--agent", "nop"]),
    ],
)
def test_golden(cli: Cli, zoo: Path, golden: str, words: list[str]) -> None:
    result = cli("render", zoo, *[word.format(folder=zoo) for word in words])
    assert result.exit_code == 0, result.stderr
    path = GOLDEN / golden
    if os.environ.get("TASKFOLD_WRITE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(result.stdout)
    assert result.stdout == path.read_text()


@pytest.mark.parametrize("words", [[], ["--from", "configmap"], ["--from", "configmap", "--output", "json"]])
def test_the_same_bytes_twice_whatever_the_times(cli: Cli, zoo: Path, words: list[str]) -> None:
    first = cli("render", zoo, *words).stdout_bytes
    for path in zoo.rglob("*"):
        os.utime(path, (1, 1))
    assert cli("render", zoo, *words).stdout_bytes == first


@pytest.mark.parametrize("task", sorted(path.parent.name for path in HELLO.glob("*/task.toml")))
def test_the_example_tasks_are_inline_and_valid(cli: Cli, task: str) -> None:
    result = cli("render", HELLO / task)
    (run,) = yaml.safe_load_all(result.stdout)
    assert TaskRun.parse(run).spec.task.inline is not None
    assert manifests.json_bytes(run) < manifests.INLINE_BYTES


@pytest.mark.parametrize("words", [[], ["--from", "configmap"]])
def test_the_operator_unpacks_the_same_task(cli: Cli, zoo: Path, words: list[str]) -> None:
    *maps, run = yaml.safe_load_all(cli("render", zoo, *words).stdout)
    assert digest.task_digest(_as_operator(maps, run)) == digest.task_digest(DirectoryFolder(zoo))


def _as_operator(maps: list[Any], run: Any) -> Any:
    spec = TaskRun.parse(run).spec
    if not maps:
        assert spec.task.inline is not None
        return sources._inline(spec.task.inline)
    assert spec.task.config_map is not None
    return sources._config_map(maps[0], spec.task.config_map)


@pytest.mark.parametrize(
    ("path", "content", "mode"),
    [("tests/tool", "no magic\n", 0o755), ("tests/check.py", "#!/usr/bin/python3\n", 0o644)],
)
def test_modes_that_an_object_cannot_keep_take_a_config_map(
    cli: Cli, write: Any, path: str, content: str, mode: int
) -> None:
    folder = write("modes", {path: content})
    (folder / path).chmod(mode)
    config_map, run = yaml.safe_load_all(cli("render", folder).stdout)
    archive = gzip.decompress(base64.b64decode(config_map["binaryData"]["task.tar.gz"]))
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert tar.getmember(path).mode == mode
    assert run["spec"]["task"]["configMap"] == {"name": config_map["metadata"]["name"]}
    assert digest.task_digest(_as_operator([config_map], run)) == digest.task_digest(DirectoryFolder(folder))
    refused = cli("render", folder, "--from", "inline")
    assert refused.exit_code == 3
    assert path in refused.stderr
    assert "--from auto" in refused.stderr


def test_above_200_kib_a_config_map(cli: Cli, write: Any) -> None:
    folder = write("big", {"tests/data.txt": "a line of text\n" * 15_000})
    result = cli("render", folder)
    config_map, _ = yaml.safe_load_all(result.stdout)
    assert config_map["kind"] == "ConfigMap"
    assert "server-side" not in result.output  # it compresses well


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_above_the_annotation_limit_it_says_server_side(cli: Cli, write: Any, output: str) -> None:
    result = cli("render", write("big", {"tests/data": noise(300_000)}), "--output", output)
    assert "note: This is too large for client-side apply. Use: kubectl apply --server-side" in result.stderr
    if output == "yaml":
        assert result.stdout.startswith("# This is too large for client-side apply. Use: kubectl apply --server-side")
    else:
        assert [item["kind"] for item in json.loads(result.stdout)["items"]] == ["ConfigMap", "TaskRun"]


@pytest.mark.parametrize(
    ("size", "said"), [(1_100_000, "a ConfigMap holds 1,048,576"), (70_000_000, "may hold 67,108,864")]
)
def test_what_fits_nowhere_is_refused_with_size_and_remedy(cli: Cli, write: Any, size: int, said: str) -> None:
    content = noise(size) if size < 2_000_000 else bytes(size)
    result = cli("render", write("huge", {"tests/data": content}))
    assert (result.exit_code, result.stdout) == (3, "")
    assert said in result.stderr
    assert "Put bulk data into the image" in result.stderr


def test_kubectls_escapes_count() -> None:
    assert manifests.json_bytes({"a": "<&>"}) == len(r'{"a":"\u003c\u0026\u003e"}')


def test_warnings_go_to_stderr(cli: Cli, write: Any) -> None:
    result = cli("render", write("odd", {"task.toml": 'environment.docker_image = "a"\nenvironment.gpu = 1\n'}))
    assert result.exit_code == 0
    assert "warning: task.toml: environment.gpu" in result.stderr
    assert "gpu" not in result.stdout.split("task.toml: |")[0]


def test_all_findings_are_listed(cli: Cli, write: Any) -> None:
    files = {"task.toml": "environment.docker_image = 7\nverifier.timeout_sec = -1\n", "instruction.md": None}
    result = cli("render", write("bad", files))
    assert (result.exit_code, result.stdout) == (3, "")
    for text in ("environment.docker_image = 7", "verifier.timeout_sec = -1", "instruction.md: is missing"):
        assert text in result.stderr


def test_the_oracle_needs_a_solution(cli: Cli, write: Any) -> None:
    folder = write("bare", {"solution/solve.sh": None})
    result = cli("render", folder)
    assert result.exit_code == 3
    assert "solution/solve.sh" in result.stderr
    assert cli("render", folder, "--agent", "nop").exit_code == 0


def test_the_oracle_may_have_an_answer_instead(cli: Cli, write: Any) -> None:
    folder = write("answered", {"solution/solve.sh": None, "solution/answer.md": "42\n"})
    assert cli("render", folder).exit_code == 0


def test_a_folder_of_tasks_is_told_from_a_task(cli: Cli) -> None:
    result = cli("render", HELLO)
    assert result.exit_code == 3
    assert f"Name one of them: {HELLO / 'components'}" in result.stderr


DATASET = """
[gym]
license = "MIT"
[gym.defaults]
timeout_multiplier = 2
[gym.tasks.hello.environment]
cpus = 1.5
env = { "A\\u007f" = "\\"x\\"" }
[gym.tasks.other.environment]
cpus = 64
"""


def test_what_the_dataset_adds_goes_with_the_task(cli: Cli, write: Any) -> None:
    folder = write()
    (folder.parent / "dataset.toml").write_text(DATASET)
    (folder.parent / "verifier.py").write_text("# grades tasks without tests/")
    task = json.loads(cli("render", folder, "-o", "json").stdout)["spec"]["task"]
    files = task["inline"]["files"]
    assert task["path"] == folder.name
    assert {path.partition("/")[0] for path in files} == {folder.name, "dataset.toml"}
    assert tomllib.loads(files["dataset.toml"]) == {
        "gym": {
            "defaults": {"timeout_multiplier": 2.0},
            "tasks": {"hello": {"environment": {"cpus": 1.5, "env": {"A\x7f": '"x"'}}}},
        }
    }


def test_the_dataset_s_verifier_goes_with_a_task_that_it_grades(cli: Cli, write: Any) -> None:
    folder = write("hello", {"tests/test.sh": None})
    (folder.parent / "verifier.py").write_text("def verify(): return 1")
    task = json.loads(cli("render", folder, "-o", "json").stdout)["spec"]["task"]
    assert task["path"] == folder.name
    assert task["inline"]["files"]["verifier.py"] == "def verify(): return 1"


def test_a_dataset_s_toml_is_not_looked_for_beyond_a_repository(cli: Cli, write: Any) -> None:
    folder = write()
    (folder / ".git").mkdir()
    (folder.parent / "dataset.toml").write_text("[gym]\ntypo = 1\n")
    assert cli("render", folder).exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gym.defaults]\ntimeout_multiplyer = 2.0\n", "gym.defaults.timeout_multiplyer: is not a key of [gym]"),
        ("[gym]\nallowed_agents = 1\n", "gym.allowed_agents = 1: must be an array"),
    ],
)
def test_wrong_settings_of_the_dataset_are_refused(cli: Cli, write: Any, text: str, said: str) -> None:
    folder = write()
    (folder.parent / "dataset.toml").write_text(text)
    result = cli("render", folder)
    assert result.exit_code == 3
    assert f"../dataset.toml: {said}" in result.stderr


@pytest.mark.parametrize("text", ['[dataset]\nname = "a/b"\n', "", "[gym]\n", "[[tasks]]\nname = 'x'\n"])
def test_harbors_tables_are_not_ours(cli: Cli, write: Any, text: str) -> None:
    folder = write()
    (folder.parent / "dataset.toml").write_text(text)
    assert cli("render", folder).exit_code == 0


def test_a_dataset_toml_that_is_none(cli: Cli, write: Any) -> None:
    folder = write()
    (folder.parent / "dataset.toml").write_text("[gym")
    result = cli("render", folder)
    assert result.exit_code == 3
    assert "../dataset.toml: is not valid TOML" in result.stderr


@pytest.mark.parametrize(
    ("setting", "code", "said"),
    [
        ("multipliers.timeout=2", 0, ""),
        ("pod={nodeSelector: {disk: ssd}}", 0, ""),
        ("verifer.timeoutSeconds=3", 64, "no such field"),
        ("pod={nodeselector: {}}", 64, "no such field"),
        ("multipliers.timeout=much", 64, "multipliers.timeout"),
        ("task.id=x", 64, "spec.task is made from"),
        ("agent={nop: {}}", 64, "spec.agent is made from"),
        ("suspend", 64, "PATH=VALUE"),
        ("mcpGrants=required", 3, "spec.mcpGrants is not supported yet"),
    ],
)
def test_set(cli: Cli, write: Any, setting: str, code: int, said: str) -> None:
    result = cli("render", write(), "--set", setting)
    assert result.exit_code == code, result.stderr
    assert said in result.stderr


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hello", "hello"),
        ("My Task_1", "my-task-1"),
        ("--a..b--", "a-b"),
        ("übung", "bung"),
        ("###", "task"),
        ("1st", "1st"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert manifests.object_name(text) == name


@given(st.text())
def test_every_name_is_a_dns_label(text: str) -> None:
    for name in (manifests.object_name(text), manifests.unique_name(text, "abcde")):
        assert len(name) <= 48
        assert manifests.re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)


def test_long_names_stay_apart() -> None:
    assert manifests.object_name("a" * 60 + "1") != manifests.object_name("a" * 60 + "2")


TEXTS = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    [
        "y",
        "No",
        "1e3",
        "0o17",
        "2020-01-01",
        "1_000",
        "~",
        "",
        "\n",
        " \n",
        "\ta\n",
        "a: b",
        "- a",
        "#x",
        ".inf",
        "a\n\n",
    ]
)


@given(st.dictionaries(TEXTS, TEXTS))
def test_yaml_gives_the_data_back(data: dict[str, str]) -> None:
    assert yaml.safe_load(manifest_text.as_yaml([data])) == data


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_inline_gives_the_bytes_back(content: bytes) -> None:
    source = InlineSource.model_validate(manifests.inline(MemoryFolder({"f": (content, False)})))
    assert sources._inline(source).read("f") == content
