# SPDX-License-Identifier: GPL-2.0-only
"""What a status of 0 asserts: of a guest that lacks something a command ends with 2, and says first what it lacks.

docs/exit-status.md has the same table. A lack is made where it would be: in the memory of a guest in a QEMU of one's
own, of which cores are taken, and in the kernel's image for the commands that boot one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from folioscope.rig import Rig, Wanted

from command import Ended, Running, folioscope
from held_guest import Held
from own_qemu import KERNEL, MEMFD, Guest, Qemu

pytestmark = pytest.mark.qemu

RELEASE = (KERNEL / "release").read_text().strip()
# `struct btf_header`: magic, version, flags, hdr_len (include/uapi/linux/btf.h).
BTF = bytes.fromhex("9feb010018000000")
# The tokens of the digits, by which kallsyms' table is known (scripts/kallsyms.c).
DIGITS = b"".join(b"%d\0" % digit for digit in range(10))
OLD = "6.1." + "9" * (len(RELEASE) - 4)

LINUX = {f"L{number}" for number in range(1, 20)} - {"L11", "L17"}
KERNEL_HALF = {"K1", "K2"}
UNKNOWN = "which processes the guest has is not known, so not all were judged: "
NO_TYPES = "the kernel's types were not found in its memory (CONFIG_DEBUG_INFO_BTF): "
NO_FOLIOS = "L2, L7, L9, L10, L12 to L16, L18, L19, C4 to C7 and what L8 says of folios were not judged: "
NOT_APPLIED = "Linux's own rules were not applied: "


class Lack(NamedTuple):
    """What a kernel lacks."""

    name: str
    # The bytes that it has, and those that take their place.
    has: bytes
    instead: bytes
    # How the reason begins where every process is asked for, and where one that waits at a checkpoint is.
    of_all: str
    of_one: str
    # The rules that are not in force for it where every process is asked for.
    without: set[str]

    def made(self, data: bytes) -> bytes:
        """The same without it."""
        assert len(self.has) == len(self.instead) and self.has in data
        return data.replace(self.has, self.instead)


LACKS = [
    Lack(
        "no BTF",
        *(BTF, bytes(8)),
        of_all=UNKNOWN + NO_TYPES + "Invalid BTF magic",
        of_one=NO_FOLIOS + NO_TYPES + "Invalid BTF magic",
        without=LINUX | KERNEL_HALF | {"V1"},
    ),
    Lack(
        "no kallsyms",
        *(DIGITS, DIGITS.replace(b"0", b".")),
        of_all=UNKNOWN + NO_TYPES + "the kernel's symbols were not found",
        of_one=NO_FOLIOS + NO_TYPES + "the kernel's symbols were not found",
        without=LINUX | KERNEL_HALF | {"V1"},
    ),
    Lack(
        "no release",
        *(RELEASE.encode(), b"x" * len(RELEASE)),
        of_all=NOT_APPLIED + "the kernel's release is not known",
        of_one=NOT_APPLIED + "the kernel's release is not known",
        without=LINUX | KERNEL_HALF,
    ),
    Lack(
        "6.1",
        *(RELEASE.encode(), OLD.encode()),
        of_all=NOT_APPLIED + f"kernel {OLD} lays its software bits out differently from 6.11",
        of_one=NOT_APPLIED + f"kernel {OLD} lays its software bits out differently from 6.11",
        without=LINUX | KERNEL_HALF,
    ),
    Lack(
        "no VMAs",
        *(b"\0vm_area_struct\0", b"\0xx_area_struct\0"),
        of_all=UNKNOWN + "this kernel has no struct vm_area_struct",
        of_one=NO_FOLIOS + "this kernel has no struct vm_area_struct",
        without=LINUX,
    ),
    Lack(
        "locks of an unknown kind",
        *(b"\0mmap_lock\0", b"\0xxxx_lock\0"),
        of_all=UNKNOWN + "this kernel has no struct mm_struct with mmap_lock",
        of_one=NO_FOLIOS + "this kernel has no struct mm_struct with mmap_lock",
        without=LINUX,
    ),
]


def each(*in_make_test: str) -> pytest.MarkDecorator:
    """A test of each lack, of which `make test` has these."""
    mark = lambda lack: [] if lack.name in in_make_test else [pytest.mark.long]  # noqa: E731
    return pytest.mark.parametrize("lack", [pytest.param(it, marks=mark(it), id=it.name) for it in LACKS])


def not_judged(ended: Ended, report: Path, begins: str) -> dict[str, Any]:
    """The basis of a check with nothing wrong, which says so in its last line and in its JSON."""
    assert ended.status == 2, ended.out + ended.err
    said = json.loads(report.read_text())
    assert said["outcome"] == "not-judged" and said["exit_status"] == 2 and said["totals"]["errors"] == 0
    assert said["reason"].startswith(begins), said["reason"]
    assert ended.out.splitlines()[-1] == f"NOT JUDGED could not be judged: {said['reason']} (exit status 2)"
    basis: dict[str, Any] = said["steps"][0]["basis"]
    assert said["reason"] == basis["lacks"][0]
    return basis


def checked(core: Path, begins: str, *words: str) -> dict[str, Any]:
    """The same of a core."""
    report = core.with_suffix(".json")
    return not_judged(folioscope("check", core, "--json", report, *words), report, begins)


def absent(basis: dict[str, Any]) -> set[str]:
    """The rules that were asked for and not in force."""
    found = {it["rule"] for it in basis["not_in_force"] if it["because"] == "absent"}
    assert not found & set(basis["in_force"])
    return found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A guest of which no CPU is in user mode: its processes sleep."""
    with Guest(tmp_path_factory.mktemp("own"), "-M", "virt,memory-backend=ram", "-object", MEMFD) as own:
        own.command("spawn", name="asleep")
        yield own


