"""How a program in a sandbox ended, in words."""

from taskfold.api.agent import ScriptAgent
from taskfold.protocol.phase import RunResult

ARGUMENT_BYTES = 131_072
"""What Linux takes as one argument of a program, the NUL at its end included."""

TAIL_CHARACTERS = 600
"""How much of a program's output a message quotes."""


def oversized(script: ScriptAgent | None) -> str | None:
    """Which text of a script agent no program could be started with: the schema counts characters, the kernel bytes."""
    texts = {"spec.agent.script.install": script.install, "spec.agent.script.run": script.run} if script else {}
    for field, text in texts.items():
        size = len((text or "").encode())
        if size >= ARGUMENT_BYTES:
            return (
                f"{field} has {size:,} bytes, and a shell takes a script of at most {ARGUMENT_BYTES - 1:,}. Put the "
                "rest into the task's image, or have the script read it from somewhere."
            )
    return None


def ended_how(run: RunResult) -> str:
    """`agent ended with return code 3: …`, with the end of what it printed."""
    if run.start_error is not None:
        return f"{run.name}: {run.start_error}"
    how = f"ended with return code {run.return_code}"
    if run.timed_out:
        how = "was killed at its limit"
    elif run.signal is not None:
        how = f"was ended by signal {run.signal}"
    tail = run.inline.decode("utf-8", "replace")[-TAIL_CHARACTERS:].strip()
    return f"{run.name} {how}" + (f": {tail}" if tail else "")


def oom_notes(run: RunResult) -> list[str]:
    """With cgroup v1 a process may die alone of the memory limit: noted, not masked by itself (C13)."""
    if run.oom_kills == 0:
        return []
    return [f"the memory limit of the sandbox killed {run.oom_kills} process(es) while {run.name} ran"]
