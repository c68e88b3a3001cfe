"""What the API server answers when it does not do what was asked: Status objects, as the real one words them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from taskfold.effects import transport
from taskfold.effects.client import Resource

Json = dict[str, Any]


@dataclass(frozen=True)
class Cause:
    """One entry of `details.causes`."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def wire(self) -> Json:
        return {"reason": self.reason, "message": self.message, "field": self.field}


@dataclass
class Refusal(Exception):  # noqa: N818  (it is an answer, not a fault)
    """Ends the handling of a request with this answer."""

    code: int
    reason: str
    message: str
    details: Json = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def status(self) -> Json:
        """The Status object."""
        found: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        found["message"] = self.message
        if self.reason:
            found["reason"] = self.reason
        if self.details:
            found["details"] = self.details
        return {**found, "code": self.code}

    def answer(self) -> transport.Answer:
        headers = {"Content-Type": "application/json", **self.headers}
        return transport.Answer(self.code, json.dumps(self.status()).encode(), HTTPStatus(self.code).phrase, headers)


def about(resource: Resource, name: str, **more: Any) -> Json:
    """`details` that name an object."""
    group = {"group": resource.group} if resource.group else {}
    return {"name": name, **group, "kind": resource.plural, **more}


def qualified(resource: Resource, word: str = "") -> str:
    """`taskruns.taskfold.dev`, or with `word` instead of the plural."""
    return ".".join(part for part in (word or resource.plural, resource.group) if part)


def not_found(resource: Resource, name: str) -> Refusal:
    text = f'{qualified(resource)} "{name}" not found'
    return Refusal(404, "NotFound", text, about(resource, name))


def already_exists(resource: Resource, name: str, *, deleting: bool = False) -> Refusal:
    text = f'{qualified(resource)} "{name}" already exists'
    text = f"object is being deleted: {text}" if deleting else text
    return Refusal(409, "AlreadyExists", text, about(resource, name))


def modified(resource: Resource, name: str) -> Refusal:
    """The resourceVersion of the request is not the object's."""
    text = "the object has been modified; please apply your changes to the latest version and try again"
    text = f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {text}'
    return Refusal(409, "Conflict", text, about(resource, name))


def precondition(resource: Resource, name: str, word: str, asked: str, found: str) -> Refusal:
    """A DeleteOptions precondition. `word`: UID or ResourceVersion."""
    end = (
        "The object might have been deleted and then recreated"
        if word == "UID"
        else "The object might have been modified"
    )
    text = f"the {word} in the precondition ({asked}) does not match the {word} in record ({found}). {end}"
    text = f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {text}'
    return Refusal(409, "Conflict", text, about(resource, name))


def invalid(resource: Resource, kind: str, name: str, causes: Sequence[Cause]) -> Refusal:
    listed = ", ".join(map(str, causes))
    listed = f"[{listed}]" if len(causes) > 1 else listed
    text = f'{qualified(resource, kind)} "{name}" is invalid: {listed}'
    details = {**about(resource, name), "kind": kind, "causes": [cause.wire() for cause in causes]}
    return Refusal(422, "Invalid", text, details)


def forbidden(resource: Resource, name: str, why: str, **more: Any) -> Refusal:
    return Refusal(
        403, "Forbidden", f'{qualified(resource)} "{name}" is forbidden: {why}', about(resource, name, **more)
    )


def terminating(resource: Resource, namespace: str, name: str) -> Refusal:
    """Creation in a namespace that ends."""
    text = f"namespace {namespace} is being terminated"
    causes = [{"reason": "NamespaceTerminating", "message": text, "field": "metadata.namespace"}]
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(resource, name, why, causes=causes)


def quota(resource: Resource, name: str, quota_name: str, used: int, limit: int) -> Refusal:
    """One object too many for a ResourceQuota that counts them."""
    word = resource.plural
    why = f"exceeded quota: {quota_name}, requested: {word}=1, used: {word}={used}, limited: {word}={limit}"
    return forbidden(resource, name, why)


def too_many(retry_after: int = 1) -> Refusal:
    """429 of priority and fairness: nothing was done."""
    text = "Too many requests, please try again later."
    details = {"retryAfterSeconds": retry_after}
    return Refusal(429, "TooManyRequests", text, details, {"Retry-After": str(retry_after)})


def unauthorized() -> Refusal:
    """401: a token that has expired."""
    return Refusal(401, "Unauthorized", "Unauthorized")


def internal(text: str) -> Refusal:
    return Refusal(500, "InternalError", f"Internal error occurred: {text}")


def bad_request(text: str) -> Refusal:
    return Refusal(400, "BadRequest", text)


def expired_watch(asked: int, oldest: int) -> Refusal:
    return Refusal(410, "Expired", f"too old resource version: {asked} ({oldest})")


@dataclass
class Expired(Refusal):
    """410 for a list; with the token, the rest of it can be had as of now."""

    token: str = ""

    def status(self) -> Json:
        return {**super().status(), "metadata": {"continue": self.token} if self.token else {}}


def expired_list(token: str = "") -> Refusal:
    text = "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    text += (
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    )
    return Expired(410, "Expired", text + "results.", token=token)


def future(asked: int, head: int) -> Refusal:
    """A version that does not exist yet."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    text = f"Timeout: Too large resource version: {asked}, current: {head}"
    return Refusal(504, "Timeout", text, {"causes": causes, "retryAfterSeconds": 1}, {"Retry-After": "1"})
