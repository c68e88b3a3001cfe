"""The agent's final response, in the shape of the Responses API, and the text of its answer (C21).

Guarantees: what is returned is JSON data that can be written again, of bounded size and depth. Whatever the bytes,
nothing but InvalidResponseError is raised, and no part of the content stands in its text.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

MAX_BYTES = 2 * 2**20
"""Of a response as it is handed in. It goes into the sandbox beside the verifier and is held while it does."""
MAX_DEPTH = 64
"""Lists and objects within each other."""
OUTPUT_TEXT = "output_text"


class InvalidResponseError(ValueError):
    """The content is no response. The text names the field and what is wrong with it."""


def parse(content: bytes | str, *, model: str = "") -> dict[str, Any]:
    """A response from either form that people write.

    A JSON object that looks like a response (its `object` says so, or its `output` is a list of typed items) is taken
    as it is once its shape is proven; everything else is the text of an answer. Raises InvalidResponseError for what
    looks like a response and is none, and for what is too large.
    """
    _bounded(content)
    try:
        document = json_value(content)
    except InvalidResponseError:
        return of_text(content, model=model)
    return of_json(content) if _looks_like_one(document) else of_text(content, model=model)


def of_json(content: bytes | str) -> dict[str, Any]:
    """A response object as it is written. Raises InvalidResponseError."""
    _bounded(content)
    document = json_value(content)
    if not isinstance(document, dict):
        raise InvalidResponseError("is not a JSON object")
    problem = next(_problems(document), None)
    if problem is not None:
        raise InvalidResponseError(problem)
    return document


def of_text(content: bytes | str, *, model: str = "") -> dict[str, Any]:
    """A response that says this text, and nothing else. The same text makes the same response.

    Bytes that are not UTF-8 are replaced. Raises InvalidResponseError for what is too large.
    """
    _bounded(content)
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "replace")
    text = raw.decode("utf-8", "replace")
    name = hashlib.sha256(raw).hexdigest()[:32]
    message = {
        "id": f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": OUTPUT_TEXT, "text": text, "annotations": []}],
    }
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": model,
        "output": [message],
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
    }


def final_text(response: Mapping[str, Any] | None) -> str:
    """The text of the last assistant message's output_text parts, joined; "" without one (C21)."""
    for item in reversed(_list((response or {}).get("output"))):
        if isinstance(item, dict) and item.get("type") == "message" and item.get("role") == "assistant":
            return message_text(item)
    return ""


def message_text(message: Mapping[str, Any]) -> str:
    """The text of one message: its parts' texts joined."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = (part for part in _list(content) if isinstance(part, dict) and part.get("type") == OUTPUT_TEXT)
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# -- reading -------------------------------------------------------------------------------------------------------


def _bounded(content: bytes | str) -> None:
    size = len(content) if isinstance(content, bytes) else len(content.encode("utf-8", "replace"))
    if size > MAX_BYTES:
        raise InvalidResponseError(f"has {size} bytes, more than {MAX_BYTES}")


def json_value(content: bytes | str) -> object:
    """A JSON value within the bound of depth. Raises InvalidResponseError, also for numbers that JSON cannot write."""
    try:
        text = content.decode() if isinstance(content, bytes) else content
        document = json.loads(text.removeprefix("\ufeff"), parse_constant=_no_constant, parse_float=_finite)
        text.encode()
    except UnicodeError:
        raise InvalidResponseError("is not UTF-8") from None
    except (ValueError, RecursionError):
        raise InvalidResponseError("is not JSON") from None
    if _deeper(document, MAX_DEPTH):
        raise InvalidResponseError(f"is nested deeper than {MAX_DEPTH} levels")
    return document


def _no_constant(token: str) -> NoReturn:
    raise ValueError(token)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("not finite")
    return number


def _deeper(document: object, levels: int) -> bool:
    """Level by level, so that depth costs no stack."""
    level: list[Any] = [document]
    for _ in range(levels + 1):
        level = [child for value in level if isinstance(value, dict | list) for child in _children(value)]
        if not level:
            return False
    return True


def _children(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def _looks_like_one(document: object) -> bool:
    if not isinstance(document, dict) or "output" not in document:
        return False
    output = document["output"]
    typed = isinstance(output, list) and all(isinstance(item, dict) and "type" in item for item in output)
    return document.get("object") == "response" or typed


# -- the shape -----------------------------------------------------------------------------------------------------

_TEXTS = {
    "message": ("role",),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id",),
}
"""Fields that an item of a type must have as text; of other types only the type itself is looked at."""


def _problems(document: Mapping[str, Any]) -> Iterator[str]:
    if document.get("object", "response") != "response":
        yield 'object: is not "response"'
    output = document.get("output")
    if not isinstance(output, list):
        yield "output: is not a list"
        return
    for index, item in enumerate(output):
        yield from _item_problems(item, f"output.{index}")


def _item_problems(item: object, where: str) -> Iterator[str]:
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        yield f"{where}.type: is not a text"
        return
    for name in _TEXTS.get(item["type"], ()):
        if not isinstance(item.get(name), str):
            yield f"{where}.{name}: is not a text"
    match item["type"]:
        case "message" if not isinstance(item.get("content"), str):
            yield from _part_problems(item.get("content"), f"{where}.content", OUTPUT_TEXT)
        case "reasoning":
            for name in ("summary", "content"):
                if item.get(name) is not None:
                    yield from _part_problems(item[name], f"{where}.{name}", "summary_text", "reasoning_text")
        case "function_call_output" if not isinstance(item.get("output"), str):
            yield from _part_problems(item.get("output"), f"{where}.output", "input_text")
        case _:
            pass


def _part_problems(parts: object, where: str, *texts: str) -> Iterator[str]:
    """`texts`: the types of parts that must have a text."""
    if not isinstance(parts, list):
        yield f"{where}: is neither a text nor a list of parts"
        return
    for index, part in enumerate(parts):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            yield f"{where}.{index}.type: is not a text"
        elif part["type"] in texts and not isinstance(part.get("text"), str):
            yield f"{where}.{index}.text: is not a text"
