#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Lists the lines of a kernel's source that a guest executed, file by file, and the functions that it never entered.

    out/folioscope cross --append nokaslr --tcg-thread multi --marks marks --executed blocks
    python3 tests/helpers/executed.py out/kernel-4k/vmlinux blocks mm/ arch/arm64/mm/
    python3 tests/helpers/executed.py out/kernel-4k/vmlinux blocks mm/rmap.c --tree ~/linux

A line counts if one of its instructions was executed; those that were compiled away are in neither number, and those
whose file readelf names without a directory, the first few of each object. With --tree the lines that were not executed
are printed. It needs readelf, and a vmlinux with debugging information.
"""

from __future__ import annotations

import argparse
import bisect
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

#: A row of `readelf -wL`: a file's name, a line, an address.
ROW = re.compile(r"^\S+\s+(\d+)\s+(0x[0-9a-f]+)\b")
#: The line above the rows of a file.
FILE = re.compile(r"^(?:CU: )?(?:\./)?(\S+?):?(?:\[\+\+\])?$")
#: The first line of a function in the kernel's style.
FUNCTION = re.compile(r"^[a-zA-Z_][\w\s*]*?\b(\w+)\(")


class Blocks:
    """Ranges of addresses that were executed."""

    def __init__(self, lines: Iterable[str]) -> None:
        found = ((int(address, 16), int(count)) for address, count in map(str.split, lines))
        self.ranges: list[tuple[int, int]] = []
        for start, end in sorted((address, address + 4 * count) for address, count in found):
            if self.ranges and start <= self.ranges[-1][1]:
                first, last = self.ranges[-1]
                self.ranges[-1] = (first, max(last, end))
            else:
                self.ranges.append((start, end))
        self.starts = [start for start, _ in self.ranges]

    def has(self, address: int) -> bool:
        """Whether the instruction at this address is in one."""
        at = bisect.bisect_right(self.starts, address) - 1
        return at >= 0 and address < self.ranges[at][1]


def lines_of(vmlinux: Path, under: list[str]) -> Iterable[tuple[str, int, int]]:
    """Each row of the line table: a file below one of these places, a line, an address."""
    name = None
    with subprocess.Popen(
        ["readelf", "-wL", vmlinux], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as table:
        assert table.stdout
        for text in table.stdout:
            if row := ROW.match(text):
                if name:
                    yield name, int(row[1]), int(row[2], 16)
            elif file := FILE.match(text.strip()):
                name = file[1] if any(file[1].startswith(place) for place in under) else None


def executed(blocks: Blocks, rows: Iterable[tuple[str, int, int]]) -> dict[str, dict[int, bool]]:
    """By file and line, whether the line was executed."""
    found: dict[str, dict[int, bool]] = defaultdict(dict)
    for file, line, address in rows:
        found[file][line] = found[file].get(line, False) or blocks.has(address)
    return found


def owners(source: list[str]) -> dict[int, str]:
    """The function that each line of a file is in, as its text shows."""
    name, found = "", {}
    for number, text in enumerate(source, 1):
        if (start := FUNCTION.match(text)) and not text.rstrip().endswith(";"):
            name = start[1]
        found[number] = name
    return found


def report(file: str, lines: dict[int, bool], tree: Path | None) -> None:
    """Prints a file's line, and with its source what was not executed."""
    done = sum(lines.values())
    print(f"{file:44} {done:5} of {len(lines):5} lines {100 * done / len(lines):4.0f} %")
    if tree is None:
        return
    source = (tree / file).read_text().splitlines()
    by_function: dict[str, list[int]] = defaultdict(list)
    names = owners(source)
    for line in sorted(lines):
        by_function[names.get(line, "")].append(line)
    for name, all_lines in by_function.items():
        rest = [line for line in all_lines if not lines[line]]
        if len(rest) == len(all_lines):
            print(f"  {name}(): never")
        elif rest:
            print(f"  {name}():")
            for line in rest:
                print(f"    {line:5}  {source[line - 1].strip()}")


def main() -> None:
    """As a program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vmlinux", type=Path)
    parser.add_argument("blocks", type=Path, help="what --executed wrote")
    parser.add_argument("under", nargs="+", help="files, or directories with a slash at the end")
    parser.add_argument("--tree", type=Path, help="the kernel's source, to print the lines that were not executed")
    words = parser.parse_args()
    blocks = Blocks(words.blocks.read_text().splitlines())
    found = executed(blocks, lines_of(words.vmlinux, words.under))
    if not any(any(lines.values()) for lines in found.values()):
        sys.exit(
            f"expected {words.blocks} to have blocks of {', '.join(words.under)} "
            f"and found none of {len(blocks.ranges)} there: is it of this kernel, booted with nokaslr, "
            "and does vmlinux have debugging information?"
        )
    for file in sorted(found):
        report(file, found[file], words.tree)


if __name__ == "__main__":
    main()
