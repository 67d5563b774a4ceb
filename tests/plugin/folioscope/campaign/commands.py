# SPDX-License-Identifier: GPL-2.0-only
"""``folioscope matrix``: reads the file, runs its cells, and writes the table, a page, JSON and JUnit."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import host, locate
from .campaign import run
from .cell import Cell, Kernel, Test
from .engine import Engine, Local
from .errors import Refused
from .kernels import Builder, built, image
from .kinds import KINDS
from .matrix import Matrix, load
from .outputs import Source, put_all
from .page import written
from .parts import keys
from .progress import Lines, span
from .store import Store
from .table import Row, as_json, junit, rows, status, text
from .trees import Tree

_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024}
#: Seconds that a cell of a commit may take.
LIMIT = 1800.0
#: Results of the store that tell how long cells take.
_HISTORY = 500


def cells_of(matrix: Matrix) -> tuple[list[Cell], list[str]]:
    """The cells of a matrix; and why some combinations are none."""
    found, left_out = [], []
    made: dict[tuple[str, str], Kernel] = {}
    granules: dict[str, str | None] = {}
    for values in matrix.cells:
        name, granule = values["kernel"], values["granule"]
        test = matrix.tests[values["test"]]
        kind = KINDS[test.kind]
        if not kind.has_kernel:
            kernel = Kernel(name, "none")
        elif matrix.kernels[name].image:
            if (name, "") not in made:
                made[name, ""], granules[name] = image(name, matrix.kernels[name])
            kernel = made[name, ""]
            if granules[name] not in (None, granule):
                left_out.append(f"the image of {name} has pages of {granules[name]}, not {granule}")
                continue
        else:
            if (name, granule) not in made:
                made[name, granule] = built(name, matrix.kernels[name], granule)
            kernel = made[name, granule]
        rest = {axis: value for axis, value in values.items() if axis not in ("kernel", "test")}
        found.append(Cell(kernel, test, **rest, rig=keys(test.kind, test.settings, test.directory), limit=matrix.limit))
    return found, list(dict.fromkeys(left_out))


def dry_run(cells: Sequence[Cell], left_out: Sequence[str], store: Store | None, slots: int) -> None:
    """Prints cells, kernels to build, and the time expected from what the store has."""
    named = store.named() if store else set()
    seconds = _history(store, named)
    total, unknown = 0.0, 0
    for cell in cells:
        there = cell.key in named
        about = seconds.get(cell.test.name, seconds.get(""))
        if not there:
            total, unknown = total + (about or 0), unknown + (about is None)
        expected = "has a result" if there else f"about {span(about)}" if about is not None else "time unknown"
        print(f"{cell.key}  {cell.name()}  {expected}")
    for reason in left_out:
        print(f"left out: {reason}")
    to_build = {cell.kernel.key: cell.kernel for cell in cells if cell.kernel.build and not cell.kernel.files}
    for kernel in to_build.values():
        print(f"to build: {kernel.name} ({kernel.key})")
    wanted = sum(cell.key not in named for cell in cells)
    more = f", {unknown} of them of unknown time" if unknown else ""
    print(f"{len(cells)} cells, {wanted} to run, {len(to_build)} kernels to build; about {span(total / slots)}{more}")


def _history(store: Store | None, named: set[str]) -> dict[str, float]:
    """The mean time of a cell by test, and of all by the empty name."""
    times: dict[str, list[float]] = {}
    for key in sorted(named)[:_HISTORY]:
        if store and (result := store.result(key)):
            for name in (str(result.cell.get("test", "")), ""):
                times.setdefault(name, []).append(result.seconds)
    return {name: sum(each) / len(each) for name, each in times.items()}


def _mebibytes(memory: str) -> int:
    unit = memory[-1:].upper()
    return int(int(memory[:-1]) * _UNITS[unit]) if unit in _UNITS else int(memory) >> 20


def cell_of(kernel: Kernel, test: Test, arguments: argparse.Namespace, repeat: int = 0) -> Cell:
    """What is asked of a commit's kernel, by the options that are those of a tree."""
    return Cell(
        kernel,
        test,
        granule=arguments.granule,
        cpu=arguments.cpu,
        machine=arguments.machine,
        rig=keys(test.kind, test.settings, test.directory),
        limit=LIMIT,
        repeat=repeat,
    )


