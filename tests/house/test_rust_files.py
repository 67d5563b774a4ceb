# SPDX-License-Identifier: GPL-2.0-only
"""The structure of the Rust crates: no two files of one lead to each other, and a public type has one meaning."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from code_size import sources, unsafe_blocks
from command import ROOT
from rust_files import Crate, circles, crates, public_types


@pytest.mark.parametrize("crate", crates(), ids=lambda crate: str(crate.relative_to(ROOT).parent))
def test_no_circle_among_files(crate: Path) -> None:
    """A reader of one file need not have read another that needs it."""
    arrows = Crate(crate).arrows()
    assert circles(arrows) == []


def test_circles_are_seen(tmp_path: Path) -> None:
    """By imports, paths in code, parents, children, what is handed on; not by tests, comments or handing on alone."""
    (tmp_path / "lib.rs").write_text("mod a;\nmod b;\nmod c;\npub use b::Two;\npub use c::d::Deep;\n")
    (tmp_path / "a.rs").write_text("use crate::Two;\npub struct One(Two);\n")
    (tmp_path / "b.rs").write_text("// crate::c\npub struct Two;\nfn f() -> crate::a::One { crate::a::One(Two) }\n")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "mod.rs").write_text("pub mod d;\nuse d::Deep;\npub struct Three(Deep);\n")
    (tmp_path / "c" / "d.rs").write_text("pub struct Deep;\n#[cfg(test)]\nmod tests { use super::super::Three; }\n")
    assert circles(Crate(tmp_path).arrows()) == [{"a", "b"}]
    (tmp_path / "c" / "d.rs").write_text("use super::{Three, super::a::One};\npub struct Deep;\n")
    assert circles(Crate(tmp_path).arrows()) == [{"a", "b"}, {"c", "c::d"}]


def test_there_are_crates() -> None:
    """The list is not empty by a mistake of ours."""
    assert {"verdict", "evidence", "analysis", "folioscope", "stage1"} <= {crate.parent.name for crate in crates()}


def test_evidence_knows_no_rule() -> None:
    """What was read of a guest does not depend on what is asserted of it, and rules not on how it was read."""
    for crate, never in [("evidence", "analysis changes machine report verdict"), ("verdict", "evidence snapshot")]:
        manifest = tomllib.loads((ROOT / "vmm" / crate / "Cargo.toml").read_text())
        assert set(manifest["dependencies"]) & set(never.split()) == set(), crate


# Each with the reason why the name is the right one in both. None is added without one.
SEVERAL = {
    # A verdict has what the recorder found in a form of its own, which is written as JSON and outlives the trace.
    "recorder": "Did Finding Folio Instruction Moment NotJudged Rule Scope Sequence",
    # The guest's words for what it does, which reach it as JSON; the host's are about what it has read.
    "protocol": "Backing Channel Checkpoint Event Frame Kind Outcome",
    # The sides of a comparison, used in that crate alone.
    "changes": "Entry Event Frames Kind Space State View",
    # Each is its module's main type: they are told apart by the module (`fdt::Error`, `attach::Found`).
    "module": "Area Config Counts Error Folio Folios Found Frames Look Memory Owner Pages Recording Text Totals Types",
    # The architecture's or the kernel's own word, of a thing of that crate.
    "field": "Kernel Kind Machine Permissions Process Reason Region Space",
}


def test_a_public_type_has_one_meaning() -> None:
    """Two crates give one name to two things only where a reason is stated, and no stated one is stale."""
    several = {name for name, of in public_types().items() if len(of) > 1}
    stated = {name for names in SEVERAL.values() for name in names.split()}
    assert several - stated == set()
    assert stated - several == set()


def test_unsafe_blocks_get_fewer() -> None:
    """The number is lowered with each block that goes. The agent's and the carrier's are system calls on raw memory."""
    assert len(sources()) > 300
    assert 0 < unsafe_blocks().total() <= 79
