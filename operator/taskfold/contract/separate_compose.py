"""tests/docker-compose.yaml of a separate verifier: the few things that it may say (seed "Shared and separate
verification").

Guarantees: any bytes give warnings or a TaskError. Every key is looked at, also one that stands twice; nothing is
constructed from the document, so aliases cost nothing, and tags mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from taskfold.contract import shape
from taskfold.contract.errors import TaskError

FILE = "tests/docker-compose.yaml"
MAX_BYTES = 64 * 2**10
"""Real ones have a few lines."""
TOP = ("services", "name", "version")
MAIN = "main"
OF_MAIN = ("image", "build", "pull_policy")
PULL_POLICY = "pull_policy"
BUILD = "build"
_POLICY = re.compile(r"always|never|missing|if_not_present|daily|weekly|build|every_[0-9A-Za-z]+")


def check(content: bytes, *, file: str = FILE, prebuilt: bool) -> tuple[str, ...]:
    """What of the file has no effect, as warnings. TaskError for what it may not say, the rest in `others`.

    `prebuilt`: the verifier's image is named in task.toml, and `main` may only say when it is pulled.
    """
    main: list[tuple[str, yaml.Node]] = []
    problems = list(_problems(_document(content, file), file, main, prebuilt=prebuilt))
    if problems:
        first, *others = problems
        first.others = tuple(others)
        raise first
    if prebuilt and main:
        text = (
            f"{file}: services.{MAIN}.{PULL_POLICY} has no effect: the operator's settings say when images are pulled"
        )
        return (text,)
    return ()


def _document(content: bytes, file: str) -> yaml.Node | None:
    """The document's nodes; None of an empty one."""
    remedy = "Correct the file, or remove it."
    try:
        return yaml.compose(content.decode("utf-8-sig"), Loader=yaml.SafeLoader)
    except RecursionError:
        raise TaskError("is nested too deep", file=file, remedy=remedy) from None
    except yaml.MarkedYAMLError as error:
        where = f" at line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        problem = f"is not valid YAML: {error.problem or error.context}{where}"
        raise TaskError(problem, file=file, remedy=remedy) from None
    except (yaml.YAMLError, ValueError, OverflowError):  # bytes, escapes and numbers that are no text, no character
        raise TaskError("is not valid YAML", file=file, remedy=remedy) from None


def _problems(
    document: yaml.Node | None, file: str, main: list[tuple[str, yaml.Node]], *, prebuilt: bool
) -> Iterator[TaskError]:
    """`main` receives what the service says."""
    for key, value in _pairs(document, file):
        if key not in TOP and not key.startswith("x-"):
            names = f"{', '.join(TOP)} and x-* keys"
            yield _refused(file, (key,), value, f"is not one of {names}, which are all that it may have", "Remove it.")
        elif key == TOP[0]:
            for service, inside in _pairs(value, file, (key,)):
                if service != MAIN:
                    remedy = "Put what the tests need into the verifier's image."
                    yield _refused(file, (key, service), inside, f"is another service than {MAIN}", remedy)
                    continue
                main += _pairs(inside, file, (key, service))
    for key, value in main:
        yield from _of_main(file, key, value, prebuilt=prebuilt)


def _of_main(file: str, key: str, value: yaml.Node, *, prebuilt: bool) -> Iterator[TaskError]:
    at = (TOP[0], MAIN, key)
    if key not in OF_MAIN:
        text = f"is not one of {', '.join(OF_MAIN)}, which are all that it may have"
        yield _refused(
            file, at, value, text, "Remove it; [verifier.environment] of task.toml has the sandbox's settings."
        )
    elif key != PULL_POLICY:
        if prebuilt:
            remedy = "Remove it, or docker_image from task.toml."
            yield _refused(file, at, value, "contradicts task.toml, which names the verifier's image", remedy)
    elif not isinstance(value, yaml.ScalarNode) or not _POLICY.fullmatch(value.value):
        yield _refused(file, at, value, "is no pull policy", 'Write "missing", or remove the key.')
    elif prebuilt and value.value == BUILD:
        text = "asks for a build, and task.toml names the verifier's image"
        yield _refused(file, at, value, text, 'Write "missing", or remove the key.')


def _pairs(node: yaml.Node | None, file: str, at: shape.Location = ()) -> list[tuple[str, yaml.Node]]:
    """The keys of a mapping, also those that stand twice; of nothing, and of null, none."""
    if node is None or (isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"):
        return []
    if not isinstance(node, yaml.MappingNode):
        raise TaskError(
            "must be a mapping", file=file, field=shape.dotted(at) or None, remedy="Write key: value lines."
        )
    found: list[tuple[str, yaml.Node]] = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise TaskError(
                "has a key that is no text", file=file, field=shape.dotted(at) or None, remedy="Write a name there."
            )
        found.append((key.value, value))
    return found


def _refused(file: str, at: shape.Location, value: yaml.Node, problem: str, remedy: str) -> TaskError:
    shown = value.value if isinstance(value, yaml.ScalarNode) else None
    return TaskError(problem, file=file, field=shape.dotted(at), value=shown, remedy=remedy)
