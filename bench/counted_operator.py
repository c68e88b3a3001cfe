"""`taskfold operator` with its client's counters written to a file on SIGUSR1. For benchmarks only.

python -m bench.counted_operator COUNTERS operator --config …
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any

from taskfold.cli.main import main
from taskfold.effects import client as api


def count_into(path: Path) -> None:
    """Every client made from here on is counted; the signal writes the sum."""
    made: list[api.Client] = []

    class Counted(api.Client):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    def write(*_: object) -> None:
        document: dict[str, Any] = {"calls": {}, "sent": 0, "received": 0}
        for client in made:
            for verb, count in client.counters.calls.items():
                document["calls"][verb] = document["calls"].get(verb, 0) + count
            document["sent"] += client.counters.bytes_sent
            document["received"] += client.counters.bytes_received
        new = path.with_suffix(".new")
        new.write_text(json.dumps(document))
        new.rename(path)

    api.Client = Counted  # type: ignore[misc]
    signal.signal(signal.SIGUSR1, write)


if __name__ == "__main__":
    counters = Path(sys.argv.pop(1))
    count_into(counters)
    main()
