# SPDX-License-Identifier: GPL-2.0-only
"""The file of a matrix: TOML that names kernels, tests, axes and expectations; its errors name the line."""

from __future__ import annotations

import difflib
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cell import Test
from .errors import Refused
from .kinds import KINDS

VERSION = 1
_WORD: dict[str, Any] = {"type": "string"}
_WORDS: dict[str, Any] = {"type": "array", "items": _WORD, "minItems": 1}
_GRANULE: dict[str, Any] = {"enum": ["4k", "16k", "64k"]}
_MACHINE: dict[str, Any] = {"enum": ["auto", "tcg", "kvm", "kvm-in-tcg"]}
_MEMORY: dict[str, Any] = {"type": "string", "pattern": "^[1-9][0-9]*[KMG]?$"}
_CPUS: dict[str, Any] = {"type": "integer", "minimum": 1}


def _table(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


#: What a value of each axis may be; the first value is the default.
AXES: dict[str, dict[str, Any]] = {
    "kernel": _WORD,
    "granule": _GRANULE,
    "cpu": _WORD,
    "machine": _MACHINE,
    "policy": _WORD,
    "memory": _MEMORY,
    "smp": _CPUS,
    "append": _WORD,
    "test": _WORD,
}
_DEFAULTS: dict[str, Any] = {
    "granule": "4k",
    "cpu": "max",
    "machine": "auto",
    "policy": "",
    "memory": "1G",
    "smp": 2,
    "append": "",
}
_LISTS = {name: {"type": "array", "items": form, "minItems": 1} for name, form in AXES.items()}
_ONE_OR_MORE = {name: {"anyOf": [form, _LISTS[name]]} for name, form in AXES.items()}
#: Of the file, as JSON's schema.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A matrix of folioscope",
    **_table(
        ("version", "kernels", "axes"),
        version={"const": VERSION},
        store={**_WORD, "description": "a directory, or a URL that fsspec knows"},
        limit={"type": "number", "exclusiveMinimum": 0, "description": "seconds that a cell may take"},
        kernels={
            "type": "object",
            "minProperties": 1,
            "description": "by name; an image as it is, a tree that is built, or the pinned kernel",
            "additionalProperties": _table(
                image=_WORD,
                vmlinux=_WORD,
                tree=_WORD,
                commit=_WORD,
                config=_WORD,
                base=_WORD,
                debug={"type": "boolean"},
            ),
        },
        tests={
            "type": "object",
            "description": "by name; those of the kinds are there by the kinds' names",
            "additionalProperties": _table(
                ("kind",),
                kind={"enum": list(KINDS)},
                **{name: form for kind in KINDS.values() for name, form in kind.settings.items()},
            ),
        },
        axes={**_table(("kernel", "test"), **_LISTS), "description": "all combinations are cells"},
        include={
            "type": "array",
            "items": _table(("kernel", "test"), **_ONE_OR_MORE),
            "description": "more cells: all combinations of each",
        },
        exclude={
            "type": "array",
            "items": {**_table((), **_ONE_OR_MORE), "minProperties": 1},
            "description": "cells of the axes with these values are left out",
        },
        expect={
            "type": "array",
            "items": _table(("rules", "why"), **_ONE_OR_MORE, rules=_WORDS, why=_WORD),
            "description": "cells with these values break these rules",
        },
    ),
}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_NAMES = {"object": "a table", "array": "an array", "string": "a string", "integer": "a whole number"}
_PATHS = ("image", "vmlinux", "tree", "config")
Path_ = tuple["str | int", ...]


@dataclass(frozen=True)
class Expectation:
    """Rules that cells with these values break, and why that is known."""

    values: Mapping[str, Any]
    rules: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Source:
    """A kernel as the file names it; the pinned one if all is empty."""

    image: str = ""
    vmlinux: str = ""
    tree: str = ""
    #: Of the tree; as it stands if there is none.
    commit: str = ""
    config: str = ""
    base: str = ""
    debug: bool = False


