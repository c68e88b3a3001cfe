"""Print the components of the reward as a JSON object; remarks go to stderr."""

import json
import sys
from pathlib import Path

CAPITALS = {"Austria": "Vienna", "Kenya": "Nairobi", "Peru": "Lima"}


def components() -> dict[str, float]:
    parts = {"valid": 0.0, "form": 0.0, "capitals": 0.0}
    try:
        countries = json.loads(Path("/app/countries.json").read_text())
    except (OSError, ValueError, RecursionError) as error:
        print(f"countries.json cannot be read: {error}", file=sys.stderr)
        return parts
    parts["valid"] = 0.25
    if not isinstance(countries, list) or not all(isinstance(country, dict) for country in countries):
        print("countries.json is not a list of objects", file=sys.stderr)
        return parts
    if [country.get("name") for country in countries] == list(CAPITALS):
        parts["form"] = 0.25
    found = [(country.get("name"), country.get("capital")) for country in countries]
    parts["capitals"] = 0.5 * sum(pair in found for pair in CAPITALS.items()) / len(CAPITALS)
    return parts


print(json.dumps(components()))
