# SPDX-License-Identifier: GPL-2.0-only
"""What a bisect came to: as JSON, and as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from . import side
from .asked import Answer, Asker
from .progress import span
from .result import _object
from .told import finding, report, steps
from .values import shown, values

if TYPE_CHECKING:
    from .bisect import Search

FORMAT = "folioscope-bisect"
VERSION = 1
_COLUMNS = 100
_INDENTED: dict[str, Any] = {
    "initial_indent": "  ",
    "subsequent_indent": "    ",
    "break_long_words": False,
    "break_on_hyphens": False,
}
_STRING = {"type": "string"}
_COMMIT = _object(("commit", "subject"), commit=_STRING, subject=_STRING)
_LINES = {"type": "array", "items": _STRING}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "What folioscope bisect came to",
    **_object(
        (
            "format",
            "version",
            "about",
            "first",
            "before",
            "asked",
            "steps",
            "builds",
            "ran",
            "verdicts",
            "findings",
            "map",
            "log",
        ),
        format={"const": FORMAT},
        version={"const": VERSION},
        about={"type": "object", "description": "the condition, granule, CPU, time, and the words of the command"},
        first={
            "type": "array",
            "minItems": 1,
            "items": _COMMIT,
            "description": "the first commit with BAD's answer; several where some gave no answer",
        },
        before={**_COMMIT, "description": "the commit that its verdict is compared with"},
        asked={
            "type": "array",
            "description": "GOOD, BAD, then the steps of git bisect",
            "items": _object(
                ("commit", "subject", "answer", "said", "why", "cells", "kernel", "builds", "seconds"),
                commit=_STRING,
                subject=_STRING,
                answer={"type": ["boolean", "null"], "description": "whether the condition holds; null: no answer"},
                said={
                    "type": "array",
                    "items": {"type": ["boolean", "null"]},
                    "description": "the answer of each time that it was asked",
                },
                why={"type": "string", "description": "why there is no answer"},
                cells={**_LINES, "description": "the keys of its cells"},
                kernel=_STRING,
                builds={"type": "integer"},
                seconds={"type": "number"},
            ),
        },
        steps={"type": "integer", "description": "commits that git bisect asked for"},
        builds={"type": "integer", "description": "kernels that were built, those of GOOD and BAD among them"},
        ran={"type": "integer", "description": "cells that were run; what the store had was not run again"},
        verdicts={
            "type": "array",
            "description": "what differs between the verdicts",
            "items": _object(("what", "before", "after"), what=_STRING, before=_STRING, after=_STRING),
        },
        findings={
            "type": "array",
            "description": "the first finding of each rule that only one of the verdicts has",
            "items": _object(
                ("rule", "is_after", "step", "message"),
                rule=_STRING,
                is_after={"type": "boolean", "description": "it is of the commit that was found"},
                step=_STRING,
                message=_STRING,
            ),
        },
        map={
            "type": ["object", "null"],
            "description": "both maps where they differ most; null where they do not, or where there are none",
            "required": ["step", "process", "lines"],
            "properties": {"step": _STRING, "process": _STRING, "lines": _LINES},
        },
        log={"type": "string", "description": "git bisect's log, which git bisect replay takes"},
    ),
}


def _asked(answer: Answer) -> dict[str, Any]:
    return {
        "commit": answer.commit,
        "subject": answer.subject,
        "answer": answer.holds,
        "said": list(answer.said),
        "why": answer.why if answer.holds is None else "",
        "cells": [cell.key for cell in answer.cells],
        "kernel": answer.cells[0].kernel.key,
        "builds": answer.builds,
        "seconds": round(answer.seconds, 3),
    }


def as_json(
    search: Search, first: Sequence[tuple[str, str]], before: Answer, asker: Asker, about: dict[str, Any]
) -> dict[str, Any]:
    """All of it as values of JSON."""
    after = asker.answers.get(first[0][0], search.bad)
    reports = report(before.result, asker.store), report(after.result, asker.store)
    lines = [
        shown(each.result, values(each.result, told, True, asker.asked.names)) if each.result else {}
        for each, told in zip((before, after), reports, strict=True)
    ]
    names = dict.fromkeys([*lines[0], *lines[1]])
    differ = [
        {"what": name, "before": lines[0].get(name, "-"), "after": lines[1].get(name, "-")}
        for name in names
        if lines[0].get(name) != lines[1].get(name)
    ]
    place = side.place(*reports)
    return {
        "format": FORMAT,
        "version": VERSION,
        "about": about,
        "first": [{"commit": commit, "subject": subject} for commit, subject in first],
        "before": {"commit": before.commit, "subject": before.subject},
        "asked": [_asked(each) for each in (search.good, search.bad, *search.steps)],
        "steps": len(search.steps),
        "builds": sum(each.builds for each in asker.answers.values()),
        "ran": sum(each.ran for each in asker.answers.values()),
        "verdicts": differ,
        "findings": list(_findings(*reports)),
        "map": {"step": place[0], "process": place[1], "lines": side.lines(*reports, place)} if place else None,
        "log": search.log,
    }


def _findings(before: dict[str, Any], after: dict[str, Any]) -> Iterator[dict[str, Any]]:
    rules = [steps(each) for each in (before, after)]
    for is_after, about in enumerate((before, after)):
        for rule, names in rules[is_after].items():
            found = finding(about, rule, names)
            if rule not in rules[not is_after] and found:
                yield {"rule": rule, "is_after": bool(is_after), "step": found["step"], "message": found["message"]}


def text(told: dict[str, Any]) -> Iterator[str]:
    """The steps, the commit, the diff of the verdicts, and both maps."""
    about = told["about"]
    yield f"bisect, {about['granule']}: {about['when']}"
    for at, each in enumerate(told["asked"]):
        name = ("good", "bad")[at] if at < 2 else str(at - 1)
        yield f"{name:>4}  {each['commit'][:12]}  {_word(each):11} {each['seconds']:5.0f}s  {each['subject']}".rstrip()
        if each["why"]:
            yield f"      {each['why']}"
    for each in told["asked"]:
        if len(set(each["said"])) > 1:
            yes = each["said"].count(True)
            yield f"the answers for {each['commit'][:12]} disagree: yes {yes} of {len(each['said'])} times"
    yield ""
    first = told["first"]
    if len(first) == 1:
        does = "first with" if told["asked"][1]["answer"] else "no longer with"
        yield f"{does} {first[0]['commit']}"
        yield f"  {first[0]['subject']}"
    else:
        yield f"first with one of {len(first)} commits, for some gave no answer:"
        yield from (f"  {each['commit'][:12]} {each['subject']}" for each in first)
    done, builds = (f"{told[name]} {name[:-1]}{'s' * (told[name] != 1)}" for name in ("steps", "builds"))
    ran = f"{told['ran']} cell{'s' * (told['ran'] != 1)} run"
    yield f"{done} of git bisect, {builds}, {ran}, {span(about['seconds'])}"
    yield ""
    titles = (told["before"]["commit"][:12], first[0]["commit"][:12])
    yield f"{'the verdicts':28} {titles[0]:>24} {titles[1]:>24}"
    for each in told["verdicts"]:
        yield f"  {each['what']:26} {each['before']:>24} {each['after']:>24}"
    if not told["verdicts"]:
        yield "  do not differ in their figures"
    for each in told["findings"]:
        commit = titles[each["is_after"]]
        yield from wrap(f"{each['rule']} in {commit}, {each['step']}: {each['message']}", _COLUMNS, **_INDENTED)
    yield ""
    if not told["map"]:
        yield "the maps do not differ, or are in no report"
        return
    yield f"the maps of {told['map']['process']} at {told['map']['step']}, VMAs that differ"
    yield f" {titles[0]:47} | {titles[1]}"
    yield from told["map"]["lines"]
    yield "= contiguous  - writable  r read-only  . hole  [folded]  (could be folded)  !broken!"


def _word(asked: dict[str, Any]) -> str:
    word = {True: "yes", False: "no", None: "skip"}[asked["answer"]]
    said = asked["said"]
    return word if len(set(said)) == 1 else f"{word} ({said.count(True)}/{len(said)})"
