"""Exit 0 when /app/totals.csv holds the right rows in the right order."""

import csv
import sys
from pathlib import Path

EXPECTED = [["item", "total"], ["paper", "1497"], ["pen", "840"], ["ruler", "500"], ["eraser", "400"]]

try:
    rows = list(csv.reader(Path("/app/totals.csv").read_text().splitlines()))
except (OSError, ValueError, csv.Error) as error:
    sys.exit(f"totals.csv cannot be read: {error}")
if rows != EXPECTED:
    sys.exit(f"totals.csv holds {rows}, wanted {EXPECTED}")
print("totals.csv is right")
