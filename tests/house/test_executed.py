# SPDX-License-Identifier: GPL-2.0-only
"""`tests/helpers/executed.py` lists the lines of a program that blocks cover, and the functions that none does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from command import ROOT

HEADER = """\
static inline int twice(int value)
{
	return 2 * value;
}
"""
SOURCE = """\
#include "a.h"
int entered(int value)
{
	if (value > 4)
		value *= 3;
	return value;
}

int never(int value)
{
	return twice(value);
}
"""


def listed(*words: object) -> subprocess.CompletedProcess[str]:
    """What the program says of these words."""
    command = [sys.executable, ROOT / "tests/helpers/executed.py", *words]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def test_lines_that_were_executed(tmp_path: Path) -> None:
    """One of the first function's lines is in a block; the others and the second function are in none."""
    (tmp_path / "mm").mkdir()
    (tmp_path / "mm" / "a.h").write_text(HEADER)
    (tmp_path / "mm" / "a.c").write_text(SOURCE)
    program = tmp_path / "program"
    build = ["aarch64-linux-gnu-gcc", "-g", "-O0", "-nostdlib", "-static", "-Wl,-e,entered", "-o", program, "mm/a.c"]
    subprocess.run(build, cwd=tmp_path, check=True)
    table = subprocess.run(["readelf", "-wL", program], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in table.splitlines() if line.startswith("a.c ")]
    at = {int(row[1]): int(row[2], 16) for row in reversed(rows) if row[1].isdigit()}
    blocks = tmp_path / "blocks"
    # From the condition to the line behind it, and once more a part of that.
    blocks.write_text(f"{at[4]:#x} {(at[5] - at[4]) // 4}\n{at[4]:#x} 1\n")
    brief = listed(program, blocks, "mm/")
    assert brief.returncode == 0, brief.stderr
    assert brief.stdout.split() == ["mm/a.c", "1", "of", "8", "lines", "12", "%"]
    whole = listed(program, blocks, "mm/a.c", "--tree", tmp_path).stdout
    assert "never(): never" in whole
    assert "    5  value *= 3;" in whole and "    4  if" not in whole
    blocks.write_text("0xffff800080000000 4\n")
    none = listed(program, blocks, "mm/")
    assert none.returncode == 1 and "found none of 1 there" in none.stderr