def engine_of(words: str, store: Store, cells: Sequence[Cell], jobs: int | None) -> Engine:
    """The engine that was asked for."""
    name, _, address = words.partition("=")
    if name == "local" and not address:
        return Local(store, _slots(cells, jobs))
    if name != "dask" or not address:
        raise Refused(f"there is no engine {words!r}; use local, or dask=ADDRESS of a Dask scheduler")
    try:
        from .on_dask import Dask  # noqa: PLC0415
    except ImportError as error:
        raise Refused("the engine dask needs Dask distributed; install it with: pip install distributed") from error
    return Dask(address, store)


def _slots(cells: Sequence[Cell], jobs: int | None) -> int:
    most = max((_mebibytes(cell.memory) for cell in cells), default=1024)
    return jobs or host.guests(most, most=max(host.MOST, (os.cpu_count() or 1) // 2))


def write(found: Sequence[Row], store: Store, out: Path, title: str) -> None:
    """Writes the page, JSON and JUnit, and the files that the page leads to."""
    try:
        for row in found:
            for name, stored in row.files.items():
                to = out / "cells" / row.key / name
                if not to.is_file():
                    store.fetch(stored, to)
        last = out / "matrix.json"
        before = _before(last)
        texts = {
            "index.html": written(found, before, title),
            "junit.xml": junit(found),
            "matrix.json": json.dumps(as_json(found), indent=1) + "\n",
        }
        for name, contents in texts.items():
            new = out / f".{name}.new"
            new.write_text(contents)
            new.replace(out / name)
    except OSError as error:
        raise Refused(
            f"expected to write the table into {out} and found {error.strerror}; name another --out"
        ) from error


def _before(path: Path) -> dict[str, Any] | None:
    """The table of the last page; none if there is none, or if it is of another version."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        return found if found["version"] == as_json([])["version"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sources(matrix: Matrix) -> dict[str, Source]:
    """What the kernels of a matrix were built from: a commit where the file names one."""
    found = {}
    for name, kernel in matrix.kernels.items():
        commit = Tree.resolved(Path(kernel.tree), kernel.commit) if kernel.commit else ""
        what = kernel.tree or kernel.image or f"the pinned kernel {kernel.base}".strip()
        found[name] = Source(commit, "", f"{name}: {what} {kernel.commit}".strip())
    return found


def matrix(arguments: argparse.Namespace) -> int:
    """Runs a matrix; the exit status is that of its table."""
    wanted = load(arguments.file)
    place = arguments.store or wanted.store
    if not place and not arguments.dry_run:
        raise Refused(f"expected `store` in {arguments.file}, or --store, and found neither; name a directory or a URL")
    cells, left_out = cells_of(wanted)
    if not cells:
        raise Refused(f"{arguments.file} has no cell: {'; '.join(left_out) or 'all are excluded'}; check [[exclude]]")
    store = Store(place) if place else None
    if arguments.dry_run:
        dry_run(cells, left_out, store, _slots(cells, arguments.jobs))
        return 0
    assert store
    store.open()
    for reason in left_out:
        print(f"folioscope: left out: {reason}", file=sys.stderr)
    out: Path = arguments.out or locate.output(Path.cwd()) / "matrix"
    builder = Builder(out / "builds")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    engine = engine_of(arguments.engine, store, cells, arguments.jobs)
    run(cells, store, engine, builder, Lines(), again=arguments.again)
    found = rows(cells, store, wanted.expectations)
    out.mkdir(parents=True, exist_ok=True)
    write(found, store, out, arguments.file.stem)
    put_all(arguments.kcidb, arguments.ktap, cells, found, store, _sources(wanted))
    print("\n".join(text(found)))
    print(f"folioscope: {out / 'index.html'}, matrix.json and junit.xml beside it", file=sys.stderr)
    return status(found)
