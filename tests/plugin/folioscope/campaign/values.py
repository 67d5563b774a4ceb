# SPDX-License-Identifier: GPL-2.0-only
"""What a condition may name of a verdict: of a cell's result, and of the report in its store."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .. import locate
from .condition import STATES, UNKNOWN, AtLeast, Counts
from .errors import Refused
from .result import Result
from .told import steps

_SECONDS = 60


def rules() -> tuple[str, ...]:
    """The names of all rules that the command has."""
    try:
        words = [str(locate.command().path), "schema", "report"]
    except locate.CommandNotFound as error:
        raise Refused(str(error)) from error
    told = subprocess.run(words, check=True, capture_output=True, text=True, timeout=_SECONDS)
    return tuple(_names(json.loads(told.stdout)["$defs"]["RuleId"]))


def _names(form: Mapping[str, Any]) -> Iterator[str]:
    """The words that JSON's schema allows."""
    yield from form.get("enum", ())
    if "const" in form:
        yield form["const"]
    for each in form.get("oneOf", ()):
        yield from _names(each)


def values(result: Result, about: Mapping[str, Any], is_whole: bool, names: tuple[str, ...]) -> dict[str, Any]:
    """What a condition may name. Unless ``is_whole`` is said of it, a verdict of which a part was not judged gives the
    least that there is."""
    totals = about.get("totals", {})
    lacking = int(totals.get("not_judged", 0)) or int(result.outcome == "unjudged")
    is_least = bool(lacking) and not is_whole
    known = not is_least
    processes = list(_processes(about))
    folios = _sum(folio for process in processes for folio in _pages(process))
    chosen = _sum((int(order), count) for vma in _vmas(processes) for order, count in vma["orders"].items())
    coverage = result.figures.get("coverage")
    pages = sum(process["entries"]["pages"] for process in processes)
    errors = sum(count for name, count in result.rules.items() if not name.startswith("I-"))
    return {
        "status": result.status,
        "outcome": result.outcome,
        "not_judged": lacking,
        "errors": AtLeast(errors) if is_least else errors,
        "coverage": coverage if known and coverage is not None else UNKNOWN,
        "pages": pages if known and processes else UNKNOWN,
        "rules": Counts(result.rules, names, "rule", is_least, unknown=_known if is_whole else _unasked(about)),
        # A kernel whose folios are not known has none in its report.
        "order": Counts(folios, what="order", unknown=lambda _: is_least or not folios),
        # Orders are recorded by a kernel that does so.
        "chosen": Counts(chosen, what="order", unknown=lambda _: is_least or not chosen),
        "blocks": Counts(totals.get("blocks", {}), STATES, "state", unknown=lambda _: is_least or not processes),
        "steps": steps(dict(about)),
        "checkpoints": tuple(f"{step['workload']} {step['step']}" for step in about.get("steps", ())),
    }


def _processes(about: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for step in about.get("steps", ()):
        yield from step["processes"]


def _vmas(processes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for process in processes:
        yield from process["vmas"]


def _pages(process: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Pages that folios map, by their order."""
    for order, size in process["folios"].items():
        yield int(order), size // process["page_size"]


def _sum(found: Iterator[tuple[int, int]]) -> dict[int, int]:
    count: Counter[int] = Counter()
    for name, number in found:
        count[name] += number
    return dict(count)


def _known(_: object) -> bool:
    return False


def _unasked(about: Mapping[str, Any]) -> Callable[[object], bool]:
    """Whether a rule was in force at no checkpoint, though the kernel has what it is about: that it has no error says
    nothing then."""
    asked, known = set(), set()
    for step in about.get("steps", ()):
        basis = step.get("basis") or {}
        asked |= set(basis.get("in_force", ()))
        known |= {each["rule"] for each in basis.get("not_in_force", ()) if each["because"] == "not-there"}
    return lambda name: not str(name).startswith("I-") and name not in asked | known


def shown(result: Result, of: Mapping[str, Any]) -> dict[str, str]:
    """The verdict in lines that can be compared."""
    found = {"outcome": f"{result.outcome}, status {result.status}"}
    if "coverage" in result.figures:
        found["contiguous pages"] = f"{100 * result.figures['coverage']:.1f} %"
    for name in ("pages", "not_judged"):
        if of[name] is not UNKNOWN:
            found[name.replace("_", " ")] = str(of[name])
    found |= {f"rule {name}": str(count) for name, count in sorted(result.rules.items())}
    for title, name in (("pages of order", "order"), ("chosen order", "chosen"), ("blocks", "blocks")):
        found |= {f"{title} {key}": f"{count:g}" for key, count in sorted(of[name].found.items())}
    if "coverage" not in result.figures:
        found |= {name: f"{value:g}" for name, value in sorted(result.figures.items())}
    return found
