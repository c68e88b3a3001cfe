"""`spec.agent` and `spec.finish`: who works, and how somebody outside says that the work is done."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, WithJsonSchema

from .common import ConfigMapKeySelector, EnvFromList, EnvList, Model, Seconds
from .rules import exactly_one, rule, rules

MAX_SCRIPT = 131_072
MAX_RESPONSE = 131_072
MAX_ARGS = 64


class OracleAgent(Model):
    """The task's own solution plays the agent: solution/solve.sh, else solution/answer.md."""


class NopAgent(Model):
    """An agent that does nothing: what the untouched sandbox is worth."""


class ExternalAgent(Model):
    """Nobody inside: somebody outside works in the pod by exec and then sets `spec.finish`."""


User = Annotated[
    int | str,
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": 255,
            **rules(rule("type(self) == string ? self != '' : self >= 0", "a uid is 0 or more, a name is not empty")),
        }
    ),
]


class ScriptAgent(Model):
    """A shell script plays the agent."""

    install: str | None = Field(
        default=None,
        max_length=MAX_SCRIPT,
        description=(
            "Shell script that runs as root before the agent, for example to install its program. Its "
            "failure is not the "
            "agent's: the run fails in stage agent. Unset: nothing runs."
        ),
    )
    run: str = Field(
        min_length=1,
        max_length=MAX_SCRIPT,
        description="Shell script that does the work, run by bash in the task's working directory.",
    )
    env: EnvList = Field(default_factory=list, description="Variables for `run` and `install`. At most 256.")
    env_from: EnvFromList = Field(
        default_factory=list,
        description="ConfigMaps and Secrets whose keys become variables for `run` and `install`.",
    )
    user: User | None = Field(
        default=None,
        description=(
            "User that `run` works as: a number is a uid, a text is a name in the image. Unset: the task's agent user."
        ),
    )
    timeout_seconds: Seconds | None = Field(
        default=None,
        description=(
            "Limit for `run`, in seconds, fractions allowed. Unset: the task's [agent].timeout_sec, else 28,800."
        ),
    )


class ProfileAgent(Model):
    """A known agent program, installed and driven by a profile of the operator. Not supported yet."""

    name: str = Field(
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="Name of the profile, as the operator lists it.",
    )
    model: str | None = Field(
        default=None, max_length=255, description="Model that the agent uses. Unset: the profile's."
    )
    env: EnvList = Field(default_factory=list, description="Variables for the agent's program. At most 256.")
    env_from: EnvFromList = Field(
        default_factory=list,
        description="ConfigMaps and Secrets whose keys become variables for the agent's program.",
    )
    args: list[Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=list,
        max_length=MAX_ARGS,
        description="Further arguments for the agent's program, at most 64.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


_AGENTS = ("oracle", "nop", "script", "profile", "external")


class Agent(Model):
    """Who works on the task: exactly one of the variants."""

    model_config = ConfigDict(json_schema_extra=exactly_one(_AGENTS))

    oracle: OracleAgent | None = Field(
        default=None, description="Runs the task's own solution. Write {}. Shows that a task can be solved."
    )
    nop: NopAgent | None = Field(
        default=None, description="Does nothing. Write {}. Shows that a task is not solved by itself."
    )
    script: ScriptAgent | None = Field(default=None, description="Runs a shell script of yours in the sandbox.")
    profile: ProfileAgent | None = Field(default=None, description="Runs a known agent program. Not supported yet.")
    external: ExternalAgent | None = Field(
        default=None,
        description="Waits for somebody outside who works in the pod and sets spec.finish. Write {}.",
    )

    @property
    def name(self) -> str:
        """The variant in use, as status.agent.name shows it; of a profile its own name."""
        if self.profile is not None:
            return self.profile.name
        return next((name for name in _AGENTS if getattr(self, name) is not None), "")


class FinishOutcome(StrEnum):
    """What somebody outside says about an external agent's work."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class ResponseSource(Model):
    """Where the final response is read from, when it is not written in the object."""

    config_map_key_ref: ConfigMapKeySelector = Field(description="Key of a ConfigMap that holds the response.")


class Finish(Model):
    """The end of an external agent's work. Set once; it ends the agent phase and starts verification."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("!(has(self.response) && has(self.responseFrom))", "set response or responseFrom, not both")
        )
    )

    outcome: FinishOutcome = Field(
        description="How the agent's work ended: Succeeded or Failed. Verification follows in both cases."
    )
    response: str | None = Field(
        default=None,
        max_length=MAX_RESPONSE,
        description=("The agent's final response, as text or as a JSON response object. At most 131,072 characters."),
    )
    response_from: ResponseSource | None = Field(
        default=None, description="Reads the final response from a ConfigMap instead of `response`."
    )
