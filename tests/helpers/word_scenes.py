# SPDX-License-Identifier: GPL-2.0-only
"""Pages of every kind in one guest, and what the guest itself says of each of them.

A scene is one page of one process and its history, built by what a program can do. The guest's own words (``maps``,
``smaps``, ``pagemap``, ``kpageflags``, ``kpagecount``) are read inside, so a test can work out from them what a command
must print. All scenes stay as they are until `Stage.close`, so one core of the guest shows them all.

    stage = Stage(guest)
    stage.build()               # every scene that this kernel can show; ``stage.missing`` says why others are not there
    scene = stage["swapped"]    # scene.pid, scene.address, scene.process
    facts = stage.facts(scene)  # facts.pagemap, facts.pfn, facts.flags, facts.count, facts.vma, facts.smaps
    stage.save(path)            # a core of all memory
    stage.close()
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from folioscope import Area, CommandFailed, Guest, Process
from folioscope.model import bytes_of

from command import wait_until

THP = "/sys/kernel/mm/transparent_hugepage"
KSM = "/sys/kernel/mm/ksm"
#: Bits of ``/proc/PID/pagemap`` (Documentation/admin-guide/mm/pagemap.rst).
PRESENT, SWAP, FILE, UFFD_WP, EXCLUSIVE = 1 << 63, 1 << 62, 1 << 61, 1 << 57, 1 << 56
FRAME = (1 << 55) - 1
#: Bits of ``/proc/kpageflags`` (include/uapi/linux/kernel-page-flags.h). 6.12 reports ``ksm`` for every anonymous page.
KPF = {
    "locked": 0, "error": 1, "referenced": 2, "uptodate": 3, "dirty": 4, "lru": 5, "active": 6, "slab": 7,
    "writeback": 8, "reclaim": 9, "buddy": 10, "mmap": 11, "anon": 12, "swapcache": 13, "swapbacked": 14,
    "compound_head": 15, "compound_tail": 16, "huge": 17, "unevictable": 18, "hwpoison": 19, "nopage": 20, "ksm": 21,
    "thp": 22, "offline": 23, "zero_page": 24, "idle": 25, "pgtable": 26,
}  # fmt: skip
#: The word that is put into pages which KSM is to merge.
SAME = 0x6B73_6D20
KSM_SECONDS = 20.0


@dataclass(frozen=True)
class Facts:
    """What the guest says of a page: all of it read inside."""

    #: The line of ``/proc/PID/maps``, or None outside every VMA; and the numbers of its ``smaps`` in KiB.
    vma: str | None
    smaps: dict[str, int]
    #: ``VmFlags``.
    vm_flags: tuple[str, ...]
    #: The entry of ``pagemap``.
    pagemap: int
    #: The page frame of a present page, ``kpagecount`` of it, and the names of its ``kpageflags``.
    pfn: int | None
    count: int | None
    flags: frozenset[str]

    @property
    def present(self) -> bool:
        """Present for Linux, so with PROT_NONE too."""
        return bool(self.pagemap & PRESENT)

    @property
    def swap(self) -> tuple[int, int] | None:
        """Type and offset of a swap entry or of anything that is encoded like one."""
        return (self.pagemap & 31, (self.pagemap & FRAME) >> 5) if self.pagemap & SWAP else None

    @property
    def start(self) -> int:
        """The VMA's first address."""
        assert self.vma
        return int(self.vma.split("-")[0], 16)

    @property
    def end(self) -> int:
        """The first address behind the VMA."""
        assert self.vma
        return int(self.vma.split("-")[1].split()[0], 16)


@dataclass
class Scene:
    """A page of a process."""

    name: str
    pid: int
    address: int
    #: The process, where the agent has started it.
    process: Process | None = None


class Missing(Exception):
    """Why a kernel cannot show a scene."""


Builder = Callable[["Stage"], Iterator[tuple[str, "Area | tuple[int, int]", int]]]
BUILDERS: list[Builder] = []


def scenes(builder: Builder) -> Builder:
    """Registers a builder: it yields a name, an area, and the page in it."""
    BUILDERS.append(builder)
    return builder


