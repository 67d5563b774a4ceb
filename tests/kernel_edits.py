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


def store_exclusive(opcode: int) -> bool:
    """STXR of 64 bits: where the kernel has no LSE instructions, what takes a live word away."""
    return opcode & 0xFFE0FC00 == 0xC8007C00


def nothing(_: int) -> int:
    """NOP."""
    return NOP


def no_store(opcode: int) -> int:
    """MOV of WZR into the status register: the store is not done, and it says that it was."""
    return 0x2A1F03E0 | opcode >> 16 & 31


def of_loads(_: int) -> int:
    """DSB ISHLD."""
    return 0xD503399F


def of_stores(_: int) -> int:
    """DSB ISHST."""
    return 0xD5033A9F


def of_stores_nearby(_: int) -> int:
    """DSB NSHST."""
    return 0xD503369F


def nearby(_: int) -> int:
    """DSB NSH."""
    return 0xD503379F


def symbols(vmlinux: Path) -> list[tuple[int, str]]:
    """All symbols by address."""
    lines = subprocess.run(["nm", "-n", vmlinux], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(int(words[0], 16), words[2]) for words in map(str.split, lines) if len(words) == 3]


def edit(kernel: Path, function: str, which, becomes, result: Path) -> int:
    """Writes ``kernel``'s Image with each of ``which`` in the function as what it ``becomes``; says how many. Of
    several static functions of one name ``function#1`` is the second, by address."""
    known = symbols(kernel / "vmlinux")
    text = next(address for address, name in known if name == "_text")
    function, _, number = function.partition("#")
    first = [address for address, name in known if name == function][int(number or 0)]
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
