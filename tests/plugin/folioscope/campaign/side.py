# SPDX-License-Identifier: GPL-2.0-only
"""Two maps of page tables side by side: of the process and the checkpoint at which two verdicts differ most."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from .told import findings

#: Of one side, of characters that are pages in one line, and of lines of a VMA that are shown.
_SIDE, _PAGES, _LINES = 48, 32, 12
_MARKS = {"folded": ("[", "]"), "contiguous-block": ("[", "]"), "eligible": ("(", ")"), "broken": ("!", "!")}
Place = tuple[str, str]


def _places(about: Mapping[str, Any]) -> dict[Place, dict[str, Any]]:
    """The processes of a report by checkpoint and name; the first one of a name."""
    found: dict[Place, dict[str, Any]] = {}
    for step in about.get("steps", ()):
        for process in step["processes"]:
            found.setdefault((f"{step['workload']} {step['step']}", process["process"]["name"]), process)
    return found


def place(before: Mapping[str, Any], after: Mapping[str, Any]) -> Place | None:
    """Where the maps differ: at the first error that only one has, else where most pages are contiguous in one only,
    else at the first block."""
    old, new = _places(before), _places(after)
    both = [each for each in new if each in old]
    errors = [{(each["rule"], each["step"]) for each in findings(dict(report))} for report in (before, after)]
    steps = {step for _, step in errors[0] ^ errors[1]}
    for each in both:
        if each[0] in steps and _errors(old[each]) != _errors(new[each]):
            return each

    def differs(each: Place) -> int:
        return abs(_contiguous(old[each]) - _contiguous(new[each]))

    most = max(both, key=differs, default=None)
    if most and differs(most):
        return most
    return next((each for each in both if _blocks(old[each]) != _blocks(new[each])), None)


def _errors(process: Mapping[str, Any]) -> list[str]:
    return sorted(each["rule"] for each in process["findings"] if each["severity"] == "error")


def _contiguous(process: Mapping[str, Any]) -> int:
    return sum(int(vma["contiguous"]) for vma in process["vmas"])


def _blocks(process: Mapping[str, Any]) -> list[Any]:
    """Without addresses, which chance may choose."""
    return [
        (_title(vma), [(row["pages"], row["state"], row["blocks"]) for row in _rows(vma)]) for vma in process["vmas"]
    ]


def _rows(vma: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of blocks; those that look the same and differ in their reasons as one."""
    found: list[dict[str, Any]] = []
    for row in vma["rows"]:
        if found and (found[-1]["pages"], found[-1]["state"]) == (row["pages"], row["state"]):
            found[-1] = {**found[-1], "blocks": found[-1]["blocks"] + row["blocks"]}
        else:
            found.append(row)
    return found


def _title(vma: Mapping[str, Any]) -> str:
    return f"{vma['permissions']} {vma['name']}".strip()


def _lines(vma: Mapping[str, Any]) -> Iterator[str]:
    """A line for each row of blocks, as the command's map has it."""
    for row in _rows(vma):
        first, last = _MARKS.get(row["state"], (" ", " "))
        chunks = [row["pages"][at : at + _PAGES] for at in range(0, len(row["pages"]), _PAGES)] or [""]
        for at, chunk in enumerate(chunks):
            head = f"{int(row['va'], 16):012x} {first}" if not at else " " * 14
            tail = (last + (f" x{row['blocks']}" if row["blocks"] > 1 else "")) if at + 1 == len(chunks) else ""
            yield f"{head}{chunk}{tail}".rstrip()


def _facts(vma: Mapping[str, Any] | None) -> str:
    if vma is None:
        return "is not there"
    folios = " ".join(f"{order} x{count}" for order, count in sorted(vma["orders"].items(), reverse=True))
    return f"{vma['mapped'] >> 10} KiB, {vma['contiguous'] >> 10} contiguous" + (f", orders {folios}" if folios else "")


def lines(before: Mapping[str, Any], after: Mapping[str, Any], at: Place) -> list[str]:
    """Both maps of a process at a checkpoint, but for VMAs that are equal in both."""
    old, new = (_places(each)[at]["vmas"] for each in (before, after))
    found = []
    for left, right in _pairs(old, new):
        if left and right and _blocks({"vmas": [left]}) == _blocks({"vmas": [right]}):
            continue
        found.append(_title(left or right or {}))
        sides = [[_facts(each), *(_lines(each) if each else ())] for each in (left, right)]
        both = list(zip_longest(*sides, fillvalue=""))
        for one, other in both[:_LINES]:
            found.append(f" {one[: _SIDE - 1]:{_SIDE - 1}} | {other[: _SIDE - 1]}".rstrip())
        if len(both) > _LINES:
            found.append(f" … and {len(both) - _LINES} more lines, see the reports")
    return found


def _pairs(old: Sequence[Any], new: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """The VMAs of both, by their order and their names."""
    matcher = difflib.SequenceMatcher(None, [_title(vma) for vma in old], [_title(vma) for vma in new], autojunk=False)
    for _, first, last, other, end in matcher.get_opcodes():
        yield from zip_longest(old[first:last], new[other:end])
