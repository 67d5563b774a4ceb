# SPDX-License-Identifier: GPL-2.0-only
"""``folioscope series``: each patch of a range, an mbox or a Maildir is built on the one before, and judged."""

from __future__ import annotations

import argparse
import hashlib
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import content, locate
from . import mail
from .campaign import run
from .cell import Cell, Kernel, Test
from .commands import cell_of, engine_of, write
from .errors import Refused
from .kernels import Builder
from .outputs import Source, put_all
from .patches import Patch, Row, as_json, status, text
from .progress import Lines
from .store import Store
from .table import rows
from .told import report, steps
from .trees import GitFailed, Own, Tree, git


@dataclass
class Series:
    """What is to be judged: the commit below, and the patches on top of it."""

    base: str
    patches: list[Patch]
    cover: str = ""
    notes: list[str] = field(default_factory=list)


def of_range(tree: Tree, range_: str, base: str | None) -> Series:
    """The commits of a range, as they are."""
    if ".." not in range_:
        raise Refused(
            f"expected a range BASE..TIP, an mbox or a Maildir and found {range_!r}, which is no file; "
            f"for the commits above it write {range_}..HEAD"
        )
    commits = tree.commits(range_)
    below = tree.commit(base) if base else tree.parent(commits[0])
    return Series(below, [Patch(number, tree.subject(each), each) for number, each in enumerate(commits, 1)])


def of_mail(tree: Tree, own: Own, place: Path, base: str | None) -> Series:
    """The patches of a mailbox, applied in the repository of this program's own."""
    found = mail.read(place)
    notes = list(found.notes)
    below = tree.commit(base or "HEAD")
    if base is None and found.base and tree.has(found.base):
        below = tree.commit(found.base)
        notes.append(f"the base is {below[:12]}, which the series names")
    elif base is None:
        lacking = f", for {tree.path} has no {found.base[:12]}, which the series names" if found.base else ""
        notes.append(f"the base is {below[:12]}, which is HEAD{lacking}; --base names another")
    own.checkout(below)
    patches: list[Patch] = []
    hashes = ""
    for each in found.patches:
        _apply(own, each, below)
        hashes += f"{hashlib.sha256(each.raw).hexdigest()}\n"
        patchset = hashlib.sha256(hashes.encode()).hexdigest()
        patches.append(Patch(each.number, each.subject, git(own.tree, "rev-parse", "HEAD"), patchset=patchset))
    cover = f"{found.cover.subject}\n\n{found.cover.text}" if found.cover else ""
    return Series(below, patches, cover, notes)


def _apply(own: Own, patch: mail.Mail, base: str) -> None:
    try:
        # As git am names a commit by its committer's date too, that is the author's: the same commits each time.
        git(own.tree, "am", "-3", "--quiet", "--committer-date-is-author-date", text=patch.raw)
    except GitFailed as error:
        where = _refused(own)
        said = [line for line in str(error).splitlines() if line.startswith(("error:", "fatal:"))]
        why = where or (said[0].partition(": ")[2] if said else "git am refuses it")
        raise Refused(
            f"patch {patch.number} of {patch.count} ({patch.subject}) does not apply on {base[:12]}: {why}; "
            "name the commit that the series is for with --base"
        ) from error


def _refused(own: Own) -> str:
    """File and hunk of a patch that ``git am`` could not apply."""
    try:
        diff = git(own.tree, "am", "--show-current-patch=diff")
        git(own.tree, "reset", "--quiet", "--hard")
        git(own.tree, "apply", "--check", text=f"{diff}\n".encode())
    except GitFailed as error:
        if found := re.search(r"^error: patch failed: (.*):(\d+)$", str(error), re.MULTILINE):
            return f"{found[1]}, the hunk at line {found[2]}"
        if found := re.search(r"^error: (.*)$", str(error), re.MULTILINE):
            return found[1]
    return ""


def _cells(kernel: Kernel, arguments: argparse.Namespace) -> list[Cell]:
    """What is asked of a kernel: the tour and, unless it is left out, what a fault costs."""
    tests = [Test("tour", "tour", {"only": arguments.only} if arguments.only else {})]
    if not arguments.no_costs:
        tests.append(Test("costs", "costs"))
    return [cell_of(kernel, test, arguments) for test in tests]


def _words(arguments: argparse.Namespace, wanted: Series, is_mail: bool) -> list[str]:
    """The words of the command, with a range by its commits: HEAD is soon another."""
    by_commits = f"{wanted.patches[0].commit[:12]}^..{wanted.patches[-1].commit[:12]}"
    return [by_commits if word == arguments.what and not is_mail else word for word in sys.argv[1:]]


def _without(own: Own, wanted: Series, config: str | None) -> Iterator[tuple[Patch, str]]:
    """The last patch once more without each option that the series adds, with the fragment of its configuration."""
    tip = wanted.patches[-1]
    more = Path(config).expanduser().read_text() if config else ""
    for count, option in enumerate(own.options(wanted.base, tip.commit), 1):
        fragment = own.place / f"without-{option}.config"
        fragment.write_text(f"{more}\n# CONFIG_{option} is not set\n")
        yield Patch(tip.number + count, tip.subject, tip.commit, option), str(fragment)


