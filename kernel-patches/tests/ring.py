#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Reads the per-CPU rings of a running guest from outside, through QEMU's gdbstub, and checks their layout.

Usage: ring.py VMLINUX GDB_SOCKET
"""

import math
import os
import socket
import struct
import subprocess
import sys

MAGIC = int.from_bytes(b"fao_ring", "little")
RECORD = struct.Struct("<6Q2IBbbB4s16sQIB3sQHB5s16s")
COUNTS_MAGIC = int.from_bytes(b"ao_count", "little")
# Policies, paths, orders and none, reasons.
COUNTS = (6, 8, 17, 21)
POLICIES = ["sysfs", "baseline", "simple", "variable", "retry", "adaptive"]
# 5 and 6 were never used.
PATHS = {0, 1, 2, 3, 4, 7}
# Those that ask the policy; for the others controls choose, or nobody.
BY_POLICY = {0, 1, 2}
NOWHERE = 2**64 - 1


class Stub:
    """As much of the gdb remote protocol as reading memory takes."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(path)
        self.ask("?")

    def ask(self, text):
        self.socket.sendall(f"${text}#{sum(text.encode()) & 0xFF:02x}".encode())
        reply = b""
        while reply[-3:-2] != b"#":
            reply += self.socket.recv(65536)
        self.socket.sendall(b"+")
        return reply[reply.index(b"$") + 1 : -3].decode()

    def read(self, address, length):
        data = b""
        while len(data) < length:
            at = (address + len(data)) % 2**64
            reply = self.ask(f"m{at:x},{min(1024, length - len(data)):x}")
            assert reply and not reply.startswith("E"), f"cannot read {at:#x}: {reply!r}"
            data += bytes.fromhex(reply)
        return data


def symbols(vmlinux):
    """The addresses of vmlinux's symbols by name."""
    nm = os.environ.get("CROSS_COMPILE", "aarch64-linux-gnu-") + "nm"
    lines = subprocess.run([nm, vmlinux], check=True, capture_output=True, text=True).stdout.splitlines()
    return {fields[2]: int(fields[0], 16) for fields in map(str.split, lines) if len(fields) == 3}


def check_ring(ring, cpu):
    """Asserts what README.md says of a ring; the number of records and of policies seen."""
    magic, record_size, nr_records, written = struct.unpack_from("<QIIQ", ring)
    assert magic == MAGIC, f"CPU {cpu}: magic {magic:#x}"
    assert (record_size, nr_records) == (RECORD.size, 256) == (128, 256), f"CPU {cpu}: {record_size}, {nr_records}"
    seen = set()
    for number in range(max(1, written - 255), written + 1):
        fields = RECORD.unpack_from(ring, 24 + RECORD.size * ((number - 1) % 256))
        seq, time, address, start, end, mm, tgid, tid, policy, preferred, chosen, flags, pad, reason = fields[:14]
        pfn, allowed, path, pad2, overlap, run, trust, pad3, free = fields[14:]
        where = f"CPU {cpu}, record {number}: {fields}"
        assert seq == number and time and mm >> 48 and tgid and tid, where
        assert start <= address < end and policy < len(POLICIES) and flags < 8 and pad == bytes(4), where
        assert -1 <= chosen <= max(preferred, 0) < 16, where
        assert path in PATHS and (path in BY_POLICY or policy == 0) and pad2 == bytes(3) and (pfn == NOWHERE) == (chosen < 0), where
        assert overlap == NOWHERE or start <= overlap < end and 6 in reason, where
        # What was remembered is of policy adaptive: four dense probes at most, five faults with nothing beside them.
        assert policy == 5 or (run, trust, flags & 4) == (0, 0, 0), where
        assert trust & 7 <= 4 and trust >> 3 <= 5 and run <= 1 << max(preferred, 0) and pad3 == bytes(5), where
        assert 7 in reason or free == bytes(16), where
        assert allowed < 1 << 16 and (chosen <= 0 or allowed >> chosen & 1), where
        assert [o for o in range(16) if reason[o] == 1] == ([chosen] if chosen >= 0 else []), where
        # Under sysfs the controls are asked for every order.
        assert policy == 0 or not any(reason[preferred + 1 :]), where
        assert chosen < 0 or all(reason[chosen : preferred + 1]) and not any(reason[:chosen]), where
        assert all(r <= 20 for r in reason) and (chosen >= 0 or any(r in (7, 8, 9, 10) for r in reason)), where
        seen.add(POLICIES[policy])
    return written, seen


def check_counts(counts, cpu, written):
    """Asserts what README.md says of the counts of a CPU that has written so many records; how many are not 0."""
    magic, *dimensions = struct.unpack_from("<Q4H", counts)
    assert (magic, *dimensions) == (COUNTS_MAGIC, *COUNTS), f"CPU {cpu}: magic {magic:#x}, {dimensions}"
    cells = struct.unpack_from(f"<{math.prod(COUNTS)}Q", counts, 16)
    assert sum(cells) == written, f"CPU {cpu}: {sum(cells)} counted, {written} records"
    return sum(map(bool, cells))


def main():
    vmlinux, path = sys.argv[1:]
    at = symbols(vmlinux)
    stub = Stub(path)
    total, decisions, seen = 0, 0, set()
    for cpu in range(2):
        offset = int.from_bytes(stub.read(at["__per_cpu_offset"] + 8 * cpu, 8), "little")
        ring, table = (
            int.from_bytes(stub.read(at[name] + offset, 8), "little") for name in ("anon_order_ring", "anon_order_table")
        )
        assert ring and table, f"CPU {cpu}: nothing is allocated, though records are kept"
        written, policies = check_ring(stub.read(ring, 24 + RECORD.size * 256), cpu)
        decisions += check_counts(stub.read(table, 16 + 8 * math.prod(COUNTS)), cpu, written)
        total += written
        seen |= policies
    assert total > 512 and decisions > 2, (total, decisions)
    print(f"# rings: {total} records written, {decisions} decisions counted, policies among the last: {' '.join(sorted(seen))}")


main()
