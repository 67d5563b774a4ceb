"""The structure of the Rust crates: no two files of one lead to each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from command import ROOT
from rust_files import Crate, circles, crates


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
    assert {"verdict", "join", "folioscope", "stage1"} <= {crate.parent.name for crate in crates()}
