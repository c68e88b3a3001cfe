"""Advice about the image and its Dockerfile."""

from __future__ import annotations

import re
from collections.abc import Iterator

from taskfold.contract import dockerfile, dockerfile_lines, separate, toml_file
from taskfold.contract.errors import TaskError
from taskfold.contract.lint_subject import Advice, Rule, Subject

_TESTS = re.compile(r"(?:^|[\s/\"'\[,])(?:tests|solution|test\.sh|solve\.sh|answer\.md)(?:$|[\s/\"'\],])")


def references(subject: Subject) -> Iterator[Advice]:
    """Images that may be others tomorrow."""
    environments = {"environment": subject.config.environment, **dict(separate.environments(subject.config))}
    for table, environment in environments.items():
        if _moves(environment.docker_image):
            field = f"{table}.docker_image"
            yield Advice(Rule.IMAGE_TAG, toml_file.FILE, _movable(field, environment.docker_image), field=field)
    stages: set[str] = set()
    for number, line in _lines(subject):
        words = [word for word in line.split() if not word.startswith("--")]
        if words[0].upper() != "FROM" or len(words) < 2 or "$" in line:
            continue
        if words[1] not in stages and _moves(words[1]):
            yield Advice(Rule.IMAGE_TAG, dockerfile.FILE, _movable("FROM", words[1]), number)
        stages |= set(words[3:4])


def _movable(place: str, image: str | None) -> str:
    return f"{place} = {image}: may be another image tomorrow. Write a tag or, best, a digest."


def copies(subject: Subject) -> Iterator[Advice]:
    """Tests in the agent's image."""
    for number, line in _lines(subject):
        word, _, rest = line.partition(" ")
        if word.upper() in ("COPY", "ADD") and _TESTS.search(rest):
            message = f"{word.upper()} puts tests or a solution into the image, where the agent can read them"
            yield Advice(
                Rule.TESTS_IN_IMAGE, dockerfile.FILE, f"{message}. Leave them in tests/ and solution/.", number
            )


def seed(subject: Subject) -> Iterator[Advice]:
    """RUN lines that run at every seed."""
    if subject.config.environment.docker_image is not None or dockerfile.FILE not in subject.sizes:
        return
    try:
        parsed = dockerfile.parse(subject.source.read(dockerfile.FILE, dockerfile.MAX_BYTES))
    except TaskError:
        return
    if parsed.mode is dockerfile.Mode.OVERLAY:
        first = next((number for number, line in _lines(subject) if line[:4].upper() == "RUN "), None)
        message = "RUN lines run at the start of every run, in its limits and under its network restriction"
        remedy = "Build and push the image, and name it in environment.docker_image."
        yield Advice(Rule.RUN_AT_SEED, dockerfile.FILE, f"{message}. {remedy}", first)


def _lines(subject: Subject) -> list[tuple[int, str]]:
    text = subject.text(dockerfile.FILE)
    return list(dockerfile_lines.logical(text)[0]) if text is not None else []


def _moves(image: str | None) -> bool:
    """Whether the reference has no digest, and no tag or `latest`."""
    if image is None or "@" in image or image == "scratch":
        return False
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return not colon or tag == "latest"
