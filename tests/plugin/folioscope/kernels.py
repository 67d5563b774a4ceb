# SPDX-License-Identifier: GPL-2.0-only
"""The kernels of a run: those that were given, each with its granule, and how it is named in a test's id."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import names
from .layout import LAYOUTS
from .locate import CommandNotFound, command

IMAGE_SECONDS = 60
_KERNELS = pytest.StashKey[list["Kernel"]]()


@dataclass(frozen=True)
class Kernel:
    """A kernel that was given."""

    name: str
    image: Path
    vmlinux: Path | None
    # The only page size that it has; None where its header does not say.
    granule: str | None

    def __str__(self) -> str:
        return self.name


def given(config: pytest.Config) -> list[Kernel]:
    """All of them, in the order of the options; none where the pinned kernel is tested."""
    if _KERNELS not in config.stash:
        config.stash[_KERNELS] = list(_given(config))
    return config.stash[_KERNELS]


def _given(config: pytest.Config) -> list[Kernel]:
    images: list[str] = names.get(config, "kernel") or []
    symbols: list[str] = names.get(config, "vmlinux") or []
    if symbols and images and len(symbols) != len(images):
        what = f"one vmlinux for each of {len(images)} kernels, and found {len(symbols)}"
        raise pytest.UsageError(f"--folioscope-vmlinux: expected {what}")
    paths = [absolute(config, image) for image in images]
    return [
        Kernel(name, path, absolute(config, symbols[at]) if symbols else None, granule_of(path, images[at]))
        for at, (name, path) in enumerate(zip(_names(paths), paths, strict=True))
    ]


def _names(paths: list[Path]) -> list[str]:
    """The shortest ends of the paths that differ, joined by dots; with a number where the paths are the same."""
    for parts in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        ends = [".".join(path.parts[-parts:]).strip("/.") for path in paths]
        if len(set(ends)) == len(ends):
            return ends
    seen = Counter[str]()
    numbered = []
    for path in paths:
        seen[path.name] += 1
        numbered.append(f"{path.name}.{seen[path.name]}")
    return numbered


def granule_of(kernel: Path, as_given: str) -> str | None:
    """The granule of a kernel image, whatever it is packed in, by its header; None where that does not say."""
    try:
        found = command()
    except CommandNotFound as error:
        raise pytest.UsageError(str(error)) from error
    words = [str(found.path), "image", str(kernel), "--format", "json"]
    told = subprocess.run(words, check=False, capture_output=True, text=True, timeout=IMAGE_SECONDS)
    if told.returncode != 0:
        # The option takes all words up to the next option.
        tests = kernel.is_dir() or kernel.suffix == ".py" or "::" in as_given
        more = "; name tests before this option" if tests else ""
        raise pytest.UsageError(f"--folioscope-kernel: {told.stderr.strip()}{more}")
    page = json.loads(told.stdout)["page_size"]
    return next((granule for granule, layout in LAYOUTS.items() if layout.page == page), None)


def absolute(config: pytest.Config, path: str) -> Path:
    """A path as it was meant where pytest was started."""
    return config.invocation_params.dir / Path(path).expanduser()
