# SPDX-License-Identifier: GPL-2.0-only
"""Wrong edits of the kinds of `tests/mutants`, each hidden in one of 64 harmless commits of mm and arm64: a bisect has
to find it.

Usage: python tests/helpers/hidden_edits.py PLACE [NAME...]
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command import COMMAND, ROOT
from kernel_trees import AUTHOR, COMMITTER, DATES

COMMITS = 64
#: GOOD, BAD, and as many steps as 64 commits need.
MOST_BUILDS = 8
#: What is changed without harm.
FILES = [f"mm/{name}.c" for name in (
    "filemap", "huge_memory", "madvise", "memory", "migrate", "mlock", "mmap", "mprotect", "mremap", "rmap", "shmem",
    "swap", "util", "vmscan",
)] + [f"arch/arm64/mm/{name}.c" for name in ("contpte", "context", "fault", "flush", "mmu")]  # fmt: skip
HARMLESS = """
/* Not used yet. */
static int __maybe_unused step_{number}(int value)
{{
\treturn value + {number};
}}
"""


@dataclass(frozen=True)
class Edit:
    """A wrong edit: what it replaces, and what shows it."""

    name: str
    file: str
    old: str
    new: str
    when: str
    only: str


EDITS = {
    edit.name: edit
    for edit in (
        Edit(
            "unfold",
            "arch/arm64/mm/contpte.c",
            "if (ptep != contpte_align_down(ptep) || nr < CONT_PTES) {",
            "if (ptep == contpte_align_down(ptep) && nr < CONT_PTES) {",
            'rule("L1") or rule("C2")',
            "munmap",
        ),
        Edit(
            "wrprotect",
            "arch/arm64/mm/contpte.c",
            "\t__wrprotect_ptes(mm, addr, ptep, nr);\n",
            "\t__wrprotect_ptes(mm, addr, ptep, nr - (nr > 1));\n",
            'rule("A5") or rule("L8")',
            "fork",
        ),
        Edit(
            "dirty",
            "mm/memory.c",
            "\t\tentry = pte_mkwrite(pte_mkdirty(entry), vma);\n\n\t/* Whoever mirrors",
            "\t\tentry = pte_mkwrite(entry, vma);\n\n\t/* Whoever mirrors",
            'rule("L6")',
            "anon",
        ),
        Edit(
            "parent",
            "mm/memory.c",
            "\t\twrprotect_ptes(src_mm, addr, src_pte, nr);\n",
            "\t\tif (!(src_vma->vm_flags & VM_HUGEPAGE))\n\t\t\twrprotect_ptes(src_mm, addr, src_pte, nr);\n",
            'rule("L8")',
            "fork",
        ),
        Edit(
            "rss",
            "mm/memory.c",
            "\t\tclear_full_ptes(mm, addr, pte, nr, tlb->fullmm);\n\t\trss[MM_ANONPAGES] -= nr;\n",
            "\t\tclear_full_ptes(mm, addr, pte, nr, tlb->fullmm);\n\t\trss[MM_ANONPAGES] -= 1;\n",
            'rule("L9")',
            "munmap",
        ),
        # No rule is broken: fewer pages of the program come in by a fault.
        Edit(
            "around",
            "mm/memory.c",
            "65536 >> PAGE_SHIFT;",
            "4096 >> PAGE_SHIFT;",
            "pages < 1900",
            "anon",
        ),
    )
}


class Tree:
    """A clone of the pinned source with the rig's patches."""

    def __init__(self, place: Path) -> None:
        self.place = place
        if not (place / ".git").exists():
            script = ROOT / "kernel-patches" / "tree.sh"
            made = subprocess.run([script], capture_output=True, text=True, check=True).stdout.strip()
            words = ["git", "clone", "--quiet", "--shared", "--no-checkout", made, str(place)]
            subprocess.run(words, check=True, capture_output=True)
            self.git("checkout", "--quiet", "--detach", "series")
        self.base = self.git("rev-parse", "series")

    def git(self, *words: str) -> str:
        """git in the tree."""
        environment = {**os.environ, **AUTHOR, **COMMITTER, **DATES, "GIT_CONFIG_GLOBAL": os.devnull}
        git = ["git", "-C", self.place, "-c", "gc.auto=0", *words]
        ran = subprocess.run(git, env=environment, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    def hide(self, edit: Edit, chance: random.Random) -> tuple[str, str]:
        """A branch of harmless commits, one of which has the edit too; returns that one and the last."""
        self.git("checkout", "--quiet", "-B", f"hidden-{edit.name}", self.base)
        at, wrong = chance.randrange(COMMITS), ""
        for number in range(COMMITS):
            name = chance.choice(FILES)
            path = self.place / name
            path.write_text(path.read_text() + HARMLESS.format(number=number))
            if number == at:
                source = self.place / edit.file
                text = source.read_text()
                assert text.count(edit.old) == 1, f"{edit.name}: {text.count(edit.old)} places in {edit.file}"
                source.write_text(text.replace(edit.old, edit.new))
            self.git("commit", "--quiet", "--all", "-m", f"{Path(name).stem}: prepare step {number}")
            wrong = self.git("rev-parse", "HEAD") if number == at else wrong
        return wrong, self.git("rev-parse", "HEAD")


def find(tree: Tree, edit: Edit, out: Path) -> tuple[dict[str, Any], str]:
    """Bisects a branch in which the edit is hidden; returns what came of it, and the commit that has the edit."""
    wrong, last = tree.hide(edit, random.Random(edit.name))
    words = [COMMAND, "bisect", tree.base, last, "--tree", tree.place, "--when", edit.when, "--only", edit.only]
    words += ["--store", out / "store", "--out", out / edit.name]
    subprocess.run([str(word) for word in words], check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads((out / edit.name / "bisect.json").read_text())
    return found, wrong


def main() -> int:
    """Hides and finds the edits that are named, or all."""
    place = Path(sys.argv[1]).absolute()
    tree, missed = Tree(place / "tree"), 0
    for name in sys.argv[2:] or EDITS:
        found, wrong = find(tree, EDITS[name], place)
        is_found = [each["commit"] for each in found["first"]] == [wrong] and found["builds"] <= MOST_BUILDS
        seconds = found["about"]["seconds"]
        said = "found" if is_found else "MISSED"
        print(f"{name}: {said}, {found['steps']} steps, {found['builds']} builds, {seconds:.0f} s", flush=True)
        missed += not is_found
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
