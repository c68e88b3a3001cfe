"""The cache key of a program changes with everything its binaries depend on, and with nothing else."""

import dataclasses
from pathlib import Path

import pytest
from hack.cluster import programs
from hack.cluster.programs import Program

PROGRAM = Program("thing", (("thing", "."),))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name in ("go.mod", "go.sum", "main.go"):
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize("name", ["go.mod", "go.sum", "main.go", "more.go"])
def test_key_changes_with_sources(sources: Path, name: str) -> None:
    before = programs.cache_key(PROGRAM, sources, "go1.26.8")
    (sources / name).write_text("changed")
    assert programs.cache_key(PROGRAM, sources, "go1.26.8") != before


@pytest.mark.parametrize("change", [{"ldflags": "-s"}, {"tags": "seccomp"}, {"cgo": True}, {"links": ("other",)}])
def test_key_changes_with_flags(sources: Path, change: dict[str, object]) -> None:
    other = dataclasses.replace(PROGRAM, **change)
    assert programs.cache_key(other, sources, "go1.26.8") != programs.cache_key(PROGRAM, sources, "go1.26.8")


def test_key_changes_with_the_go_version_only_besides(sources: Path) -> None:
    before = programs.cache_key(PROGRAM, sources, "go1.26.8")
    (sources / "README.md").write_text("not a source")
    assert programs.cache_key(PROGRAM, sources, "go1.26.8") == before
    assert programs.cache_key(PROGRAM, sources, "go1.26.9") != before


def test_every_program_has_its_module() -> None:
    for program in programs.ALL:
        assert (programs.PROGRAMS / program.name / "go.mod").is_file(), program.name
