# SPDX-License-Identifier: GPL-2.0-only
"""The numbers of the seeds, as they stand in lab_numbers.json: the texts themselves are not in the tree.

python tests/helpers/lab_numbers.py DIRECTORY     # of the texts: whether the copy is that of these
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

COPY = Path(__file__).with_name("lab_numbers.json")
#: A number with its unit, and no part of a word, a version or an address.
_NUMBER = re.compile(r"(?<![\w.])(?!0x)(?:[-+]?\d+(?:\.\d+)?)(?:%|s|B|x|X)?(?![\w.]*[A-Za-z])")


def numbers() -> dict[str, dict[str, Any]]:
    """The copy: of each seed the lines from ``first`` to ``last``, and why ``other`` ones have no figure."""
    found: dict[str, dict[str, Any]] = json.loads(COPY.read_text())
    return found


def of(text: str, first: int, last: int) -> dict[str, str]:
    """The numbers of each line of a text that has any, by the line's number."""
    lines = {at: _NUMBER.findall(line) for at, line in enumerate(text.splitlines(), 1) if first <= at <= last}
    return {str(at): " ".join(found) for at, found in lines.items() if found}


def main(directory: Path) -> int:
    """Says which texts have other numbers than the copy."""
    differs = 0
    for seed, each in numbers().items():
        raw = (directory / f"{seed}.txt").read_bytes()
        same = of(raw.decode(errors="replace"), each["first"], each["last"]) == each["lines"]
        known = hashlib.sha256(raw).hexdigest() == each["sha256"]
        print(f"{seed}: {'the same numbers' if same else 'OTHER NUMBERS'}{'' if known else ', another text'}")
        differs += not same
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
