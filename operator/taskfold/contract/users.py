"""Who runs what (seed "Users"; C30).

Guarantees: a user of task.toml is used as written: a number is a uid, a string is a name, also when it looks
like a number. In an image's USER, which is always a string, digits are a uid.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfold.contract import dialect
from taskfold.contract.task_toml import TaskToml
from taskfold.contract.values import MAX_UID


@dataclass(frozen=True)
class User:
    """By name or by uid, exactly one of the two.

    `group` likewise by name or `gid`, from an image's USER only.
    """

    name: str | None = None
    uid: int | None = None
    group: str | None = None
    gid: int | None = None


ROOT = User(uid=0)


def parse(value: int | str | None) -> User | None:
    """A user of task.toml; None when unset. `name:group` never gets here: `refusals` refuses it."""
    match value:
        case None:
            return None
        case int():
            return User(uid=value)
        case str():
            return User(name=value)


def of_image(user: str) -> User | None:
    """An image's USER: `app`, `1000`, `app:staff`, `1000:1000`; None when it names nobody: root."""
    who, _, group = user.partition(":")
    if not who:
        return None
    name, uid = (None, int(who)) if _is_id(who) else (who, None)
    if not group:
        return User(name, uid)
    return User(name, uid, None, int(group)) if _is_id(group) else User(name, uid, group)


def has_group(value: int | str | None) -> bool:
    """Whether a user of task.toml is written as `name:group`, which only Docker can run."""
    return isinstance(value, str) and ":" in value


def agent(config: TaskToml, recorded: str | None) -> User | None:
    """Who the agent runs as; None: the user that the pod's image starts with.

    `recorded`: USER of the image's configuration on record, None when there is no record.
    """
    return parse(config.agent.user) or of_image(recorded or "")


def verifier(config: TaskToml, recorded: str | None, rules: dialect.Rules = dialect.GYM) -> User | None:
    """Who test.sh runs as; None: the user that the pod's image starts with. Never [agent].user.

    [verifier].user, else the image's user. With no record of that user and [agent].user set, root, if the dialect
    has it so.
    """
    if config.verifier.user is not None:
        return parse(config.verifier.user)
    if recorded is not None:
        return of_image(recorded)
    return ROOT if rules.verifier_is_root and config.agent.user is not None else None


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_UID
