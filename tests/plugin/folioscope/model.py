# SPDX-License-Identifier: GPL-2.0-only
"""What the command and the guest say, as values: addresses and words are numbers here, whatever they are in JSON.

A field that is not known here is left out, so that a newer command can say more.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

Raw = Mapping[str, Any]


def number(text: str | int) -> int:
    """A word or an address: the host writes strings, in hexadecimal, as JSON's numbers lose bits; the guest numbers."""
    return int(text, 16) if isinstance(text, str) else text


def plain(cls: type[Any], raw: Raw, *but: str) -> dict[str, Any]:
    """The fields of a value that are in JSON as they are here; what is absent there is None."""
    return {field.name: raw.get(field.name) for field in fields(cls) if field.name not in but}


class Fields:
    """Lets a value be asked by a field's name too, as JSON is."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


@dataclass(frozen=True, slots=True)
class Who(Fields):
    """A process of the guest, as a finding names it."""

    pid: int
    name: str


@dataclass(frozen=True, slots=True)
class Finding(Fields):
    """What a rule says of one place in the tables."""

    rule: str
    """The rule's id: A1 to A8, L1 to L12, C1, C2, K1, K2, W1, ... (`docs/`), or `order` for an order that was
    expected."""
    severity: Literal["error", "information"]
    message: str
    """One sentence: what is, and what should have been."""
    process: Who | None
    """The process of the tables; None for the kernel's."""
    va: int
    """The first virtual address."""
    end: int
    """The first virtual address after it."""
    level: int
    """The lookup level of the entries."""
    table: int
    """The physical address of their table."""
    index: int
    """The index of the first of `words` in it."""
    words: tuple[int, ...]
    """The raw descriptors of the whole group."""
    remarks: tuple[str, ...] = ()
    """What else is known: the commit that mends it, or that the rule was not tried on a kernel as new as this."""
    places: int = 1
    """The number of places with the same cause: findings of one cause are one."""

    @classmethod
    def read(cls, raw: Raw) -> Finding:
        """From JSON."""
        who = raw.get("process")
        return cls(
            rule=raw["rule"],
            severity=raw["severity"],
            message=raw["message"],
            process=Who(who["pid"], who["name"]) if who else None,
            va=number(raw["va"]),
            end=number(raw["end"]),
            level=raw["level"],
            table=number(raw["table"]),
            index=raw["index"],
            words=tuple(map(number, raw["words"])),
            remarks=tuple(raw.get("remarks", ())),
            places=raw.get("places", 1),
        )

    def __str__(self) -> str:
        who = f" in process {self.process.pid} ({self.process.name})" if self.process else ""
        return "; ".join([f"{self.rule} at {self.va:#x}{who}: {self.message}", *self.remarks])


@dataclass(frozen=True, slots=True)
class Entry(Fields):
    """One descriptor that is not zero and leads to no table."""

    va: int
    """The first virtual address that it maps."""
    level: int
    """The lookup level: 3 for a page."""
    word: int
    """The raw descriptor."""
    address: int
    """The physical address of the descriptor itself."""
    output_address: int | None
    """The physical address that it maps; None where it is not valid."""
    contiguous: bool
    """Bit 52 of a valid descriptor."""

    @classmethod
    def read(cls, raw: Raw) -> Entry:
        """From JSON."""
        output = raw.get("output_address")
        return cls(
            va=number(raw["va"]),
            level=raw["level"],
            word=number(raw["word"]),
            address=number(raw["address"]),
            output_address=None if output is None else number(output),
            contiguous=raw["contiguous"],
        )


@dataclass(frozen=True, slots=True)
class Adapted(Fields):
    """What policy ``adaptive`` went by in a fault, and remembered of the VMA after it."""

    run: int
    """Pages touched in a row right beside the fault, at most those of the largest order."""
    trust: int
    """Dense probes since the last one that was not."""
    spent: int
    """Faults of a hinted VMA with nothing beside them."""
    probe: bool
    """The fault was in a block that probes."""

    @classmethod
    def read(cls, raw: Raw) -> Adapted:
        """From JSON."""
        return cls(run=raw["run"], probe=raw["probe"], **raw["state"])


