# SPDX-License-Identifier: GPL-2.0-only
"""The tutorial, command by command: its fault is in the kernel that it fetches, and in no older one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command import BOOT_SECONDS, ROOT
from recorder import Found, plugin
from test_install import examples
from test_readme import Shell, commands, replayed
from test_record_explain import sequences

pytestmark = [pytest.mark.qemu, pytest.mark.network, pytest.mark.usefixtures("plugin"), pytest.mark.timeout(2700)]
__all__ = ["plugin"]

TUTORIAL = ROOT / "docs" / "tutorial.md"
BLOCK = 64 << 10


def steps(found: list[Found]) -> set[tuple[str, ...]]:
    """The rule and the functions that broke a block and made it anew."""
    return {
        (each.rule, *re.findall(r"^  (?:broken|made) +CPU \d+ at ([\w.]+?)(?:\.constprop\.\d+)?\+", text, re.M))
        for each in found
        for text in ["\n".join(each.lines)]
    }


# The scripts are the checkout's.
SCRIPTS = {"$(vmm/": f"$({ROOT}/vmm/"}


def begun(place: Path) -> tuple[Shell, dict[str, str]]:
    """A directory with the kernel that the tutorial fetches, and where that is for make."""
    shell = Shell(place)
    # It is of the pinned kernel, and would be taken for Image-7's.
    (place / "vmlinux").unlink()
    shell.run('ln -s "$(vmm/setup/stock.sh 4k 7)" Image-7', seconds=300, **SCRIPTS)
    return shell, {"KERNEL=Image-7": f"KERNEL={place}/Image-7"}


@pytest.mark.long
def test_the_tour(tmp_path: Path) -> None:
    """Its kernel has no error in the states of the tour."""
    shell, kernel = begun(tmp_path)
    assert "ok no error found (exit status 0)" in shell.run("make run KERNEL=Image-7", 4 * BOOT_SECONDS, **kernel)


def test_the_tutorial(tmp_path: Path) -> None:
    """In its order, in one directory."""
    shell, kernel = begun(tmp_path)
    shell.run("make build KERNEL=Image-7", seconds=1800, **kernel)
    shell.run("vmm/setup/plugin.sh", seconds=300)
    assert "Linux 7." in shell.run("out/folioscope image Image-7")
    # It would play the tour that test_no_false_alarm[4k-7] plays; test_the_tour has it in full.
    planned = shell.run("make run KERNEL=Image-7", **{"make run": "make -n run"}, **kernel)
    assert f"out/folioscope run --machine auto --granule 4k --kernel '{tmp_path}/Image-7'" in planned

    line = "out/folioscope record --only unfolded --cpu cortex-a72 --kernel Image-7 --trace trace"
    said = shell.run(line, seconds=4 * BOOT_SECONDS, status=1)
    shown = steps(Found.all(TUTORIAL.read_text()))
    assert shown == {("S2", "contpte_get_and_clear_full_ptes", "__set_ptes_anysz")}
    assert shown <= steps(Found.all(said)), said
    (process,) = set(re.findall(r"^  process (\d+) \(unfolded\)$", said, re.M))
    own = {"--pid 105": f"--pid {process}"}
    line = "out/folioscope explain 0xfffff7c01000 trace --pid 105 --last 3"
    said = shell.run(line, **own)
    replayed(line, said)
    # The wrong stores are among the steps, and come before the first TLBI of their sequence.
    wrong = set(map(int, re.findall(r"^  wrong +S2 the Contiguous bit differs.* \(event (\d+)\)$", said, re.M)))
    (steps_of,) = [steps for _, steps in sequences(said) if wrong & {step.event for step in steps}]
    flush = min(step.event for step in steps_of if step.what.startswith("TLBI"))
    assert wrong and all(steps_of[0].event < event < flush for event in wrong), said

    source = {"tests/programs/": f"{ROOT}/tests/programs/"}
    line = "aarch64-linux-gnu-gcc -Os -static -nostdlib -ffreestanding tests/programs/protects.c -o protects"
    shell.run(line, **source)
    line = "out/folioscope record --cpu cortex-a72 --kernel Image-7 -- ./protects 0x70000000"
    found = Found.all(shell.run(line, seconds=4 * BOOT_SECONDS, status=1))
    own = [each for each in found if 0x7000_0000 <= each.va < 0x7000_0000 + BLOCK]
    assert own and all("(protects)" in each.lines[2] for each in own), found

    shell.run('ln -s "$(vmm/setup/stock.sh 4k 6.12)" Image-6.12', seconds=300, **SCRIPTS)
    line = "out/folioscope record --only unfolded --cpu cortex-a72 --kernel Image-6.12"
    # Debian's 6.12 has a finding at boot, which is another.
    said = shell.run(line, seconds=4 * BOOT_SECONDS, status=1)
    assert not shown & steps(Found.all(said)), said

    (shell.place / "test_protect.py").write_text(examples(TUTORIAL)["test_protect.py"])
    shell.plugin()
    shell.ran.add("export FOLIOSCOPE=out/folioscope")
    shell.environment["FOLIOSCOPE"] = "out/folioscope"
    machine = {"--folioscope-cpu": "--folioscope-machine tcg --folioscope-cpu"}
    line = "venv/bin/pytest test_protect.py --folioscope-cpu cortex-a72 --folioscope-kernel Image-7"
    said = shell.run(line, seconds=4 * BOOT_SECONDS, status=1, **machine)
    assert re.search(r"^E +AssertionError: S2 the Contiguous bit differs", said, re.M), said
    assert re.search(r"^E +broken +CPU \d+ at contpte_get_and_clear_full_ptes\+", said, re.M), said
    line = "venv/bin/pytest test_protect.py --folioscope-cpu cortex-a72 --folioscope-kernel Image-6.12"
    assert "1 passed" in shell.run(line, seconds=4 * BOOT_SECONDS, **machine)
    assert set(commands(TUTORIAL.read_text())) == shell.ran