@dataclass
class Stage:
    """The scenes of a guest."""

    guest: Guest
    scenes: dict[str, Scene] = field(default_factory=dict)
    #: Builder names, and why they could not be built.
    missing: dict[str, str] = field(default_factory=dict)
    #: The swap areas in order of their types.
    swaps: list[str] = field(default_factory=list)
    #: The hugetlb areas by their sizes in KiB.
    huge: dict[int, Area] = field(default_factory=dict)
    process: Process = field(init=False)
    _undo: list[Callable[[], object]] = field(default_factory=list)

    def __getitem__(self, name: str) -> Scene:
        return self.scenes[name]

    def build(self, *only: str) -> None:
        """Builds all scenes, or those of the builders that are named."""
        self.process = self.guest.spawn("scenes")
        for builder in BUILDERS:
            name = builder.__name__
            if only and name not in only:
                continue
            try:
                for scene, at, page in builder(self):
                    if isinstance(at, Area):
                        address = at.address + page * self.guest.layout.page
                        self.scenes[scene] = Scene(scene, at.process.pid, address, at.process)
                    else:
                        self.scenes[scene] = Scene(scene, at[0], at[1] + page * self.guest.layout.page)
            except (CommandFailed, Missing) as why:
                self.missing[name] = str(why)

    def undo(self, what: Callable[[], object]) -> None:
        """Does this in the end, the last first."""
        self._undo.append(what)

    def close(self) -> None:
        """Ends all processes and undoes what was set."""
        for info in self.guest.command("processes")["processes"]["processes"]:
            self.guest.command("kill", process=info["process"])
        for what in reversed(self._undo):
            with contextlib.suppress(CommandFailed):
                what()
        self.guest.reset()

    def save(self, path: Path) -> Path:
        """A core of all of the guest's memory, while the first process waits at a checkpoint."""
        with self.process.hold():
            self.guest.call("save_full", path=str(path), pid=self.process.pid, seconds=60)
        return path

    def sh(self, script: str, **more: float) -> str:
        """A shell script of the guest that must succeed; what it printed."""
        ended = self.guest.run("/bin/busybox", "sh", "-c", script, **more)  # type: ignore[arg-type]
        if ended.status != 0:
            raise Missing(f"{script}: {ended.stderr!r}")
        return ended.stdout if isinstance(ended.stdout, str) else str(ended.stdout)

    # What the guest says.

    def number(self, path: str, at: int) -> int:
        """One 64-bit word of a file of the guest, by its index."""
        piece = self.guest.command("read_file", path=path, offset=8 * at, max=8)["file"]["content"]
        return int.from_bytes(bytes_of(piece), "little")

    def facts(self, scene: Scene) -> Facts:
        """What the guest says of a scene's page."""
        page = self.guest.layout.page
        line, smaps, flags = None, {}, ()
        # A block of smaps begins with the line of maps.
        for block in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", self.guest.read(f"/proc/{scene.pid}/smaps")):
            if not block:
                continue
            first, *rest = block.splitlines()
            start, end = (int(word, 16) for word in first.split()[0].split("-"))
            if start <= scene.address < end:
                line = first
                smaps = {name: int(kib) for name, kib in re.findall(r"(?m)^(\w+): +(\d+) kB$", block)}
                flags = tuple(rest[-1].split()[1:])
        entry = self.number(f"/proc/{scene.pid}/pagemap", scene.address // page) if line else 0
        pfn = entry & FRAME if entry & PRESENT else None
        count = words = None
        if pfn is not None:
            count, words = self.number("/proc/kpagecount", pfn), self.number("/proc/kpageflags", pfn)
        named = frozenset(name for name, bit in KPF.items() if words is not None and words >> bit & 1)
        return Facts(line, smaps, flags, entry, pfn, count, named)

    def vma_of(self, name: str) -> int:
        """The start of the first process's VMA of this name."""
        for line in self.process.maps().splitlines():
            if line.endswith(name):
                return int(line.split("-")[0], 16)
        raise Missing(f"there is no {name}")


# What is in no entry, and single pages.


@scenes
def plain(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """A written page, one that was never touched beside it, and one that was only read."""
    area = stage.process.blocks(2, hint="nohugepage")
    area.write(0, 1)
    area.read(2, 1)
    yield "written", area, 0
    yield "none", area, 1
    yield "zero-page", area, 2
    yield "empty-block", area, stage.guest.layout.cont_pages + 3
    yield "no-vma", area, -1


@scenes
def folded(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """Large folios: whole, not folded any more, partly unmapped."""
    area = stage.process.blocks(3)
    area.write()
    yield "folded", area, 5
    count = stage.guest.layout.cont_pages
    area.mprotect(["read"], count + 4, 2)
    area.mprotect(["read", "write"], count + 4, 2)
    yield "unfolded", area, count + 5
    area.madvise("dontneed", 2 * count + 3, 1)
    yield "partly", area, 2 * count
    yield "zapped", area, 2 * count + 3


@scenes
def two_vmas(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """A block with two VMAs: three pages read-only and never touched, the rest written."""
    area = stage.process.blocks(2)
    area.mprotect(["read"], 0, 3)
    area.write(3)
    yield "two-vmas-first", area, 1
    yield "two-vmas-second", area, 4
    yield "two-vmas-after", area, stage.guest.layout.cont_pages + 4


@scenes
def ends(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """A VMA that begins and ends within a block."""
    layout = stage.guest.layout
    area = stage.process.map(2 * layout.block, offset=3 * layout.page)
    area.write()
    yield "before-a-block", area, 2
    yield "behind-a-block", area, area.pages - 2


# Who has it.


@scenes
def forked(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """A folio that parent and child have, and a page of it that the child has copied."""
    area = stage.process.blocks(1)
    area.write()
    child = stage.process.fork("child")
    theirs = area.in_process(child)
    theirs.write(7, 1, salt=2)
    yield "shared-parent", area, 3
    yield "shared-child", theirs, 3
    yield "copied-parent", area, 7
    yield "copied-child", theirs, 7
    # Four pages of a folio are left, and two processes have them.
    part = stage.process.blocks(1)
    part.write()
    part.madvise("dontneed", 4, stage.guest.layout.cont_pages - 4)
    second = stage.process.fork("second")
    yield "partly-shared", part, 1
    yield "partly-shared-child", part.in_process(second), 1


@scenes
def advised(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """MADV_FREE, mlock, and PROT_NONE of a page and of a whole block."""
    free = stage.process.blocks(1, hint="nohugepage")
    free.write()
    free.madvise("free")
    yield "lazyfree", free, 2
    locked = stage.process.blocks(1)
    locked.write()
    locked.mlock()
    yield "mlocked", locked, 2
    none = stage.process.blocks(2)
    none.write()
    none.mprotect([], 0, stage.guest.layout.cont_pages)
    none.mprotect([], stage.guest.layout.cont_pages + 3, 2)
    yield "prot-none", none, 2
    yield "prot-none-page", none, stage.guest.layout.cont_pages + 3


@scenes
def moved(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """A folio at another place in its block, by mremap()."""
    layout = stage.guest.layout
    area = stage.process.blocks(1)
    area.write()
    room = stage.process.map(2 * layout.block, offset=layout.page)
    room.munmap()
    yield "moved", area.mremap(room.address), 4


@scenes
def merged(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """Two pages that KSM has merged."""
    guest, process = stage.guest, stage.process
    area = process.blocks(1, hint="nohugepage")
    area.write()
    for page in (1, 3):
        area.poke(page, [SAME])
    guest.write(f"{KSM}/sleep_millisecs", "1")
    guest.write(f"{KSM}/pages_to_scan", "1000")
    guest.write(f"{KSM}/run", "1")
    stage.undo(lambda: (guest.write(f"{KSM}/run", "2"), guest.write(f"{KSM}/run", "0")))
    area.madvise("mergeable")
    if not wait_until(lambda: guest.read(f"/proc/{process.pid}/ksm_merging_pages").strip() == "2", KSM_SECONDS):
        raise Missing("KSM merged nothing in time")
    guest.write(f"{KSM}/run", "0")
    yield "ksm", area, 3


# Blocks.


@scenes
def pmd(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """A folio of a PMD's size, mapped by a block; and another that a zapped page has split."""
    layout = stage.guest.layout
    if layout.granule == "64k":
        raise Missing("a PMD's block is half a gigabyte")
    area = stage.process.map(2 * layout.pmd)
    area.write()
    yield "pmd", area, 5
    split = layout.pmd // layout.page
    area.madvise("dontneed", split + 3, 1)
    yield "pmd-split", area, split + 40
    yield "pmd-split-hole", area, split + 3
    zero = stage.process.map(layout.pmd)
    zero.read(0, 1)
    yield "pmd-zero", zero, 9


@scenes
def hugetlb(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """A hugetlb page of each size that fits."""
    page, guest = stage.guest.layout.page, stage.guest
    for name in guest.run("/bin/busybox", "ls", "/sys/kernel/mm/hugepages").stdout.split():
        kib = int(re.sub(r"\D", "", str(name)))
        if kib > 32 << 10:
            continue
        stage.undo(lambda kib=kib: guest.hugetlb_pages(kib, 0))  # type: ignore[misc]
        if guest.hugetlb_pages(kib, 1) < 1:
            raise Missing(f"there is no hugetlb page of {kib} KiB")
        area = stage.huge[kib] = stage.process.map_hugetlb(1, kib)
        area.write(0, 1)
        yield f"hugetlb-{kib}", area, (kib << 10) // page - 3
    stage.scenes["hugetlb"] = stage.scenes[f"hugetlb-{kib}"]


# Files.


@scenes
def shared_memory(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """shmem: written, a hole, allocated and not mapped."""
    area = stage.process.map_memfd(stage.guest.layout.block)
    area.write(0, 2)
    yield "shmem", area, 1
    yield "shmem-hole", area, 5
    process, path, block = stage.process, "/tmp/scene-file", stage.guest.layout.block
    process.file_create(path, block)
    process.file_allocate(path, 0, block // 2)
    stage.undo(lambda: stage.sh(f"rm -f {path}"))
    file = process.map_file(path, block)
    yield "shmem-allocated", file, 2
    file.read(3, 1)
    yield "shmem-read", file, 3


@scenes
def files(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """A file of ramfs: its page, a private copy of another one, and one behind the file's end."""
    process, layout, path = stage.process, stage.guest.layout, "/scene-ramfs/file"
    stage.sh("mkdir -p /scene-ramfs && mount -t ramfs ramfs /scene-ramfs")
    stage.undo(lambda: stage.sh("umount /scene-ramfs"))
    process.file_create(path, layout.block)
    process.file_write(path, 0, layout.block)
    shared = process.map_file(path, 2 * layout.block)
    shared.read(0, layout.cont_pages)
    yield "file", shared, 2
    yield "behind-the-file", shared, layout.cont_pages + 2
    private = process.map_file(path, layout.block, shared=False)
    private.read()
    private.write(2, 1, salt=3)
    yield "file-private", private, 3
    yield "file-copied", private, 2


@scenes
def image(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """What every process has."""
    pid = stage.process.pid
    for name in ("[stack]", "[vdso]", "[vvar]"):
        last = next(line for line in stage.process.maps().splitlines() if line.endswith(name))
        start, end = (int(word, 16) for word in last.split()[0].split("-"))
        # The stack's used end is its top.
        yield name.strip("[]"), (pid, end - stage.guest.layout.page if name == "[stack]" else start), 0
    text = next(line for line in stage.process.maps().splitlines() if " r-xp " in line)
    yield "text", (pid, int(text.split("-")[0], 16)), 0
    yield "address-0", (pid, 0), 0


# userfaultfd and guards.


@scenes
def write_protected(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """Pages that userfaultfd write-protects, and one of shmem that is write-protected and not there."""
    area = stage.process.blocks(1, hint="nohugepage")
    area.uffd_register("write_protect")
    area.write()
    area.uffd_writeprotect(True, 0, 4)
    yield "uffd-wp", area, 2
    file = stage.process.map_memfd(stage.guest.layout.block)
    file.uffd_register("write_protect")
    file.uffd_writeprotect(True)
    yield "uffd-wp-marker", file, 2


@scenes
def guards(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """MADV_GUARD_INSTALL (6.13)."""
    area = stage.process.blocks(1)
    area.write()
    area.madvise("guard_install", 3, 2)
    yield "guard", area, 4
    yield "beside-a-guard", area, 5


POISON = Path(__file__).resolve().parents[1] / "programs" / "poison.c"


@scenes
def poisoned(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """UFFDIO_POISON (6.6), by a program of its own that the guest's agent knows nothing of."""
    line = [
        "aarch64-linux-gnu-gcc",
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-Os",
        "-s",
        "-Wl,-n,--build-id=none,--no-warn-rwx-segments",
    ]
    with tempfile.NamedTemporaryFile() as made:
        subprocess.run([*line, POISON, "-o", made.name], check=True, capture_output=True)
        built = Path(made.name).read_bytes()
    pieces = [built[at : at + 2048] for at in range(0, len(built), 2048)]
    for at, piece in enumerate(pieces):
        text = "".join(f"\\0{byte:03o}" for byte in piece)
        stage.sh(f"echo -ne '{text}' {'>>' if at else '>'} /scene-poison")
    stage.sh("chmod +x /scene-poison && { /scene-poison >/scene-poison.out 2>&1 </dev/null & }")
    stage.undo(lambda: stage.sh("rm /scene-poison /scene-poison.out"))
    read = lambda: stage.guest.read("/scene-poison.out")  # noqa: E731
    if not wait_until(lambda: "\n" in read(), KSM_SECONDS):
        raise Missing(f"the program printed {read()!r}")
    if not (found := re.fullmatch(r"(0x[0-9a-f]+) (\d+)\n", read())):
        raise Missing(read().strip())
    address, pid = int(found[1], 16), int(found[2])
    stage.undo(lambda: stage.sh(f"kill -9 {pid}"))
    yield "poison-marker", (pid, address), 2
    yield "beside-a-poison-marker", (pid, address), 1


@scenes
def broken_memory(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """A page that MADV_HWPOISON has taken away."""
    area = stage.process.blocks(1, hint="nohugepage")
    area.write()
    pfn = stage.facts(Scene("", stage.process.pid, area.address + 3 * stage.guest.layout.page)).pfn
    area.madvise("hwpoison", 3, 1)
    stage.undo(lambda: stage.guest.write("/sys/kernel/debug/hwpoison/unpoison-pfn", str(pfn)))
    yield "hwpoison", area, 3


# Swap last: what is reclaimed by it is only what was asked for.


@scenes
def swapped(stage: Stage) -> Iterator[tuple[str, Area | tuple[int, int], int]]:
    """Pages in the second of two swap areas: of one process, of two, and one that is back in the swap cache."""
    guest, areas = stage.guest, ["/dev/ram0"]
    if "zram0" in str(guest.run("/bin/busybox", "ls", "/sys/block").stdout):
        guest.write("/sys/block/zram0/disksize", str(16 << 20))
        stage.undo(lambda: guest.write("/sys/block/zram0/reset", "1"))
        areas.append("/dev/zram0")
    for path in areas:
        guest.swap_on(path)
        stage.undo(lambda path=path: guest.swap_off(path))  # type: ignore[misc]
    if len(areas) > 1:
        # The first one again: its type is free, and its priority is the lowest, so that what has type 1 is taken first.
        guest.swap_off(areas[0])
        guest.swap_on(areas[0])
    stage.swaps = areas
    area, both = stage.process.blocks(1, hint="nohugepage"), stage.process.blocks(1, hint="nohugepage")
    for each in (area, both):
        each.write()
    # MADV_PAGEOUT leaves a page that two processes map, so it goes before there is a second one.
    for each in (area, both):
        each.swap_out()
    child = stage.process.fork("swapper")
    area.in_process(child).munmap()
    yield "swapped", area, 5
    yield "swapped-shared", both, 5
    both.read(2, 1)
    yield "swap-cache", both, 2
    yield "swapped-child", both.in_process(child), 2
    # Of a hugetlb page that both have, one may not use it. Entries of level 3 stay valid, without access from EL0.
    for kib, huge in stage.huge.items():
        if kib << 10 > stage.guest.layout.block:
            theirs = huge.in_process(child)
            theirs.mprotect([])
            yield f"hugetlb-{kib}-none", theirs, 0