@contextlib.contextmanager
def lacking(own: Guest, lack: Lack) -> Iterator[None]:
    """The guest, while its memory lacks it."""
    with own.ram() as memory:
        places, at = [], memory.find(lack.has)
        while at >= 0:
            places.append(at)
            memory[at : at + len(lack.has)] = lack.instead
            at = memory.find(lack.has, at + 1)
        assert places, f"this guest has no {lack.has!r}"
        try:
            yield
        finally:
            for at in places:
                memory[at : at + len(lack.has)] = lack.has


def test_guest_that_lacks_nothing(own: Guest, tmp_path: Path) -> None:
    """Status 0, by positive statements: each address space judged, each rule in force that is asked of such a guest."""
    report, cores = tmp_path / "live.json", [tmp_path / "tables.core", tmp_path / "full.core"]
    assert own.attach("check", "--json", report).status == 0
    own.attach("save", cores[0]).ok()
    own.attach("save", "--full", cores[1]).ok()
    cores += theirs(own, tmp_path)
    for core in cores:
        ended = folioscope("check", core, "--json", core.with_suffix(".json"))
        assert ended.status == 0 and ended.out.endswith("\nok no error found (exit status 0)\n"), ended.out
    for path in (report, *(core.with_suffix(".json") for core in cores)):
        basis = json.loads(path.read_text())["steps"][0]["basis"]
        assert len(basis["judged"]) == basis["known"] == 2 and not basis["lacks"], path
        assert {it["name"] for it in basis["judged"]} == {"init", "asleep"} and basis["kernel_half"]
        assert absent(basis) == set() and basis["kernel"]["linux_rules"]
        assert LINUX | KERNEL_HALF | {"V1"} <= set(basis["in_force"])


def theirs(own: Guest, place: Path) -> list[Path]:
    """QEMU's own cores of the guest: ELF, and compressed as a crash kernel's makedumpfile does it."""
    cores = {"elf": place / "theirs.core", "kdump-zlib": place / "theirs.kdump"}
    own.ask("stop")
    for form, core in cores.items():
        own.ask("dump-guest-memory", paging=False, protocol=f"file:{core}", format=form)
    own.ask("cont")
    return list(cores.values())


@each(*(lack.name for lack in LACKS))
def test_attach_and_its_cores(own: Guest, lack: Lack, tmp_path: Path) -> None:
    """Live, in a core of its tables, in one of all RAM, in QEMU's own: the same reason, and the same rules."""
    report, cores = tmp_path / "live.json", [tmp_path / "tables.core", tmp_path / "full.core"]
    with lacking(own, lack):
        live = not_judged(own.attach("check", "--json", report), report, lack.of_all)
        own.attach("save", cores[0]).ok()
        own.attach("save", "--full", cores[1]).ok()
        foreign = theirs(own, tmp_path)
    assert absent(live) == lack.without, live["not_in_force"]
    for basis in (checked(core, lack.of_all) for core in cores):
        assert absent(basis) == lack.without and basis["lacks"] == live["lacks"]
    for basis in (checked(core, lack.of_all) for core in foreign):
        # What is not known there has the same reason, but for where the symbols were looked for.
        assert absent(basis) == lack.without and len(basis["lacks"]) == len(live["lacks"])


