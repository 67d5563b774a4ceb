# SPDX-License-Identifier: GPL-2.0-only
"""No documented test passes with the feature off: each fails in a guest in which nothing can be contiguous."""

from __future__ import annotations

import re

import pytest

from command import ROOT
from recorder import plugin
from test_install import examples
from test_plugin import run, user

__all__ = ["plugin", "user"]

pytest_plugins = ["pytester"]

#: No folio is larger than a page: the order policy that does as the kernel's own switch says, and that is off.
OFF = "transparent_hugepage=never"
POLICY = "baseline"


@pytest.mark.usefixtures("plugin")
@pytest.mark.only_machine("tcg")
def test_each_fails_without_large_folios(user: pytest.Pytester) -> None:
    """In its call, by what it asserts or states."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    files = {name: text for document in documents for name, text in examples(document).items()}
    tests = re.findall(r"^def (test_\w+)", "\n".join(files.values()), re.MULTILINE)
    assert len(files) >= 12 and len(tests) >= 10
    for name, text in files.items():
        (user.path / name).write_text(text)
    user.makeconftest(f"import folioscope.guest\nfolioscope.guest.POLICY = {POLICY!r}\n")
    result = run(
        user,
        "--folioscope-granule",
        "4k",
        "--folioscope-machine",
        "tcg",
        "--folioscope-append",
        OFF,
        "--folioscope-policy",
        POLICY,
        "-rA",
    )
    said = result.stdout.str()
    for test in tests:
        assert re.search(rf"^FAILED \S+::{test}\[", said, re.MULTILINE), (test, said)
    # And none fails as it could not be run.
    assert not re.search(r"^E +(?!AssertionError|folioscope\.|KeyError|assert)\w*Error\b", said, re.MULTILINE), said
