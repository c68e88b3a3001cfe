"""ATIF, the Agent Trajectory Interchange Format, version 1.7: a strict validator.

Guarantees: `parse` accepts any bytes and returns a trajectory only when every level of it is valid: known
fields only, steps numbered without gaps, tool results that answer calls of their own step. Versions 1.0 to
1.6 are read too: 1.7 only adds fields to them, and one rule about references to other trajectories.
"""

from __future__ import annotations

import datetime
import json
from typing import Annotated, Any, Literal, NoReturn, Self

import pydantic
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

VERSION = "ATIF-v1.7"
VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(8))
MAX_PATH = 200
"""Characters of a field's path in a message."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


def _timestamp(value: str) -> str:
    datetime.datetime.fromisoformat(value)
    return value


Tokens = Annotated[int, Field(ge=0)]
Extra = dict[str, Any] | None


class ImageSource(_Strict):
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    path: str


class Part(_Strict):
    type: Literal["text", "image"]
    text: str | None = None
    source: ImageSource | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.type == "text") != (self.text is not None) or (self.type == "image") != (self.source is not None):
            raise ValueError("a text part has a text, an image part a source")
        return self


Content = str | list[Part]


class ToolCall(_Strict):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: Extra = None


class SubagentReference(_Strict):
    session_id: str | None = None
    trajectory_id: str | None = None
    trajectory_path: str | None = None
    extra: Extra = None


class Result(_Strict):
    source_call_id: str | None = None
    content: Content | None = None
    subagent_trajectory_ref: list[SubagentReference] | None = None
    extra: Extra = None


class Observation(_Strict):
    results: list[Result]


class Metrics(_Strict):
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: Extra = None


class FinalMetrics(_Strict):
    total_prompt_tokens: Tokens | None = None
    total_completion_tokens: Tokens | None = None
    total_cached_tokens: Tokens | None = None
    total_cost_usd: float | None = None
    total_steps: Tokens | None = None
    extra: Extra = None


class Step(_Strict):
    step_id: int
    source: Literal["system", "user", "agent"]
    message: Content
    timestamp: Annotated[str, AfterValidator(_timestamp)] | None = None
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    llm_call_count: Tokens | None = None
    is_copied_context: bool | None = None
    extra: Extra = None

    @model_validator(mode="after")
    def _fields_of_its_source(self) -> Self:
        reasoning = (self.reasoning_effort, self.reasoning_content)
        if self.source != "agent" and any(
            value is not None for value in (self.model_name, *reasoning, self.tool_calls, self.metrics)
        ):
            raise ValueError("only a step of the agent has a model, reasoning, tool calls and metrics")
        if self.llm_call_count == 0 and any(value is not None for value in (*reasoning, self.metrics)):
            raise ValueError("a step without a call to a model has no reasoning and no metrics")
        return self

    @model_validator(mode="after")
    def _results_answer_calls(self) -> Self:
        calls = {call.tool_call_id for call in self.tool_calls or ()}
        results = self.observation.results if self.observation else ()
        if any(result.source_call_id is not None and result.source_call_id not in calls for result in results):
            raise ValueError("a result answers a call of another step")
        return self


class Agent(_Strict):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: Extra = None


class Trajectory(_Strict):
    schema_version: Literal[VERSIONS]  # type: ignore[valid-type]
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent
    steps: Annotated[list[Step], Field(min_length=1)]
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    subagent_trajectories: list[Trajectory] | None = None
    extra: Extra = None

    @model_validator(mode="after")
    def _counts(self) -> Self:
        if [step.step_id for step in self.steps] != list(range(1, len(self.steps) + 1)):
            raise ValueError("the steps are not numbered 1, 2, 3 …")
        total = self.final_metrics.total_steps if self.final_metrics else None
        if total is not None and total != len(self.steps):
            raise ValueError("total_steps is not the number of steps")
        return self

    @model_validator(mode="after")
    def _references_lead_somewhere(self) -> Self:
        """From 1.7 on a session_id does not: several trajectories of one run may share it."""
        if self.schema_version == VERSION:
            for index, step in enumerate(self.steps):
                results = step.observation.results if step.observation else ()
                references = (each for result in results for each in result.subagent_trajectory_ref or ())
                if any(each.trajectory_id is None and each.trajectory_path is None for each in references):
                    raise ValueError(f"steps.{index} refers to a trajectory without its trajectory_id or path")
        return self

    @model_validator(mode="after")
    def _subagents_have_names(self) -> Self:
        names = [inner.trajectory_id for inner in self.subagent_trajectories or ()]
        if None in names or len(set(names)) != len(names):
            raise ValueError("embedded trajectories need a trajectory_id of their own")
        return self


class InvalidTrajectoryError(ValueError):
    """The text says where and what the first problem is; it quotes names of fields, never their values."""


def parse(content: bytes) -> dict[str, Any]:
    """The trajectory as JSON data, in its own version. Raises InvalidTrajectoryError."""
    try:
        document = json.loads(content.decode(), parse_constant=_no_constant)
        Trajectory.model_validate(document)
    except pydantic.ValidationError as error:
        raise InvalidTrajectoryError(_first(error)) from None
    except (ValueError, RecursionError) as error:
        raise InvalidTrajectoryError(f"is not JSON: {error}") from None
    assert isinstance(document, dict)  # noqa: S101 - the model takes nothing else
    return document


def _first(error: pydantic.ValidationError) -> str:
    """The first problem: where and what. A field's name is the agent's word, and as long as it likes."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = "".join(c if c.isprintable() else "?" for c in ".".join(str(part) for part in first["loc"]))
    problem = first["msg"].removeprefix("Value error, ")
    return f"{where[:MAX_PATH]}: {problem}" if where else problem


def _no_constant(token: str) -> NoReturn:
    raise ValueError(f"{token} is not JSON")
