"""Wrong edits of a kernel without a compiler: instructions of its Image are replaced, found by opcode and symbol."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

NOP = 0xD503201F


def dsb_of_stores(opcode: int) -> bool:
    """DSB ISHST."""
    return opcode == 0xD5033A9F


def dsb_of_all(opcode: int) -> bool:
    """DSB ISH."""
    return opcode == 0xD5033B9F


def tlbi(opcode: int) -> bool:
    """TLBI of EL1."""
    return opcode & 0xFFFFF000 == 0xD5088000


def nothing(_: int) -> int:
    """NOP."""
    return NOP


def symbols(vmlinux: Path) -> list[tuple[int, str]]:
    """All symbols by address."""
    lines = subprocess.run(["nm", "-n", vmlinux], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(int(words[0], 16), words[2]) for words in map(str.split, lines) if len(words) == 3]


def edit(kernel: Path, function: str, which, becomes, result: Path) -> int:
    """Writes ``kernel``'s Image with each of ``which`` in the function as what it ``becomes``; says how many."""
    known = symbols(kernel / "vmlinux")
    text = next(address for address, name in known if name == "_text")
    first = next(address for address, name in known if name == function)
    end = min(address for address, _ in known if address > first)
    image = bytearray((kernel / "Image").read_bytes())
    changed = 0
    for place in range(first - text, end - text, 4):
        (opcode,) = struct.unpack_from("<I", image, place)
        if which(opcode):
            struct.pack_into("<I", image, place, becomes(opcode))
            changed += 1
    result.write_bytes(image)
    return changed
