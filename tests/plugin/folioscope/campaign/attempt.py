# SPDX-License-Identifier: GPL-2.0-only
"""One try at a cell: its files are made in a directory of its own, put into the store, and named."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path

from .. import content, locate
from .cell import Work
from .errors import Lost, Refused
from .kept import Ended, Keeper
from .kinds import CONSOLE, KINDS, enough
from .parts import same
from .result import Result
from .store import Store


def attempt(work: Work, store: Store, keeper: Keeper, scratch: Path) -> Result:
    """Runs a cell and names its result. Raises ``Lost`` where there is none, ``Refused`` where none can be."""
    test = work.content["test"]
    kind = KINDS[test["kind"]]
    same(kind.name, test, work.content["rig"], platform.node(), work.directory)
    kernel = _fetched(work, store)
    scratch.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"{work.key}-", dir=scratch))
    try:
        directory = locate.command().directory if kind.has_kernel else place
        words = kind.words(work, place, kernel)
        ended = keeper.run(words, directory, place / CONSOLE, work.limit, _environment(place))
        _whole(ended, work)
        said = (place / CONSOLE).read_text(errors="replace")
        read = enough(kind.read(place, ended.status, said), test)
        files = {str(path.relative_to(place)): store.put(path) for path in sorted(_kept(place))}
        result = Result(
            work.key,
            {**work.axes, "content": work.content},
            read.outcome,
            read.status,
            round(ended.seconds, 3),
            read.summary,
            read.rules,
            read.figures,
            files,
            platform.node(),
        )
        store.name(result)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return result


def _environment(place: Path) -> dict[str, str]:
    """Where the program finds this package, and where guests of pytest leave their logs."""
    found = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, found)), "FOLIOSCOPE_OUT": str(place / "guests")}


def _whole(ended: Ended, work: Work) -> None:
    """A program that did not end by itself has no result."""
    if ended.how == "limit":
        raise Lost(f"it took longer than its limit of {work.limit:g} s")
    if ended.how == "stopped":
        raise Lost("it was stopped")
    if ended.status < 0:
        raise Lost(f"it was killed by signal {-ended.status}")
    if ended.status == 127:
        raise Refused(f"the program of the cell {work.key} could not be started; see that it is installed")


def _kept(place: Path) -> list[Path]:
    """All files that say something."""
    return [path for path in place.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_size]


def _fetched(work: Work, store: Store) -> dict[str, Path]:
    """The files of the kernel: where they are on this machine, or fetched from the store into the cache of kernels,
    which ``make cache`` prunes."""
    stored = {name: there for name, (_, there) in work.kernel.items() if there}
    if not stored:
        return {name: Path(path) for name, (path, _) in work.kernel.items()}
    place = locate.cache() / "kernels" / f"stored-{content.of_values(stored)}"
    for name, there in stored.items():
        if not (place / name).is_file():
            store.fetch(there, place / name)
    return {name: place / name for name in stored}
