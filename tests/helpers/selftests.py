# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own mm selftests in a guest: which there are, how one is run there, and what it said.

What is run, and with what, is what `run_vmtests.sh` of the pinned kernel runs on arm64, with sizes for a guest of
2 GiB. The guest's init (vmm/setup/selftests.sh) runs one program at a time, each from the same knobs.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from command import BOOT_SECONDS, ROOT, wait_until
from own_qemu import Foreign

# The exit status of a program that cannot run here (kselftest.h), and of one that `timeout` has killed.
SKIPPED = 4
KILLED = 128 + 9


@dataclass(frozen=True)
class Selftest:
    """A program, its arguments, what it may take unwatched, and the hugetlb memory that it wants."""

    words: str
    seconds: int = 60
    mib: int = 0
    # Whether it is one of those that always run.
    short: bool = False

    @property
    def program(self) -> str:
        """Its name without arguments."""
        return self.words.split()[0]

    def __str__(self) -> str:
        return self.words


SELFTESTS = [
    Selftest("hugepage-mmap", mib=256),
    Selftest("hugepage-shm", mib=256),
    Selftest("map_hugetlb", mib=256),
    Selftest("hugepage-mremap", mib=256, short=True),
    Selftest("hugepage-vmemmap", mib=256),
    # It wants twenty pages, whatever their size.
    Selftest("hugetlb-madvise", mib=640, short=True),
    Selftest("hugetlb_dio", mib=256),
    # Ten thousand times two threads are more than they can do in this time; the first show as much as all.
    Selftest("hugetlb_fault_after_madv", seconds=20, mib=2),
    Selftest("hugetlb_madv_vs_map", mib=2),
    Selftest("map_fixed_noreplace"),
    Selftest("gup_test -u"),
    Selftest("gup_test -a"),
    Selftest("gup_test -ct -F 0x1 0 19 0x1000"),
    Selftest("gup_longterm", mib=256, short=True),
    # All at once it takes half an hour here.
    *(
        Selftest(f"uffd-unit-tests -f {part}", seconds=300, mib=256)
        for part in ("register", "zeropage", "move", "wp-", "minor", "sigbus", "events", "poison")
    ),
    Selftest("uffd-stress anon 20 16", seconds=120),
    Selftest("uffd-stress hugetlb 128 32", seconds=120, mib=256),
    Selftest("uffd-stress hugetlb-private 128 32", seconds=120, mib=256),
    Selftest("uffd-stress shmem 20 16", seconds=120),
    Selftest("uffd-stress shmem-private 20 16", seconds=120),
    Selftest("compaction_test", seconds=120),
    Selftest("on-fault-limit"),
    Selftest("map_populate"),
    Selftest("mlock-random-test"),
    Selftest("mlock2-tests", short=True),
    Selftest("mrelease_test"),
    Selftest("mremap_test", seconds=300),
    Selftest("thuge-gen", mib=256),
    Selftest("virtual_address_range", seconds=300),
    Selftest("va_high_addr_switch", mib=12),
    Selftest("va_high_addr_switch --run-hugetlb", mib=12),
    Selftest("mremap_dontunmap", short=True),
    Selftest("madv_populate", short=True),
    Selftest("memfd_secret"),
    Selftest("ksm_tests -H -s 100", seconds=120),
    Selftest("ksm_tests -P -s 100", seconds=120),
    Selftest("ksm_tests -M -p 10", short=True),
    Selftest("ksm_tests -U"),
    Selftest("ksm_tests -Z -p 10 -z 0"),
    Selftest("ksm_tests -Z -p 10 -z 1"),
    Selftest("ksm_tests -N -m 1"),
    Selftest("ksm_tests -N -m 0"),
    Selftest("ksm_functional_tests"),
    Selftest("pagemap_ioctl", seconds=120, mib=64),
    # Ours, of the series.
    Selftest("anon_order", short=True),
    Selftest("cow", seconds=300, mib=64),
    Selftest("khugepaged", seconds=300),
    Selftest("khugepaged -s 2", seconds=300),
    Selftest("transhuge-stress -d 20"),
    # It then fills a file nine times by single bytes, and finds that this file system has no large folios.
    Selftest("split_huge_page_test", seconds=20),
    Selftest("migration", seconds=180, mib=256),
    Selftest("mkdirty", short=True),
    Selftest("mdwe_test"),
    Selftest("mseal_test"),
    Selftest("seal_elf"),
    Selftest("droppable"),
    Selftest("protection_keys", mib=64),
    # Those that poison memory come last: what they poison stays so.
    Selftest("hugetlb-soft-offline", mib=256),
    Selftest("hugetlb-read-hwpoison", mib=256),
]


