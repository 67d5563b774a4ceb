# SPDX-License-Identifier: GPL-2.0-only
"""The documents as a site: all links lead somewhere, one that does not ends the build, and what is shown fits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from browser import browser
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


def too_wide(site: Path) -> list[str]:
    """Pages on which output or a table of figures has to be scrolled sideways, by the width of the window."""
    script = """return [...document.querySelectorAll('.md-typeset pre > code, .md-typeset__scrollwrap')]
        .filter((it) => it.scrollWidth > it.clientWidth + 1).length"""
    found = []
    with browser() as window:
        for width in (1300, 1920):
            window.driver.set_window_size(width, 1000)
            for page in ("index", "docs/commands", "docs/laboratory", "docs/laboratory-figures", "docs/python"):
                window.driver.get(f"file://{site}/{page}.html")
                if number := window.run(script):
                    found.append(f"{page} at {width}: {number}")
            column = "return document.querySelector('td:nth-child(7):last-child').clientWidth"
            window.driver.get(f"file://{site}/docs/laboratory-figures.html")
            assert window.run(column) > 200
    return found


@pytest.mark.browser
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
    reference = set(re.findall(r'id="folioscope\.([\w.]+)"', (site / "docs" / "python.html").read_text()))
    # Methods, fields with and without words, those of a base; and no reader of JSON.
    assert reference >= {"Area.must_fold", "Area.read", "Done.stores", "Page.refcount", "Hello.channel"}
    assert "Vma.start" in reference and "Vma.read" not in reference
    assert too_wide(site) == []
    assert (site / "docs" / "page.png").stat().st_size
    for page in ("index", "docs/tutorial", "docs/how-to/record", "kernel-patches/index", "docs/decisions/make-status"):
        text = (site / f"{page}.html").read_text()
        assert "<h1" in text and "https://fonts" not in text, page
    glossary = tmp_path / "docs" / "glossary.md"
    glossary.write_text(glossary.read_text() + "\n[lost](no-such.md) and [lost](design.md#no-such)\n")
    ended = built(tmp_path)
    assert ended.returncode != 0
    assert "no-such.md" in ended.stderr and "#no-such" in ended.stderr, ended.stderr
