# SPDX-License-Identifier: GPL-2.0-only
"""Where results come from: commit, command, date and machine."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..locate import checkout

#: Options of paths, which are another machine's business.
_PATHS = ("--initrd", "--programs", "--out", "--json", "--series")


def measured_by(argv: Sequence[str]) -> dict[str, Any]:
    """Describes where results come from. Of the commit see the schema."""
    words: list[str] = []
    left_out = False
    for word in argv[1:]:
        if left_out or word in _PATHS:
            left_out = not left_out
            continue
        words.append(word)
    return {
        "commit": _commit(),
        "command": " ".join(("out/folioscope lab", *words)),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": _machine(),
    }


def _said(*command: str, at: Path | None = None) -> str | None:
    try:
        return subprocess.run(command, cwd=at, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _commit() -> str | None:
    root = checkout()
    commit = root and _said("git", "rev-parse", "--short=12", "HEAD", at=root)
    if not commit:
        return None
    return commit + ("+" if _said("git", "status", "--porcelain", "--untracked-files=no", at=root) else "")


def _machine() -> str:
    """CPUs, architecture, system and QEMU; no name."""
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        system = platform.system()
    qemu = re.search(r"version (\S+)", _said("qemu-system-aarch64", "--version") or "")
    return f"{os.cpu_count()} CPUs, {platform.machine()}, {system}, QEMU {qemu[1] if qemu else 'unknown'}"
