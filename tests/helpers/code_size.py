# SPDX-License-Identifier: GPL-2.0-only
"""Lines of Rust and ``unsafe`` blocks, without tests; as a program, the larger files with what each is for."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INLINE = re.compile(r"#\[cfg\(test\)\]\s*mod \w+ \{.*\Z", re.DOTALL)
BLOCK = re.compile(r"/\*.*?\*/", re.DOTALL)
TESTS = ("tests", "testing", "examples", "fuzz", "target")
#: Files with more lines than this are listed.
LARGE = 300


def sources() -> dict[Path, str]:
    """The code of each file: lines that are neither empty nor a comment nor of a test."""
    found = {}
    for path in sorted([*ROOT.glob("vmm/**/*.rs"), *ROOT.glob("guest/**/*.rs")]):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if not any(part in TESTS or part.endswith("_tests") for part in parts):
            lines = BLOCK.sub("", INLINE.sub("", path.read_text())).splitlines()
            code = [line for line in lines if line.strip() and not line.lstrip().startswith("//")]
            found[path.relative_to(ROOT)] = "\n".join(code)
    return found


def unsafe_blocks() -> Counter[str]:
    """The ``unsafe`` blocks of each crate that has any."""
    found: Counter[str] = Counter()
    for path, code in sources().items():
        found["/".join(path.parts[:2])] += len(re.findall(r"\bunsafe\s*\{", code))
    return +found


def purpose(path: Path) -> str:
    """The first sentence of a file's own comment."""
    said = re.search(r"^//! (.+?)(?:\n(?!//! \w)|\Z)", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)
    return re.sub(r"\s*\n//! ", " ", said[1]).split(". ")[0] if said else ""


def main() -> None:
    """Print the totals, the crates, and the larger files."""
    lines = {path: code.count("\n") + 1 for path, code in sources().items()}
    crates: Counter[str] = Counter()
    for path, count in lines.items():
        crates["/".join(path.parts[:2])] += count
    unsafe = unsafe_blocks()
    print(f"{sum(lines.values())} lines, {sum(unsafe.values())} unsafe blocks")
    for crate, count in crates.most_common():
        print(f"{count:6} {unsafe[crate]:4} {crate}")
    print(f"\nfiles of more than {LARGE} lines")
    for path, count in sorted(lines.items(), key=lambda it: -it[1]):
        if count > LARGE:
            print(f"{count:6} {path}: {purpose(path)}")


if __name__ == "__main__":
    main()
