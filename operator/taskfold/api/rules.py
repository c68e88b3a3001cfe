"""CEL rules of the CRDs, as the models carry them.

A rule stands on the model or field that it speaks about, in `json_schema_extra`; the CRD generator hands it
on. Whatever a rule walks must have a bound, or the API server's cost estimate refuses the whole CRD.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic.config import JsonDict

MAX_PATH = 512
NOT_RELATIVE = (
    "paths are relative, for example tests/test.sh: no slash at either end, no empty part, no . or .. as a "
    "part, "
    f"at most {MAX_PATH} characters"
)


def rule(expression: str, message: str, *, at: str | None = None) -> JsonDict:
    """One rule: what must hold, what the user reads otherwise, and the path that the error names."""
    return {"rule": expression, "message": message, **({"fieldPath": at} if at else {})}


def rules(*given: JsonDict) -> JsonDict:
    """`json_schema_extra` of a model or field with these rules."""
    return {"x-kubernetes-validations": [*given]}


def exactly_one(names: Sequence[str]) -> JsonDict:
    """`json_schema_extra` of a model of which exactly one of the fields must be set."""
    given = ", ".join(f"has(self.{name})" for name in names)
    return rules(rule(f"[{given}].filter(given, given).size() == 1", f"set exactly one of {', '.join(names)}"))


def relative_path(path: str) -> str:
    """A CEL expression: `path` (an expression itself) is a relative path of plain parts."""
    parts = f"('/' + {path} + '/')"
    plain = " && ".join(f"!{parts}.contains('{bad}')" for bad in ("//", "/./", "/../"))
    return f"{path}.size() <= {MAX_PATH} && {plain}"