@dataclass(frozen=True, slots=True)
class Record(Fields):
    """Why a fault got the order that it got: the kernel's own record (``kernel-patches/README.md``)."""

    seq: int
    """The number of the record, from 1, by CPU."""
    cpu: int
    time_ns: int
    """The kernel's clock, in nanoseconds."""
    address: int
    """The faulting address."""
    vm_start: int
    """The first address of the VMA at that time."""
    vm_end: int
    """The first address after it."""
    tgid: int
    """The process."""
    tid: int
    """The thread."""
    policy: str
    """The policy that chose; `sysfs` where controls choose under every policy."""
    preferred: int | None
    """The order that the architecture prefers for this VMA; None where the policy asks for none."""
    chosen: int | None
    """The order that was allocated; None where the fault ended without a folio."""
    hinted: bool
    """The VMA had MADV_HUGEPAGE."""
    userfaultfd: bool
    """The VMA was registered with userfaultfd."""
    reasons: tuple[str, ...]
    """By order, 0 to 15: the result for it (`chosen`, `not-allowed`, `crosses-start`, `overlap`, ...)."""
    path: str
    """The path of the kernel that chose the order: `anonymous`, `swap-in`, ..."""
    pfn: int | None
    """The folio's first page frame; None without a folio, and where the kernel does not say."""
    allowed: tuple[int, ...] | None
    """The orders that were allowed before it was asked where they fit; None where the kernel does not say."""
    overlap: int | None
    """The address of the first populated page in the way of the largest order that one was in the way of; None where
    there was none."""
    adapted: Adapted | None
    """What policy `adaptive` went by; None under another policy."""
    free: tuple[int, ...] | None
    """Free blocks by order, at most 255, where an order could not be allocated; None elsewhere."""

    @classmethod
    def read(cls, raw: Raw) -> Record:
        """From JSON."""
        return cls(
            address=number(raw["address"]),
            vm_start=number(raw["vm_start"]),
            vm_end=number(raw["vm_end"]),
            reasons=tuple(raw["reasons"]),
            allowed=None if raw["allowed"] is None else tuple(raw["allowed"]),
            overlap=None if raw["overlap"] is None else number(raw["overlap"]),
            adapted=None if raw["adapted"] is None else Adapted.read(raw["adapted"]),
            free=None if raw["free"] is None else tuple(raw["free"]),
            **plain(cls, raw, "address", "vm_start", "vm_end", "reasons", "allowed", "overlap", "adapted", "free"),
        )


@dataclass(frozen=True, slots=True)
class Again(Fields):
    """A look that was to read only tables that were written to since the one before."""

    read: tuple[int, int] | None
    """How many tables were read, and how many there are; None where all were read."""
    whole_because: str | None
    """Why all were read; None where they were not."""

    @classmethod
    def read_from(cls, raw: Raw) -> Again:
        """From JSON."""
        if "read" in raw:
            return cls((raw["read"]["tables"], raw["read"]["of"]), None)
        return cls(None, raw["whole"]["because"])


@dataclass(frozen=True, slots=True)
class Touched(Fields):
    """What a touch did."""

    steps: int
    """The steps that it made."""
    minor_faults: int
    """Minor faults of the process meanwhile."""
    major_faults: int
    """Major faults."""
    nanoseconds: int
    """The time that it took."""
    loaded: int
    """The exclusive or of all words that were loaded."""

    @classmethod
    def read(cls, raw: Raw) -> Touched:
        """From JSON."""
        return cls(**plain(cls, raw))


@dataclass(frozen=True, slots=True)
class Mismatch(Fields):
    """A word that is not what it should be."""

    address: int
    expected: int
    """The word that was written."""
    found: int
    """The word that was read."""