@dataclass(frozen=True)
class Matrix:
    """A matrix: the values of each of its cells, by axis."""

    path: Path
    store: str
    limit: float | None
    kernels: Mapping[str, Source]
    tests: Mapping[str, Test]
    cells: list[dict[str, Any]] = field(default_factory=list)
    expectations: tuple[Expectation, ...] = ()


class _Bad(Exception):
    """A value that the schema refuses, and where it is."""

    def __init__(self, where: Path_, what: str, is_key: bool = False) -> None:
        super().__init__(what)
        self.where, self.is_key = where, is_key


def load(path: Path) -> Matrix:
    """Reads a matrix. Raises ``Refused``, with file and line."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no text"
        raise Refused(f"expected a matrix in {path} and found {why}; see docs/how-to/campaigns.md") from error
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"\(at line (\d+), column \d+\)$", str(error))
        at = line[1] if line else str(text.count("\n") + 1)
        what = re.sub(r" \(at .*\)$", "", str(error))
        raise Refused(f"{path}:{at}: this is no TOML: {what[0].lower()}{what[1:]}; check the line") from error
    try:
        _check(found, SCHEMA, ())
        return _made(path, found)
    except _Bad as error:
        raise Refused(f"{path}:{line_of(text, error.where)}: {error}") from error


def _check(value: Any, form: Mapping[str, Any], where: Path_) -> None:
    """Compares a value with its form, as far as ``SCHEMA`` uses JSON's schema."""
    name = ".".join(map(str, where)) or "the file"
    if "anyOf" in form:
        one, several = form["anyOf"]
        _check(value, several if isinstance(value, list) else one, where)
        return
    if "const" in form and value != form["const"]:
        raise _Bad(
            where, f"expected {name} to be {form['const']} and found {value!r}; update this program, or the file"
        )
    if "enum" in form and value not in form["enum"]:
        raise _Bad(
            where,
            f"expected {name} to be one of {', '.join(form['enum'])} and found {value!r}",
        )
    kind = form.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        raise _Bad(where, f"expected {name} to be {_NAMES.get(kind, f'a {kind}')} and found {value!r}")
    if "pattern" in form and not re.search(form["pattern"], value):
        raise _Bad(where, f"expected {name} to be a size such as 1G or 512M and found {value!r}")
    if value in ([], {}) and ("minItems" in form or "minProperties" in form):
        raise _Bad(where, f"expected {name} to have something in it and found nothing")
    if ("minimum" in form and value < form["minimum"]) or ("exclusiveMinimum" in form and value <= 0):
        raise _Bad(where, f"expected {name} to be more than 0 and found {value!r}")
    if isinstance(value, dict):
        _check_members(value, form, where, name)
    if isinstance(value, list):
        for at, each in enumerate(value):
            _check(each, form["items"], (*where, at))


def _check_members(value: Mapping[str, Any], form: Mapping[str, Any], where: Path_, name: str) -> None:
    known = form.get("properties", {})
    for member in form.get("required", ()):
        if member not in value:
            raise _Bad(where, f"expected {member!r} in {name} and found none")
    for member, each in value.items():
        of = known.get(member) or form.get("additionalProperties")
        if not of:
            what = "axis" if set(known) & set(AXES) else "word"
            more = _like(member, known) or f"; {name} may have {', '.join(known)}"
            raise _Bad((*where, member), f"there is no {what} {member!r} in {name}{more}", is_key=True)
        _check(each, of, (*where, member))


