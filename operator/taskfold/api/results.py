"""The results API: its group, its subresources, and which kept files are whose output.

TaskRuns and VerifierRuns have the subresources `files` and `log` in a group of their own, served by the operator and
reached through the API server: a custom resource's own group can have none but `status` and `scale`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum

GROUP = "results.taskfold.dev"
VERSION = "v1alpha1"
GROUP_VERSION = f"{GROUP}/{VERSION}"
RESOURCES = ("taskruns", "verifierruns")
KINDS = {"files": "KeptFiles", "log": "KeptLog"}


class Source(StrEnum):
    """Whose output."""

    AGENT = "agent"
    ENTRYPOINT = "entrypoint"
    VERIFIER = "verifier"


class Of(StrEnum):
    """What an archive was taken of. `sandbox`: the one pod of agent and verifier."""

    SANDBOX = "sandbox"
    AGENT = "agent"
    VERIFIER = "verifier"


_STEP = r"(?:steps/(?P<step>[^/]+)/)?"
_PATHS: dict[Source, re.Pattern[str]] = {
    Source.AGENT: re.compile(rf"logs/{_STEP}agent/(?:[^/]+/)*[^/]+\.(?:txt|log)"),
    Source.ENTRYPOINT: re.compile(rf"logs/{_STEP}(?:verifier/)?(?:verifier-)?entrypoint-stdout\.txt"),
    Source.VERIFIER: re.compile(rf"logs/{_STEP}verifier/test-stdout\.txt"),
}
_BELIEVED = {
    # An agent that has a pod of its own can write whatever it likes there, and it is no verifier's word.
    Source.AGENT: {Of.SANDBOX, Of.AGENT},
    Source.ENTRYPOINT: set(Of),
    Source.VERIFIER: {Of.SANDBOX, Of.VERIFIER},
}


def printed(name: str, of: str, sources: Collection[Source], step: str | None = None) -> bool:
    """Whether the file of this name, in an archive of `of`, is output of one of `sources`.

    `step`: in an archive of several steps only of this one.
    """
    for source in sources:
        if of in _BELIEVED[source] and (match := _PATHS[source].fullmatch(name)):
            return step is None or match["step"] in (None, step)
    return False