@dataclass(frozen=True, slots=True)
class Verified(Fields):
    """What a verification found: how many words were compared, how many were wrong, and the first of those."""

    words: int
    """Words that were compared."""
    wrong: int
    """Words that differed."""
    first: tuple[Mismatch, ...]
    """The first of these."""

    @classmethod
    def read(cls, raw: Raw) -> Verified:
        """From JSON."""
        first = tuple(Mismatch(each["address"], each["expected"], each["found"]) for each in raw["first"])
        return cls(raw["words"], raw["wrong"], first)


def text_of(content: Raw) -> str:
    """A text of the guest; what is not UTF-8 is replaced."""
    return bytes_of(content).decode(errors="replace")


def bytes_of(content: Raw) -> bytes:
    """Bytes of the guest: as text where they are UTF-8, else in base64."""
    if "text" in content:
        return str(content["text"]).encode()
    return base64.b64decode(content["base64"])


@dataclass(frozen=True, slots=True)
class Program(Fields):
    """What a program of the guest did."""

    status: int | None
    """Its exit status; None where a signal ended it."""
    signal: str | None
    """The signal's name; None where there was none."""
    stdout: str
    stderr: str
    truncated: bool
    """More was written to one of the two than is given here."""

    @classmethod
    def read(cls, raw: Raw) -> Program:
        """From JSON."""
        how = raw["how"]
        return cls(
            status=how["exit"]["status"] if "exit" in how else None,
            signal=how["signal"]["name"] if "signal" in how else None,
            stdout=text_of(raw["stdout"]),
            stderr=text_of(raw["stderr"]),
            truncated=raw["truncated"],
        )


@dataclass(frozen=True, slots=True)
class MthpSize(Fields):
    """One size of transparent huge pages, and what is chosen for it; None where the size cannot have it."""

    size_kib: int
    """KiB."""
    enabled: str | None
    """The choice in `enabled`."""
    shmem_enabled: str | None
    """The choice in `shmem_enabled`."""


@dataclass(frozen=True, slots=True)
class Hello(Fields):
    """Who the guest is. What its kernel does not have is None or empty."""

    protocol: int
    """The version of the agent's protocol."""
    agent_version: str
    kernel_release: str
    """As `uname -r`."""
    kernel_version: str
    """As `uname -v`."""
    machine: str
    """As `uname -m`."""
    build_id: str | None
    """The kernel's build id."""
    cmdline: str
    """The kernel's command line."""
    page_size: int
    """Bytes."""
    cpus: int
    """CPUs that are online."""
    agent_cpu: int
    memory_bytes: int
    """MemTotal of `/proc/meminfo`."""
    thp_enabled: str | None
    """The choice in `transparent_hugepage/enabled`."""
    thp_shmem_enabled: str | None
    """The choice in `transparent_hugepage/shmem_enabled`."""
    mthp: tuple[MthpSize, ...]
    """The sizes of transparent huge pages."""
    hugetlb: dict[int, int]
    """Number of hugetlb pages, by their size in KiB."""
    anon_order_policy: str | None
    """The order policy in force on a kernel with Folioscope's patches."""
    switches: dict[str, str]
    """What else its patches let be switched, by the names of the files (``anon_order/*``, ``page_cache``)."""
    mounts: tuple[str, ...]
    channel: str
    uptime_ms: int

    @property
    def release(self) -> tuple[int, ...]:
        """The numbers of ``kernel_release``, to be compared."""
        return tuple(map(int, re.findall(r"\d+", self.kernel_release.split("-")[0].split("+")[0])))

    @classmethod
    def read(cls, raw: Raw) -> Hello:
        """From JSON."""
        sizes = [MthpSize(s["size_kib"], s.get("enabled"), s.get("shmem_enabled")) for s in raw["mthp"]]
        return cls(
            mthp=tuple(sizes),
            hugetlb={size["size_kib"]: size["pages"] for size in raw["hugetlb"]},
            mounts=tuple(raw["mounts"]),
            **plain(cls, raw, "mthp", "hugetlb", "mounts"),
        )
