# SPDX-License-Identifier: GPL-2.0-only
"""The table of a campaign for other programs: a KCIDB submission, and the kernel's TAP."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from .cell import Cell
from .errors import Refused
from .kernels import NOT_BUILT
from .kinds import JUNIT, KINDS
from .store import Store
from .table import OPEN, Row, word

ORIGIN = "folioscope"
#: As kcidb-io has it; later minor numbers are of the same form.
_VERSION = {"major": 5, "minor": 3}
#: Characters of an excerpt.
_EXCERPT = 16384


@dataclass(frozen=True)
class Source:
    """What a kernel was built from."""

    #: A commit that others can have; empty for an image.
    commit: str = ""
    #: SHA-256 of the SHA-256s of the patches on top, as KCIDB reckons it.
    patchset: str = ""
    comment: str = ""


def kcidb(cells: Sequence[Cell], found: Sequence[Row], store: Store, sources: Mapping[str, Source]) -> dict[str, Any]:
    """A submission: sources by the kernel's name, builds by its key, and a test for each cell and each checkpoint.
    What was not run is not in it."""
    checkouts: dict[str, dict[str, Any]] = {}
    builds: dict[str, dict[str, Any]] = {}
    tests: dict[str, dict[str, Any]] = {}
    for cell, row in zip(cells, found, strict=True):
        if row.state == "not run" or not KINDS[cell.test.kind].has_kernel:
            continue
        source = sources.get(cell.kernel.name, Source(comment=cell.kernel.name))
        checkout = _checkout(cell, source)
        checkouts[checkout["id"]] = checkout
        build = _build(cell, row, checkout["id"])
        builds[build["id"]] = build
        # Of a kernel that does not build nothing was tested.
        if build["status"] != "FAIL":
            tests |= {each["id"]: each for each in _tests(cell, row, build["id"], store)}
    lists = {"checkouts": checkouts, "builds": builds, "tests": tests}
    return {"version": _VERSION, **{name: list(each.values()) for name, each in lists.items()}}


def _checkout(cell: Cell, source: Source) -> dict[str, Any]:
    known = {"git_commit_hash": source.commit, "patchset_hash": source.patchset} if source.commit else {}
    name = ":".join(filter(None, (source.commit, source.patchset))) or cell.kernel.key
    return {"id": f"{ORIGIN}:{name}", "origin": ORIGIN, "comment": _plain(source.comment), "valid": True, **known}


def _build(cell: Cell, row: Row, checkout: str) -> dict[str, Any]:
    failed = row.state == "lost" and row.summary.startswith(NOT_BUILT)
    found = {
        "id": f"{ORIGIN}:{cell.kernel.key}",
        "origin": ORIGIN,
        "checkout_id": checkout,
        "architecture": "arm64",
        "config_name": f"folioscope-{cell.granule}",
        "comment": _plain(cell.kernel.name),
        "status": "FAIL" if failed else "PASS",
    }
    return {**found, "log_excerpt": _plain(row.summary)[:_EXCERPT]} if failed else found


def _tests(cell: Cell, row: Row, build: str, store: Store) -> Iterator[dict[str, Any]]:
    """The cell as a whole, and what its JUnit has, by the same words."""
    root = f"{ORIGIN}.{_part(cell.test.name)}"
    axes = {name: value for name, value in row.axes.items() if value and name not in ("kernel", "test")}
    common = {
        "origin": ORIGIN,
        "build_id": build,
        "environment": {"comment": _plain(", ".join(f"{name} {value}" for name, value in axes.items()))},
    }
    figures = {"rules": dict(row.rules), "figures": dict(row.figures), "state": row.state}
    # Costs are figures and no verdict; what an expectation makes of an error is not the tested code's.
    status = _STATUS.get(row.state) or ("FAIL" if row.broken() or row.state == "fail" else "PASS")
    if cell.test.kind == "costs" and status == "PASS":
        status = "DONE"
    yield {
        **common,
        "id": f"{ORIGIN}:{cell.key}",
        "path": root,
        "status": status,
        "duration": row.seconds,
        "comment": _plain(row.summary),
        "misc": figures,
    }
    count: Counter[str] = Counter()
    for suite, case in _cases(row, store):
        path = ".".join([root, *map(_part, suite.split(".")), _part(case.get("name", ""))])
        count[path] += 1
        more = f":{count[path]}" if count[path] > 1 else ""
        yield {**common, "id": f"{ORIGIN}:{cell.key}:{path}{more}", "path": path, **_case(case)}


#: By the state of a cell; where it has a verdict, that says whether the tested code is faulty.
_STATUS = {"lost": "MISS", "unjudged": "ERROR"}


def _case(case: ElementTree.Element) -> dict[str, Any]:
    kinds = {"failure": "FAIL", "error": "ERROR", "skipped": "SKIP"}
    found = next((each for each in case if each.tag in kinds), None)
    timed = {"duration": float(case.get("time", 0))} if case.get("time") else {}
    if found is None:
        return {"status": "PASS", **timed}
    said = _plain("\n".join(filter(None, (found.get("message"), found.text))))[:_EXCERPT]
    return {"status": kinds[found.tag], "log_excerpt": said, **timed}


def _cases(row: Row, store: Store) -> Iterator[tuple[str, ElementTree.Element]]:
    """The cases of a cell's JUnit, each with the name of its suite, or of its module."""
    if JUNIT not in row.files:
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / JUNIT
        store.fetch(row.files[JUNIT], path)
        root = ElementTree.parse(path).getroot()
    for suite in root.iter("testsuite"):
        for case in suite.iter("testcase"):
            # pytest has one suite of all.
            yield (case.get("classname") or "tests") if suite.get("name") == "pytest" else suite.get("name", ""), case


