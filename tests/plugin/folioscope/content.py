# SPDX-License-Identifier: GPL-2.0-only
"""Keys of content, as ``content`` in ``vmm/setup/lib.sh`` makes them: twenty hexadecimal digits of SHA-256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LENGTH = 20
_AT_ONCE = 1 << 20
_LEFT_OUT = {"target", "__pycache__"}


def digest(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    with path.open("rb") as file:
        found = hashlib.sha256()
        while piece := file.read(_AT_ONCE):
            found.update(piece)
    return found.hexdigest()


def short(data: bytes) -> str:
    """Returns the key of some bytes."""
    return hashlib.sha256(data).hexdigest()[:LENGTH]


def of_values(values: Any) -> str:
    """Returns the key of values that JSON has; the order of members does not matter."""
    return short(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())


def of_tree(root: Path, names: Iterable[str]) -> str:
    """Returns the key of files and directories below ``root``: names and bytes, the same in every checkout."""
    files = set()
    for name in names:
        place = root / name
        found = [place] if place.is_file() else place.rglob("*")
        files |= {each for each in found if not each.is_symlink() and each.is_file()}
    listed = sorted(
        str(each.relative_to(root)) for each in files if not _LEFT_OUT & set(each.relative_to(root).parts[:-1])
    )
    lines = (f"{digest(root / name)}  {name}\n" for name in sorted(listed, key=str.encode))
    return short("".join(lines).encode())
