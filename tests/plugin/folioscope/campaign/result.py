# SPDX-License-Identifier: GPL-2.0-only
"""The result of a cell, as ``result.json`` has it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

FORMAT = "folioscope-cell"
VERSION = 1
#: No error was found; errors were found; something could not be judged.
OUTCOMES = ("pass", "fail", "unjudged")


def _object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties, "additionalProperties": False}


_COUNTS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
#: Of ``result.json``.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "The result of a cell of a campaign of folioscope",
    **_object(
        ("format", "version", "key", "cell", "outcome", "status", "seconds", "summary", "rules", "figures", "files"),
        format={"const": FORMAT},
        version={"const": VERSION},
        key={"type": "string", "description": "of all content that the cell is made of"},
        cell={"type": "object", "description": "the values of the axes, and the keys of what runs the cell"},
        outcome={"enum": list(OUTCOMES)},
        status={"type": "integer", "description": "exit status of the test"},
        seconds={"type": "number", "minimum": 0},
        summary={"type": "string", "description": "one line"},
        rules={**_COUNTS, "description": "how many findings each rule has"},
        figures={"type": "object", "additionalProperties": {"type": "number"}},
        files={
            "type": "object",
            "description": "the files of the cell by name: their names in objects/ of the store",
            "additionalProperties": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        },
        host={"type": "string", "description": "where the cell ran"},
    ),
}


@dataclass(frozen=True)
class Result:
    """What came of a cell."""

    key: str
    cell: dict[str, Any]
    outcome: str
    status: int
    seconds: float
    summary: str
    rules: dict[str, int] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    host: str = ""

    def as_json(self) -> dict[str, Any]:
        """As values of JSON."""
        return {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}

    @classmethod
    def of_json(cls, found: dict[str, Any]) -> Result:
        """The same of values of JSON. Raises ``ValueError`` or ``KeyError``."""
        if found["format"] != FORMAT or found["version"] != VERSION:
            raise ValueError(f"a result of format {found['format']}, version {found['version']}")
        if found["outcome"] not in OUTCOMES:
            raise ValueError(f"an outcome {found['outcome']}")
        return cls(**{each.name: found[each.name] for each in dataclasses.fields(cls)})
