"""Secret values do not leave the sandbox in words: not in a status, an Event or a log line, not in stored logs (C34).

Guarantees: every exact value of 8 bytes or more of every Secret that a run names is replaced; in a piece of output that
was cut at its front, also the end of a value that stands there. Rewards and artifacts are never altered.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from taskfold.api.taskrun import TaskRun
from taskfold.api.verifierrun import VerifierRun
from taskfold.engine.sources import Sources
from taskfold.protocol.phase import PhaseResult, RunResult

LEAST_BYTES = 8
"""C34: shorter values would be found in harmless text."""
LEAST_CUT = 4
MARK = b"[secret]"


async def values(run: TaskRun, sources: Sources, verifier: VerifierRun | None = None) -> tuple[bytes, ...]:
    """The values to hide, the longest first. A Secret that is gone by now cannot tell its own. `verifier`: one that has
    words of its own, as it has that grades a run again.
    """
    spec, script = run.spec, run.spec.agent.script
    own = [verifier.spec] if verifier is not None else []
    env_from = [*spec.environment_from, *(script.env_from if script is not None else ())]
    env = [*(script.env if script is not None else ()), *(spec.verifier.env if spec.verifier is not None else ())]
    env_from += [source for each in own for source in each.environment_from]
    env += [entry for each in own for entry in each.env]
    names = [source.secret_ref.name for source in env_from if source.secret_ref is not None]
    names += [source.name for source in spec.secrets_from]
    names += [source.name for each in own for source in each.secrets_from]
    keyed = (entry.value_from.secret_key_ref for entry in env if entry.value_from is not None)
    names += [selector.name for selector in keyed if selector is not None]
    found = await sources.secret_values(run.metadata.namespace, dict.fromkeys(names))
    return tuple(sorted({value for value in found if len(value) >= LEAST_BYTES}, key=len, reverse=True))


def spelled(secrets: Sequence[bytes]) -> tuple[bytes, ...]:
    """The values, and how they stand within a JSON document, as a transcript is one; the longest first."""
    texts = [value.decode() for value in secrets if _is_text(value)]
    written = (json.dumps(text, ensure_ascii=ascii_)[1:-1].encode() for text in texts for ascii_ in (False, True))
    return tuple(sorted({*secrets, *written}, key=len, reverse=True))


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def hidden(result: PhaseResult, secrets: Sequence[bytes]) -> PhaseResult:
    """The result with its pieces of output made safe to quote. Files are as they are: rewards among them."""
    if not secrets:
        return result
    beside = tuple(replace(end, run=_hidden(end.run, secrets)) for end in result.background)
    return replace(result, runs=tuple(_hidden(run, secrets) for run in result.runs), background=beside)


def _hidden(run: RunResult, secrets: Sequence[bytes]) -> RunResult:
    return replace(run, inline=scrubbed(run.inline, secrets, cut=run.output_bytes > len(run.inline)))


def scrubbed(text: bytes, secrets: Iterable[bytes], *, cut: bool) -> bytes:
    """`text` without the values; `cut`: something stood before it, which may have been the start of one.

    All are looked for in the text as it came: one that overlaps another must not hide the rest of it.
    """
    found = sorted(span for secret in secrets for span in _spans(text, secret, cut=cut))
    pieces, done = [], 0
    for start, end in found:
        if start >= done:
            pieces += [text[done:start], MARK]
        done = max(done, end)
    return b"".join((*pieces, text[done:]))


def _spans(text: bytes, secret: bytes, *, cut: bool) -> Iterator[tuple[int, int]]:
    """Where the value stands, from and to; with `cut` its longest end that the text begins with too."""
    front = memoryview(text)
    lengths = range(min(len(secret) - 1, len(text)), LEAST_CUT - 1, -1) if cut else ()
    length = next((length for length in lengths if secret.endswith(front[:length])), 0)
    if length:
        yield 0, length
    start = text.find(secret)
    while start >= 0:
        yield start, start + len(secret)
        start = text.find(secret, start + 1)
