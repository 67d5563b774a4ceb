# SPDX-License-Identifier: GPL-2.0-only
"""Wrong edits of a kernel without a compiler: instructions of its Image are replaced, found by opcode and symbol."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

NOP = 0xD503201F
# Where there is room for more instructions than one: no guest comes here that is not lost already.
SPARE = "__show_regs"


def dsb_of_stores(opcode: int) -> bool:
    """DSB ISHST."""
    return opcode == 0xD5033A9F


def dsb_of_all(opcode: int) -> bool:
    """DSB ISH."""
    return opcode == 0xD5033B9F


def tlbi(opcode: int) -> bool:
    """TLBI of EL1."""
    return opcode & 0xFFFFF000 == 0xD5088000


def tlbi_by_va(opcode: int) -> bool:
    """The same by VA for an ASID, ranges and last-level forms included, for all CPUs."""
    return tlbi(opcode) and opcode >> 8 & 15 in {2, 3} and opcode >> 5 & 7 in {1, 5}


def tlbi_of_tables(opcode: int) -> bool:
    """Of these what takes tables along."""
    return tlbi_by_va(opcode) and opcode >> 5 & 7 == 1


def tlbi_of_range(opcode: int) -> bool:
    """Of these the ranges."""
    return tlbi_by_va(opcode) and opcode >> 8 & 15 == 2


def tlbi_of_page(opcode: int) -> bool:
    """Of these the others."""
    return tlbi_by_va(opcode) and opcode >> 8 & 15 == 3


def step(opcode: int) -> bool:
    """ADD of a register to another: by the stride to the next TLBI."""
    return opcode & 0xFFE0FC00 == 0x8B000000 and opcode & 31 == opcode >> 5 & 31


def store_exclusive(opcode: int) -> bool:
    """STXR of 64 bits: where the kernel has no LSE instructions, what takes a live word away."""
    return opcode & 0xFFE0FC00 == 0xC8007C00


def sets_contiguous(opcode: int) -> bool:
    """MOVK of bit 52, the Contiguous bit."""
    return opcode & 0xFFFFFFE0 == 0xF2E00200


def never_contiguous(opcode: int) -> int:
    """MOVK of 0."""
    return opcode & ~(0xFFFF << 5)


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


def last_level(opcode: int) -> int:
    """The TLBI of leaves alone."""
    return opcode | 4 << 5


def of_own_cpu(opcode: int) -> int:
    """The TLBI of the own CPU alone."""
    return opcode + (4 << 8)


def twice(opcode: int) -> int:
    """ADD of twice as much."""
    return opcode | 1 << 10


def flipped(bit: int, name: str) -> Callable[[int], list[int]]:
    """Instructions in whose last operand that bit is another one (EOR, and EOR again behind)."""

    def becomes(opcode: int) -> list[int]:
        register = opcode & 31
        eor = 0xD2400000 | (64 - bit) % 64 << 16 | register << 5 | register
        return [eor, opcode, eor]

    becomes.__name__ = name
    return becomes


# Of a TLBI's operand (Arm ARM C5.5).
other_asid = flipped(48, "other_asid")
page_beside = flipped(0, "page_beside")
other_level = flipped(44, "other_level")
other_range_level = flipped(37, "other_range_level")
other_num = flipped(39, "other_num")
other_scale = flipped(44, "other_scale")


def branch(at: int, to: int) -> int:
    """B from one address to another."""
    return 0x14000000 | (to - at >> 2) & 0x3FFFFFF


def symbols(vmlinux: Path) -> list[tuple[int, str]]:
    """All symbols by address."""
    lines = subprocess.run(["nm", "-n", vmlinux], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(int(words[0], 16), words[2]) for words in map(str.split, lines) if len(words) == 3]


def edit(kernel: Path, function: str, which, becomes, result: Path) -> int:
    """Writes ``kernel``'s Image with each of ``which`` in the function as what it ``becomes``, one instruction or a
    list of them; says how many. Of several static functions of one name ``function#1`` is the second, by address."""
    known = symbols(kernel / "vmlinux")
    text = next(address for address, name in known if name == "_text")
    function, _, number = function.partition("#")
    first = [address for address, name in known if name == function][int(number or 0)]
    end = min(address for address, _ in known if address > first)
    spare = next(address for address, name in known if name == SPARE) - text
    image = bytearray((kernel / "Image").read_bytes())
    changed = 0
    for place in range(first - text, end - text, 4):
        (opcode,) = struct.unpack_from("<I", image, place)
        if which(opcode):
            new = becomes(opcode)
            if isinstance(new, list):
                there = [*new, branch(spare + 4 * len(new), place + 4)]
                struct.pack_into(f"<{len(there)}I", image, spare, *there)
                new, spare = branch(place, spare), spare + 4 * len(there)
            struct.pack_into("<I", image, place, new)
            changed += 1
    result.write_bytes(image)
    return changed