def _like(word: Any, known: Any) -> str:
    """A hint where a word is nearly one that is known."""
    found = difflib.get_close_matches(str(word), list(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _made(path: Path, found: Mapping[str, Any]) -> Matrix:
    base = path.absolute().parent
    kernels = {name: _source(each, base) for name, each in found["kernels"].items()}
    for name, kernel in kernels.items():
        if sum(map(bool, (kernel.image, kernel.tree, kernel.base))) > 1:
            raise _Bad(("kernels", name), f"expected one of image, tree and base in kernels.{name} and found several")
        if kernel.image and (kernel.config or kernel.debug):
            raise _Bad(("kernels", name), f"the image of kernels.{name} is as it is; leave config and debug out")
        if kernel.commit and not kernel.tree:
            raise _Bad(("kernels", name), f"expected the tree of the commit in kernels.{name} and found none")
        if kernel.vmlinux and not kernel.image:
            raise _Bad(("kernels", name), f"kernels.{name} is built with its vmlinux; leave vmlinux out")
    tests = {name: Test(name, name) for name in ("tour", "crossing")}
    for name, each in found.get("tests", {}).items():
        settings = {word: value for word, value in each.items() if word != "kind"}
        for word in settings:
            if word not in KINDS[each["kind"]].settings:
                may = ", ".join(KINDS[each["kind"]].settings)
                raise _Bad(("tests", name, word), f"a test of kind {each['kind']} has no {word}; it may have {may}")
        if each["kind"] == "pytest" and "select" not in settings:
            raise _Bad(
                ("tests", name), f"expected `select` in tests.{name}, which names files of tests, and found none"
            )
        tests[name] = Test(name, each["kind"], settings, str(base))
    named: dict[str, Mapping[str, Any]] = {"kernel": kernels, "test": tests}
    for where, axis, value in _named(found):
        if value not in named[axis]:
            hint = _like(value, named[axis]) or f"; there are {', '.join(named[axis])}"
            raise _Bad(where, f"there is no {axis} {value!r}{hint}")
    limit = found.get("limit")
    expected = tuple(
        Expectation({axis: each[axis] for axis in AXES if axis in each}, tuple(each["rules"]), each["why"])
        for each in found.get("expect", ())
    )
    store = found.get("store", "")
    if store and "://" not in store:
        store = str(base / Path(store).expanduser())
    return Matrix(path, store, limit, kernels, tests, list(_cells(found)), expected)


def _source(words: Mapping[str, Any], base: Path) -> Source:
    """A kernel whose paths are relative to the file."""
    paths = {name: str(base / Path(words[name]).expanduser()) for name in _PATHS if words.get(name)}
    return Source(**{**words, **paths})


def _named(found: Mapping[str, Any]) -> Iterator[tuple[Path_, str, str]]:
    """Each place where a kernel or a test is named."""
    for axis in ("kernel", "test"):
        for at, value in enumerate(found["axes"][axis]):
            yield ("axes", axis, at), axis, value
        for table in ("include", "exclude", "expect"):
            for at, each in enumerate(found.get(table, ())):
                for value in _several(each.get(axis, [])):
                    yield (table, at, axis), axis, value


def _several(value: Any) -> list[Any]:
    """One value, or a list of them."""
    return value if isinstance(value, list) else [value]


def matches(cell: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether a cell has, of each axis, one of these values."""
    return all(str(cell[axis]) in map(str, _several(value)) for axis, value in values.items())


def _every(axes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All combinations of these values, and of the defaults of other axes."""
    lists = [_several({**_DEFAULTS, **axes}[axis]) for axis in AXES]
    return (dict(zip(AXES, values, strict=True)) for values in itertools.product(*lists))


def _cells(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The values of each cell, once."""
    seen = set()
    excluded = found.get("exclude", ())
    chosen = (cell for cell in _every(found["axes"]) if not any(matches(cell, each) for each in excluded))
    for cell in itertools.chain(chosen, *map(_every, found.get("include", ()))):
        if (values := tuple(cell[axis] for axis in AXES)) not in seen:
            seen.add(values)
            yield cell


_HEAD = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def _words(dotted: str) -> list[str]:
    return [bare or quoted.strip("\"'") for quoted, bare in re.findall(r"""("[^"]*"|'[^']*')|([\w-]+)""", dotted)]


def line_of(text: str, where: Path_) -> int:
    """The line of a value: that of the longest part of its path that has a line of its own."""
    best, length = 1, 0
    table: list[str | int] = []
    count: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if head := _HEAD.match(line):
            table = list(_words(head[2]))
            if head[1] == "[[":
                count[head[2]] = count.get(head[2], -1) + 1
                table.append(count[head[2]])
            path = table
        elif key := _KEY.match(line):
            path = [*table, *_words(key[1])]
        else:
            continue
        if len(path) > length and tuple(path) == where[: len(path)]:
            best, length = number, len(path)
    return best
