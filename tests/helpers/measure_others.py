# SPDX-License-Identifier: GPL-2.0-only
"""What others take for what the full verdict asks of each page, beside what it takes: a part of `make bench`.

drgn walks the tables of a core of all RAM (`follow_phys`) and reads each page's folio there; in the guest the kernel's
own files say it, which is what tools/mm/thpmaps reads (pagemap, kpageflags, and here kpagecount). Of one process with a
tenth of a million pages, at one instant.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from folioscope import Area
from folioscope.rig import Rig, Wanted

from command import ROOT

PAGES = 100_000
# Pages that drgn is asked for: more of them take as long each.
ASKED = 2_000
ROUNDS = 5
COMMAND = ROOT / "out" / "folioscope"


def seconds(work: Callable[[], object]) -> float:
    """The median of several times."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def by_drgn(core: Path, vmlinux: Path, pid: int, area: Area) -> tuple[float, float]:
    """Microseconds for a page: its translation, and that with its folio."""
    import drgn  # noqa: PLC0415 - PyPI has it for x86-64 alone

    import drgn_scene as scenes  # noqa: PLC0415

    program = drgn.Program()
    program.set_core_dump(core)
    program.load_debug_info([vmlinux])
    page = area.process.guest.layout.page
    space = scenes.pid.find_task(program, pid).mm
    addresses = [area.address + at * page for at in range(ASKED)]
    found = [scenes.phys(space, va) for va in addresses]
    assert all(found), "drgn finds no page where the process has written"

    def folios() -> None:
        for va in addresses:
            scenes.page_of(program, (scenes.phys(space, va) or 0) // page)

    walk = seconds(lambda: [scenes.phys(space, va) for va in addresses])
    return walk / ASKED * 1e6, seconds(folios) / ASKED * 1e6


def measure(place: Path) -> dict[str, Any]:
    """The figures, in microseconds for a page of the process."""
    rig = Rig(place)
    try:
        guest = rig.guest(Wanted("4k", "max", "tcg", ("--memory", "2G")))
        guest.reset()
        area = guest.spawn("measured").map(PAGES * guest.layout.page, hint="nohugepage")
        area.write()
        process, core = area.process, place / "full.core"
        look = seconds(lambda: process.look())
        told = seconds(lambda: process.look(getters=True))
        with process.hold():
            guest.call("save_full", path=str(core), pid=process.pid, seconds=120)
        check = [str(COMMAND), "check", str(core), "--pid", str(process.pid)]
        ours = seconds(lambda: subprocess.run(check, check=True, capture_output=True))
        walk = folio = None
        if platform.machine() == "x86_64":
            walk, folio = by_drgn(core, ROOT / "out/kernel-4k/vmlinux", process.pid, area)
        return {
            "pages": PAGES,
            "check_of_the_core": ours / PAGES * 1e6,
            "drgn_follow_phys": walk,
            "drgn_follow_phys_and_folio": folio,
            "look": look / PAGES * 1e6,
            "getters_in_the_guest": (told - look) / PAGES * 1e6,
        }
    finally:
        rig.close()


def main() -> None:
    """Prints the figures, and writes them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="folioscope-others-") as place:
        figures = measure(Path(place))
    ours = figures["check_of_the_core"]
    rows = [
        ("full verdict of a core", ours, "folioscope check: program start, all processes, all rules"),
        ("drgn, follow_phys", figures["drgn_follow_phys"], f"the same core, {ASKED} pages one by one"),
        ("  and the folio of each", figures["drgn_follow_phys_and_folio"], "flags, order, counts, mapping, index"),
        (
            "getters, in the guest",
            figures["getters_in_the_guest"],
            "pagemap, kpageflags, kpagecount, smaps, by the agent",
        ),
    ]
    for name, figure, method in rows:
        if figure is not None:
            print(f"{name:28} {figure:10.3f} us/page {figure / ours:8.1f} x  {method}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
