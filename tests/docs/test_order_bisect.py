# SPDX-License-Identifier: GPL-2.0-only
"""The how-to page's bisect of an order choice, on kernels of which the later ones prefer a smaller order."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from command import ROOT
from kernel_edits import edit
from laboratory import Said
from test_campaign_bisect import COMMITS, WRONG, Branch, branch, run
from test_readme import commands

__all__ = ["branch", "run"]

pytestmark = [pytest.mark.qemu, pytest.mark.timeout(1200)]

PAGE = ROOT / "docs" / "how-to" / "campaigns.md"
#: MOV of 4, and of 2, to w0.
ORDER_4, ORDER_2 = 0x52800080, 0x52800040


def test_the_commit_from_which_faults_get_another_order(
    branch: Branch, run: Callable[..., Said], tmp_path: Path
) -> None:
    """Each command of the section finds it, and the second boots nothing; counts and map are those of the page."""
    kernel, wrong = ROOT / "out" / "kernel-4k", tmp_path / "Image"
    assert edit(kernel, "arch_wants_pte_order", lambda opcode: opcode == ORDER_4, lambda _: ORDER_2, wrong) == 1
    for number, commit in enumerate(branch.commits):
        branch.tree.prebuilt(commit, wrong if number >= WRONG else kernel / "Image")
    section = PAGE.read_text().partition("## Bisect an order choice\n")[2].partition("\n## ")[0]
    lines = commands(section)
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(line.removeprefix("out/folioscope bisect v6.12 topic --tree ~/linux "))
        said = run(f"main~{COMMITS}", "main", *words, "--jobs", 1)
        assert said.status == 0, said
        assert f"first with {branch.commits[WRONG]}\n" in said.out
        (shown,) = re.findall(r"^```\n(.*?)^```$", section, re.M | re.S)
        assert not [part for part in shown.splitlines() if part != "[...]" and part not in said.out], said.out
    assert ", 0 cells run, " in said.out
