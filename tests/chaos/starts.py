"""How often scripts of sandboxes have started, counted outside of them.

A sandbox reports over a network that the tests cut, so a report is tried until it is answered. Each start draws an
identity of its own and reports under it: a report that came twice is one start, two identities are two starts.
"""

from tests.conformance import counter

REPORT = """\
report() {{
  local id try
  id=$(</proc/sys/kernel/random/uuid)
  for try in {{1..60}}; do
    timeout 5 bash -c "exec 9<>/dev/tcp/{address}/{port} && printf 'GET /hit/{key}.$1.$id HTTP/1.0\\r\\n\\r\\n' >&9 &&
      read -r <&9" 2>/dev/null && return
    sleep 1
  done
  exit 99
}}
"""
"""A function for bash. It gives up after minutes and loudly, so that no start stays uncounted."""


class Starts:
    """What the counter has counted for the runs of one namespace."""

    def __init__(self, server: counter.Counter, namespace: str) -> None:
        self._server = server
        self._namespace = namespace

    def lines(self, run: str, step: str) -> str:
        """Lines for bash that report one start of this step."""
        key = f"{self._namespace}.{run}"
        return REPORT.format(address=self._server.address, port=counter.PORT, key=key) + f"report {step}\n"

    def of(self, run: str) -> dict[str, int]:
        """How many starts of each step of this run were reported."""
        steps = [key.partition(".")[0] for key in self._server.counts(f"{self._namespace}.{run}")]
        return {step: steps.count(step) for step in steps}
