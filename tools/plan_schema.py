"""Writes the JSON Schema of plan files where it is published: in docs/ and in the package."""

from __future__ import annotations

import json
from pathlib import Path

from hetero.plan.schema import json_schema

ROOT = Path(__file__).parents[1]
PLACES = (ROOT / "docs" / "plan.schema.json", ROOT / "src" / "hetero" / "plan" / "plan.schema.json")


def text() -> str:
    return json.dumps(json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    for place in PLACES:
        place.write_text(text())
        print(place)
