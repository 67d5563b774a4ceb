# SPDX-License-Identifier: GPL-2.0-only
"""The licences of all Rust crates are those of `deny.toml`, also where cargo-deny is not installed."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib

import pytest

from command import ROOT

ALLOWED = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Evaluates an SPDX expression; `/` is the OR of old manifests. A licence with an exception is not the licence."""
    words = re.findall(r"[()]|[\w.+-]+", expression.replace("/", " OR "))

    def term() -> bool:
        word = words.pop(0)
        if word == "(":
            value = choice()
            assert words.pop(0) == ")", expression
            return value
        if words[:1] == ["WITH"]:
            word = f"{word} WITH {words[1]}"
            del words[:2]
        return word in allowed

    def both() -> bool:
        value = term()
        while words[:1] == ["AND"]:
            words.pop(0)
            value = term() and value
        return value

    def choice() -> bool:
        value = both()
        while words[:1] == ["OR"]:
            words.pop(0)
            value = both() or value
        return value

    result = choice()
    assert not words, f"{expression} does not end where an expression does: {words}"
    return result


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT OR Apache-2.0", True),
        ("MIT/Apache-2.0", True),
        ("Proprietary OR MIT", True),
        ("(MIT OR Proprietary) AND Unicode-3.0", True),
        ("MIT AND Proprietary", False),
        ("Proprietary OR Other AND MIT", False),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("AGPL-3.0-only", False),
    ],
)
def test_expressions(expression: str, allowed: bool) -> None:
    """AND binds more than OR."""
    assert is_allowed(expression, ALLOWED) == allowed


@pytest.mark.network
def test_each_crate_has_a_licence_that_is_allowed() -> None:
    """Those of the workspace's lock, for x86-64 and for arm64, those of tests and build scripts too. Cargo fetches what
    no build has needed yet."""
    words = ["cargo", "metadata", "--locked", "--format-version", "1", "--all-features"]
    for target in ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"):
        words += ["--filter-platform", target]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    known = json.loads(said.stdout)
    used = {node["id"] for node in known["resolve"]["nodes"]}
    crates = [crate for crate in known["packages"] if crate["id"] in used]
    assert len(crates) > 100
    refused = [
        f"{crate['name']}: {crate['license']}"
        for crate in crates
        if not is_allowed(crate["license"] or "none", ALLOWED)
    ]
    assert not refused
    sources = {crate["source"] for crate in crates} - {None}
    assert len(sources) == 1 and "crates.io" in sources.pop()
