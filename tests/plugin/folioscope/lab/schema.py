# SPDX-License-Identifier: GPL-2.0-only
"""The form of a lab's results, which are JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .bench import COUNTED
from .statistics import LEAST_RUNS

FORMAT = "folioscope-lab"
#: 2: loads, what the kernel did beside its instructions, and the host's time. 3: where the results come from.
VERSION = 3

_COUNTS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
_RUNS: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_SENTENCE: dict[str, Any] = {"type": ["string", "null"]}


def _object(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


#: Of a lab's JSON.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "What folioscope's laboratory has measured",
    **_object(
        ("format", "version", "key", "measured", "runs", "experiments"),
        format={"const": FORMAT},
        version={"const": VERSION},
        key={"type": "string", "description": "what was measured: kernel, loads, command, runs"},
        measured={
            "description": "where the results come from",
            **_object(
                ("commit", "command", "date", "machine"),
                commit={**_SENTENCE, "description": "of the checkout, with a plus where files differ; null: none"},
                command={"type": "string"},
                date={"type": "string", "description": "UTC"},
                machine={"type": "string"},
            ),
        },
        runs={"type": "integer", "minimum": LEAST_RUNS},
        experiments={
            "type": "array",
            "items": _object(
                ("name", "unit", "units", "settings"),
                name={"type": "string"},
                unit={"enum": ["page", "block", "operation"]},
                units={"type": "integer", "minimum": 1, "description": "how many of them a run goes through"},
                settings={
                    "type": "array",
                    "items": _object(
                        ("name", "missing", "lost", "load", "intervals", "orders", "blocks"),
                        name={"type": "string"},
                        guest={"type": "string", "description": "the kernel's release"},
                        missing={**_SENTENCE, "description": "why this kernel was not measured under it"},
                        lost={**_SENTENCE, "description": "how the guest was lost; what is there was measured before"},
                        load=_object(
                            ("words", "cpus", "memory_mib", "cpu"),
                            words={"type": "array", "items": {"type": "string"}},
                            cpus={"type": "integer"},
                            memory_mib={"type": "integer"},
                            cpu={"type": "string", "description": "QEMU's model"},
                        ),
                        seconds=_object(
                            ("all", "cpu"),
                            all={"type": "number", "description": "of the host's, from boot to end"},
                            cpu={"type": "number", "description": "of its CPUs, which others take nothing of"},
                        ),
                        intervals={
                            "type": "object",
                            "description": "by run: instructions, those of some kinds, nanoseconds of the host's",
                            "additionalProperties": _object(COUNTED, **dict.fromkeys(COUNTED, _RUNS)),
                        },
                        orders={**_COUNTS, "description": "folios that faults brought in one run, by order"},
                        memory={
                            "description": "what the load mapped when it was stopped, by the snapshot; null: not asked",
                            "type": ["object", "null"],
                            "required": ["mapped", "contiguous", "folios", "taken"],
                            "properties": {
                                "mapped": {"type": "integer", "description": "bytes"},
                                "contiguous": {"type": "integer", "description": "bytes of them"},
                                "folios": {**_COUNTS, "description": "bytes by folio order"},
                                "taken": {"type": "integer", "description": "free pages, fewer than before"},
                            },
                        },
                        faults={
                            "type": "array",
                            "description": "what faults brought, by path, run by run; order null: they ended without",
                            "items": {
                                "type": "array",
                                "items": _object(
                                    ("path", "order", "why", "times"),
                                    path={"type": "string"},
                                    order={"type": ["integer", "null"]},
                                    why={"type": "string"},
                                    times={"type": "integer"},
                                ),
                            },
                        },
                        water={
                            "type": "array",
                            "description": "bytes that were not free, or not available, while the load ran, run by run",
                            "items": _object(
                                ("low", "high", "low_unavailable", "high_unavailable", "looks"),
                                low={"type": "integer"},
                                high={"type": "integer"},
                                low_unavailable={"type": "integer"},
                                high_unavailable={"type": "integer"},
                                looks={"type": "integer", "description": "so often it was looked at"},
                            ),
                        },
                        steps={
                            "description": "what functions of the kernel did to page tables; null: not asked",
                            "type": ["object", "null"],
                            "required": ["functions", "findings", "not_judged"],
                            "properties": {
                                "functions": {
                                    "type": "object",
                                    "additionalProperties": _object(
                                        ("stores", "tlbis", "dsbs"),
                                        **dict.fromkeys(("stores", "tlbis", "dsbs"), {"type": "integer"}),
                                    ),
                                },
                                "findings": {"type": "integer"},
                                "not_judged": {"type": "array", "items": {"type": "string"}},
                            },
                        },
                        locks={
                            "type": "object",
                            "description": "calls of functions that take locks, by interval and function, run by run",
                            "additionalProperties": {"type": "object", "additionalProperties": _RUNS},
                        },
                        looks={"type": "array", "description": "as memory, run by run, each of another seed"},
                        frames={
                            "type": "array",
                            "description": "which page frames were allocated, run by run",
                            "items": _object(
                                ("allocations", "frames", "half", "most"),
                                allocations={"type": "integer"},
                                frames={"type": "integer", "description": "that served"},
                                half={"type": "integer", "description": "those used most that made half of it"},
                                most={
                                    "type": "array",
                                    "items": _object(
                                        ("pfn", "times"), pfn={"type": "integer"}, times={"type": "integer"}
                                    ),
                                },
                            ),
                        },
                        entries={
                            "type": "object",
                            "description": "what the kernel was entered for, run by run: how often, what was executed",
                            "additionalProperties": _object(("times", "instructions"), times=_RUNS, instructions=_RUNS),
                        },
                        blocks={**_COUNTS, "description": "what became of contiguous blocks in one run"},
                    ),
                },
            ),
        },
    ),
}


#: JSON's types, as Python reads them.
_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def check(value: Any, form: dict[str, Any] = SCHEMA, where: str = "results") -> None:
    """Whether all is there that others read: types, members, and what lists and maps have. Raises ``ValueError``."""
    types = form.get("type", [])
    wanted = [types] if isinstance(types, str) else types
    if wanted and not any(isinstance(value, _TYPES[each]) for each in wanted):
        raise ValueError(f"{where}: {type(value).__name__} for {' or '.join(wanted)}")
    if isinstance(value, dict):
        for name in form.get("required", ()):
            if name not in value:
                raise ValueError(f"{where} without {name!r}")
        for name, each in value.items():
            known = form.get("properties", {}).get(name) or form.get("additionalProperties")
            if isinstance(known, dict):
                check(each, known, f"{where}, {name}")
    if isinstance(value, list) and "items" in form:
        for at, each in enumerate(value):
            check(each, form["items"], f"{where}[{at}]")