@dataclass
class Outcome:
    """How a program has ended, and what it wrote."""

    status: int
    runs: int
    output: str
    seconds: float

    @property
    def missing(self) -> bool:
        """Whether there is no such program."""
        return self.runs == 0

    @property
    def left_out(self) -> bool:
        """Whether it has nothing to do on this kernel or CPU; some say so by a status, some in words."""
        nothing = re.search(r"^# Totals: pass:0 fail:0 |unsupported CPU/OS", self.output, re.MULTILINE)
        return self.status == SKIPPED or (self.status == 0 and nothing is not None)

    @property
    def word(self) -> str:
        """Its own verdict."""
        if self.left_out:
            return "skipped" if self.status else "passed, with nothing to do"
        return {0: "passed", KILLED: "timed out"}.get(self.status, f"failed ({self.status})")

    @property
    def bad(self) -> int:
        """How bad it is, to be compared."""
        return {0: 0, SKIPPED: 1, KILLED: 3}.get(self.status, 2)

    @property
    def failed(self) -> set[str]:
        """The parts of it that failed, where it says so by TAP."""
        return {
            re.sub(r"0x[0-9a-f]+|\d{3,}", "N", name)
            for name in re.findall(r"^(?:# )?not ok \d+ ?(.*)$", self.output, re.MULTILINE)
        }


@cache
def initramfs() -> Path:
    """The programs and what runs them, from the cache or built."""
    script = ROOT / "vmm" / "setup" / "selftests.sh"
    made = subprocess.run([script], check=False, capture_output=True, text=True, timeout=900)
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


class Runner(Foreign):
    """A guest that runs selftests when it is told to."""

    def __init__(self, place: Path, kernel: Path, memory: str = "2G", *more: str) -> None:
        self.control = place / "control.sock"
        told = ("-serial", f"unix:{self.control},server=on,wait=off")
        # With fewer CPUs those that migrate leave themselves out.
        words = ["rdinit=/selftests", "numa=fake=2", *more]
        super().__init__(place, kernel, initramfs(), *words, cpus=3, memory=memory, devices=told)

    def __enter__(self) -> Runner:
        super().__enter__()
        wait_until(self.control.is_socket, BOOT_SECONDS)
        self.line = socket.socket(socket.AF_UNIX)
        self.line.settimeout(2 * BOOT_SECONDS)
        self.line.connect(str(self.control))
        self.file = self.line.makefile("rb")
        ready = self.file.readline()
        assert ready.startswith(b"ready "), self.said()
        return self

    def __exit__(self, *ended: object) -> None:
        self.file.close()
        self.line.close()
        super().__exit__(*ended)

    def run(self, selftest: Selftest, seconds: int = 0, expected: int = 0, patience: int = 1) -> Outcome:
        """Runs it, and while it ends as expected again for so long; ``patience`` times what it may take is the end."""
        started, deadline = time.monotonic(), selftest.seconds * patience + seconds
        self.line.sendall(f"{seconds} {expected} {deadline} {selftest.mib} {selftest.words}\n".encode())
        # The guest's own time goes on only while it runs.
        self.line.settimeout(patience * deadline + BOOT_SECONDS)
        head = self.file.readline().split()
        assert head and head[0] == b"output", (head, self.said()[-4000:])
        output = self.file.read(int(head[1])).decode(errors="replace")
        end = self.file.readline().split()
        assert end[:1] == [b"ended"], (end, self.said()[-4000:])
        return Outcome(int(end[1]), int(end[2]), output, time.monotonic() - started)