def _note(patch: Patch, kernel: Kernel, last: Kernel) -> str:
    """Why the kernel without an option is no other one than the last patch's, if it is not."""
    if not patch.without:
        return ""
    here, there = (_is_set(each, patch.without) for each in (kernel, last))
    if here is None or there is None:
        return f"its configuration does not say whether {patch.without} is off"
    if here:
        return f"{patch.without} stays on, as another option selects it"
    return "" if there else f"{patch.without} is off in the last patch's kernel too; --config switches it on"


def _is_set(kernel: Kernel, option: str) -> bool | None:
    file = locate.cache() / "kernels" / kernel.key / "config"
    if not file.is_file():
        return None
    return bool(re.search(rf"^CONFIG_{option}=[ym]$", file.read_text(errors="replace"), re.MULTILINE))


def _listed(patches: Sequence[Patch], kernels: Sequence[Kernel]) -> None:
    """Prints a line for each: its number, its subject, and its Image, or - where that is not built."""
    for patch, kernel in zip(patches, kernels, strict=True):
        print(f"{patch.number}\t{patch.name}\t{kernel.files.get('Image', '-')}")


def series(arguments: argparse.Namespace) -> int:
    """Judges a series; the exit status is 1 if a patch does not build or brings an error, 2 without a verdict."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.time()
    tree = Tree(arguments.tree)
    store = Store(arguments.store or str(locate.cache() / "campaigns")).open()
    place = Path(arguments.what).expanduser()
    with tree.own(arguments.granule) as own:
        if mail.is_mail(place):
            wanted = of_mail(tree, own, place, arguments.base)
        elif place.exists():
            raise Refused(f"{place} is no Maildir: it has neither cur nor new; name an mbox, a Maildir or a range")
        else:
            wanted = of_range(tree, arguments.what, arguments.base)
        for note in wanted.notes:
            print(f"folioscope: {note}", file=sys.stderr)
        all_ = [Patch(0, "base", wanted.base), *wanted.patches]
        kernels = [own.kernel(patch.name, patch.commit, arguments.config or "") for patch in all_]
        if arguments.off:
            for patch, fragment in _without(own, wanted, arguments.config):
                all_.append(patch)
                kernels.append(own.kernel(patch.name, patch.commit, fragment))
        if arguments.list:
            _listed(all_, kernels)
            return 0
        cells = [_cells(kernel, arguments) for kernel in kernels]
        out: Path = arguments.out or locate.output(Path.cwd()) / "series"
        flat = [each for those in cells for each in those]
        engine = engine_of(arguments.engine, store, flat, arguments.jobs)
        run(flat, store, engine, Builder(out / "builds"), Lines(), again=arguments.again)
    found = _rows(all_, kernels, cells, store)
    about = {
        "base": wanted.base,
        "granule": arguments.granule,
        "cpu": arguments.cpu,
        "only": arguments.only or "",
        "time": began,
        "seconds": time.time() - began,
        "words": _words(arguments, wanted, mail.is_mail(place)),
    }
    told = as_json(found, wanted.cover, about)
    out.mkdir(parents=True, exist_ok=True)
    store.record(content.of_values([patch.commit for patch in all_]), told)
    table = rows(flat, store)
    write(table, store, out, "series")
    sources = {
        # What mail was applied to is what others can have.
        each.name: Source(wanted.base if each.patchset else each.commit, each.patchset, each.name)
        for each in all_
    }
    put_all(arguments.kcidb, arguments.ktap, flat, table, store, sources)
    shown = "\n".join(text(found, arguments.granule))
    (out / "series.txt").write_text(f"{shown}\n")
    print(shown)
    print(f"folioscope: {out / 'index.html'}, series.txt, matrix.json and junit.xml beside it", file=sys.stderr)
    return status(found)


def _rows(
    patches: Sequence[Patch], kernels: Sequence[Kernel], cells: Sequence[Sequence[Cell]], store: Store
) -> list[Row]:
    found: list[Row] = []
    warned: set[str] | None = None
    last = next(kernel for patch, kernel in zip(patches[::-1], kernels[::-1], strict=True) if not patch.without)
    for patch, kernel, (tour, *others) in zip(patches, kernels, cells, strict=True):
        judged = store.result(tour.key)
        counted = next((store.result(costs.key) for costs in others), None)
        why = "" if judged else store.why_lost(tour.key) or "it was not run"
        file = locate.cache() / "kernels" / kernel.key / "warnings"
        warnings = set(file.read_text(errors="replace").splitlines()) if file.is_file() else None
        new = sorted(warnings - warned) if warnings is not None and warned is not None else None
        # Those without an option are all compared with the last patch.
        if warnings is not None and not patch.without:
            warned = warnings
        where = steps(report(judged, store)) if judged else {}
        note = _note(patch, kernel, last) if judged else ""
        found.append(Row(patch, kernel.key, tour.key, judged, counted, why, new, where, note))
    return found