@each("no kallsyms")
def test_a_vmlinux_is_not_asked_for_where_it_is_of_no_use(own: Guest, lack: Lack, tmp_path: Path) -> None:
    """What lies in memory is found by the kernel's own symbols alone: a vmlinux brings the release and the image."""
    report = tmp_path / "live.json"
    with lacking(own, lack):
        alone = not_judged(own.attach("check", "--json", report), report, lack.of_all)
        given = own.attach("check", "--json", report, "--vmlinux", KERNEL / "vmlinux")
        basis = not_judged(given, report, lack.of_all)
    assert not [reason for reason in alone["lacks"] + basis["lacks"] if "--vmlinux" in reason]
    assert basis["kernel"]["linux_rules"] and "K1" in basis["in_force"]


@pytest.mark.parametrize("frozen", ["MMU off", "EL2"])
def test_no_kernel_to_be_seen(frozen: str, tmp_path: Path) -> None:
    """A guest that has not begun, or whose kernel runs on registers that QEMU's stub does not give."""
    (place := tmp_path / "own").mkdir()
    report, core = tmp_path / "live.json", tmp_path / "full.core"
    machine = ("-M", "virt,memory-backend=ram", "-object", MEMFD)
    if frozen == "EL2":
        machine = ("-M", "virt,memory-backend=ram,virtualization=on", *machine[2:])
        begins = "the kernel half was not judged: by CPU 0 the kernel runs at EL2"
        guest: Qemu = Guest(place, *machine)
    else:
        begins = "the kernel half was not judged"
        guest = Qemu(place, *machine, "-S", "-cpu", "max", "-m", "512M")
    with guest:
        basis = not_judged(guest.attach("check", "--json", report), report, begins)
        full = guest.attach("save", "--full", core)
    assert not basis["judged"] and not basis["kernel_half"] and basis["in_force"] == []
    assert full.status == 0, full.err
    checked(core, begins)


@pytest.fixture
def image(tmp_path: Path, lack: Lack) -> Path:
    """A kernel that lacks it from the beginning."""
    path = tmp_path / "Image"
    path.write_bytes(lack.made((KERNEL / "Image").read_bytes()))
    return path


@each("no BTF")
def test_run(image: Path, lack: Lack, tmp_path: Path) -> None:
    """The tour, whose processes wait at checkpoints."""
    report = tmp_path / "run.json"
    ended = folioscope("run", "--only", "anon", "--kernel", image, "--out", tmp_path, "--json", report)
    basis = not_judged(ended, report, lack.of_one)
    assert "A1" in basis["in_force"] and len(basis["judged"]) == 1


@each("no BTF")
def test_session_and_plugin(rig: Rig, image: Path, lack: Lack, tmp_path: Path) -> None:
    """A look that a test of one's own asks for, and the cores of a session."""
    guest = rig.guest(Wanted("4k", "max", "tcg", ("--kernel", str(image))))
    process = guest.spawn()
    process.map(guest.layout.block).write()
    with process.hold() as held:
        assert held.judge(check=False).not_judged[0].startswith(lack.of_one)
        answer = guest.call("judge", process=process.id)
        assert answer["basis"]["lacks"][0].startswith(lack.of_one) and absent(answer["basis"])
        cores = [tmp_path / "tables.core", tmp_path / "full.core"]
        guest.call("snapshot", path=str(cores[0]), pid=process.pid)
        guest.call("save_full", path=str(cores[1]), pid=process.pid)
    for core in cores:
        checked(core, lack.of_one, "--pid", str(process.pid))


@each()
def test_guest_of_boot(image: Path, lack: Lack, tmp_path: Path) -> None:
    """`check --guest`."""
    report = tmp_path / "check.json"
    with Running(["boot", "--kernel", str(image), "--out", str(tmp_path)]) as running:
        held = Held(running)
        not_judged(folioscope("check", *held.source, "--json", report), report, lack.of_one)


@each()
def test_record(image: Path, lack: Lack, tmp_path: Path) -> None:
    """Stores and TLB maintenance are judged by the architecture: a recording lacks none of these."""
    report = tmp_path / "record.json"
    ended = folioscope("record", "--only", "anon", "--kernel", image, "--out", tmp_path, "--json", report)
    assert ended.status == 0, ended.out + ended.err
    (step,) = (step for step in json.loads(report.read_text())["steps"] if step["basis"]["scope"] == "recording")
    assert step["basis"]["in_force"] == [f"S{number}" for number in range(1, 8)] and step["basis"]["lacks"] == []
