"""Memory that is free goes back to the system."""

import subprocess
import sys

PROGRAM = """
import sys, threading
from pathlib import Path
from taskfold.effects import heap
if sys.argv[1] == "small":
    assert heap.keep_small()
bytes(16 << 20)  # freed at once: from here on glibc keeps blocks of this size
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
before, kept = resident(), []
def parts():
    held = []
    for _ in range(40):
        held.append(b"x" * (2 << 20))
        kept.append(b"y" * 2000)  # what stays lies between
    held.clear()
threads = [threading.Thread(target=parts) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(resident() - before)
"""


def left(how: str) -> int:
    """Bytes that stay resident after 320 MiB were free again."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(ran.stdout)


def test_what_many_threads_had_is_given_back() -> None:
    assert left("small") < 16 << 20
    assert left("as it is") > 64 << 20, "else there is no need for it"
