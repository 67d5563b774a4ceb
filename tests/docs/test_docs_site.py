# SPDX-License-Identifier: GPL-2.0-only
"""The documents as a site: all links lead somewhere, and one that does not ends the build."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from command import ROOT, SLOWER

pytestmark = [pytest.mark.long, pytest.mark.network, pytest.mark.timeout(900)]
SECONDS = 400


def built(checkout: Path) -> subprocess.CompletedProcess[str]:
    """`make docs` of a checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    environment["FOLIOSCOPE_OUT"] = str(checkout / "out")
    command = ["make", "docs"]
    return subprocess.run(
        command, cwd=checkout, env=environment, text=True, capture_output=True, check=False, timeout=SECONDS * SLOWER
    )


def test_the_site(tmp_path: Path) -> None:
    """It has the documents, their pictures and the plugin's docstrings; a link that leads nowhere is named."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name, follow_symlinks=False)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    ended = built(tmp_path)
    assert ended.returncode == 0, ended.stderr
    site = tmp_path / "out" / "site"
    assert "must_fold" in (site / "docs" / "python.html").read_text()
    assert (site / "docs" / "page.png").stat().st_size
    for page in ("index", "docs/tutorial", "docs/how-to/record", "kernel-patches/index", "docs/decisions/make-status"):
        text = (site / f"{page}.html").read_text()
        assert "<h1" in text and "https://fonts" not in text, page
    glossary = tmp_path / "docs" / "glossary.md"
    glossary.write_text(glossary.read_text() + "\n[lost](no-such.md) and [lost](design.md#no-such)\n")
    ended = built(tmp_path)
    assert ended.returncode != 0
    assert "no-such.md" in ended.stderr and "#no-such" in ended.stderr, ended.stderr
