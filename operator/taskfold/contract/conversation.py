"""From a final response to the steps of a transcript: what the agent said and did, turn by turn.

Guarantees: the steps are valid ATIF v1.7 for any response that `response` accepts: every result of a tool stands in
the step of its call, only steps of the agent have reasoning, calls, a model and metrics. One turn of the model is one
step. Items of other types than messages, reasoning, function calls and their outputs are left out: the verifier has
them in the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taskfold.contract import response as responses


@dataclass
class _Turn:
    """One turn of the model while its items are read."""

    source: str = "agent"
    message: str | None = None
    reasoning: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)

    def has_called(self, name: object) -> bool:
        return any(call["tool_call_id"] == name for call in self.calls)

    def step(self) -> dict[str, Any]:
        step: dict[str, Any] = {"source": self.source, "message": self.message or ""}
        if self.reasoning:
            step["reasoning_content"] = "\n\n".join(self.reasoning)
        if self.calls:
            step["tool_calls"] = self.calls
        if self.results:
            step["observation"] = {"results": self.results}
        return step


def steps(response: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps of a response, without their numbers. A response without a word is one step without a word."""
    turns: list[_Turn] = []
    for item in response.get("output") or ():
        _read(turns, item)
    found = [turn.step() for turn in turns or [_Turn()]]
    own = [step for step in found if step["source"] == "agent"]
    model = response.get("model")
    for step in own:
        if isinstance(model, str) and model:
            step["model_name"] = model
    metrics = _metrics(response.get("usage"))
    if len(own) == 1 and metrics:
        own[0]["metrics"] = metrics  # of several turns the usage would be nobody's
    return found


def _read(turns: list[_Turn], item: Mapping[str, Any]) -> None:
    match item.get("type"):
        case "message":
            role = item["role"]
            text = responses.message_text(item)
            if role in ("user", "system", "developer"):
                turns.append(_Turn("user" if role == "user" else "system", text))
            else:
                _turn(turns, message=True).message = text
        case "reasoning":
            text = "\n".join(filter(None, (_texts(item.get("summary")), _texts(item.get("content")))))
            if text:
                _turn(turns, reasoning=True).reasoning.append(text)
        case "function_call":
            call = {"tool_call_id": item["call_id"], "function_name": item["name"]}
            _turn(turns).calls.append({**call, "arguments": _arguments(item["arguments"])})
        case "function_call_output":
            _answer(turns, item)
        case _:
            pass


def _turn(turns: list[_Turn], *, message: bool = False, reasoning: bool = False) -> _Turn:
    """The model's turn that an item belongs to: a new one after results, after a second message, and where the model
    thinks again.
    """
    last = turns[-1] if turns else None
    if last is None or last.source != "agent" or last.results:
        fresh = True
    elif reasoning:
        fresh = last.message is not None or bool(last.calls)
    else:
        fresh = message and last.message is not None
    if fresh:
        turns.append(_Turn())
    return turns[-1]


def _answer(turns: list[_Turn], item: Mapping[str, Any]) -> None:
    """A tool's result, into the step of its call; one whose call is not there stands alone."""
    output = item.get("output")
    content = output if isinstance(output, str) else _texts(output)
    asked = next((turn for turn in reversed(turns) if turn.has_called(item["call_id"])), None)
    if asked is not None:
        asked.results.append({"source_call_id": item["call_id"], "content": content})
        return
    if not turns or turns[-1].source != "agent":
        turns.append(_Turn())
    turns[-1].results.append({"content": content})


def _texts(parts: object) -> str:
    found = parts if isinstance(parts, list) else []
    texts = (part.get("text") for part in found if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a call as an object; as the one argument `input` where they are none."""
    try:
        value = responses.json_value(text)
    except responses.InvalidResponseError:
        value = None
    return value if isinstance(value, dict) else {"input": text}


def _metrics(usage: object) -> dict[str, int]:
    if not isinstance(usage, dict):
        return {}
    details = usage.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    counts = {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "cached_tokens": cached,
    }
    return {name: count for name, count in counts.items() if type(count) is int and count >= 0}