def _part(name: str) -> str:
    """A part of a path."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_") or "_"


def _plain(text: str) -> str:
    return text.replace("\0", "")


def ktap(found: Sequence[Row]) -> Iterator[str]:
    """A test for each kernel, with a subtest for each cell. What has no verdict is `not ok`: a SKIP would read as
    fine."""
    kernels = list(dict.fromkeys(row.axes["kernel"] for row in found))
    yield "KTAP version 1"
    yield f"1..{len(kernels)}"
    for number, kernel in enumerate(kernels, 1):
        rows = [row for row in found if row.axes["kernel"] == kernel]
        yield "  KTAP version 1"
        yield f"  # Subtest: {_line(kernel)}"
        yield f"  1..{len(rows)}"
        for index, row in enumerate(rows, 1):
            if not _is_ok(row):
                without = "not judged: " if row.state in OPEN else ""
                yield f"  # {without}{word(row)}: {_line(row.summary)}"
            name = " ".join(value for axis, value in row.axes.items() if value and axis != "kernel")
            yield f"  {'ok' if _is_ok(row) else 'not ok'} {index} {_line(name)}"
        yield f"{'ok' if all(map(_is_ok, rows)) else 'not ok'} {number} {_line(kernel)}"


def _is_ok(row: Row) -> bool:
    return row.state in ("pass", "known")


def _line(text: str) -> str:
    """Without `#`, which would begin a directive."""
    return " ".join(text.replace("#", "").split())


def put(path: Path, text: str) -> None:
    """Writes one of them, whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text)
        new.replace(path)
    except OSError as error:
        raise Refused(f"expected to write {path} and found {error.strerror}; name another file") from error


def put_all(
    kcidb_to: Path | None,
    ktap_to: Path | None,
    cells: Sequence[Cell],
    found: Sequence[Row],
    store: Store,
    sources: Mapping[str, Source],
) -> None:
    """Writes those that were asked for."""
    if kcidb_to:
        put(kcidb_to, json.dumps(kcidb(cells, found, store, sources), indent=1) + "\n")
    if ktap_to:
        put(ktap_to, "\n".join(ktap(found)) + "\n")
