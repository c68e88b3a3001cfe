"""What the kernel does when a container asks for more memory than its limit.

`V1`: one process dies, nobody else notices but by the count. `V2`: the kubelet has set `memory.oom.group`, so the whole
container goes. In both, the runtime says `OOMKilled` about a container's end after any such event, whatever its exit
code: seen on a real node of version 1, exit code 0 included.
"""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tests.world.sandbox import Container

KILLED = 128 + 9


class Cgroup(Protocol):
    """A node's kind of control group. The caller dies by SIGKILL in any case."""

    version: int

    def exhausted(self, box: "Container") -> None: ...


class V1:
    """The victim alone: the program that asked."""

    version = 1

    def exhausted(self, box: "Container") -> None:
        box.oom_kills += 1


class V2:
    """Everything in the container, PID 1 included."""

    version = 2

    def exhausted(self, box: "Container") -> None:
        box.oom_kills += 1 + len(box.tasks)
        box.end(KILLED)


def of_version(version: int) -> Cgroup:
    return V1() if version == 1 else V2()
