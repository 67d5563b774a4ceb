# SPDX-License-Identifier: GPL-2.0-only
"""Where the command is: the wheel has none of it, so it is found on the machine.

``FOLIOSCOPE`` names it; else the checkout that this package lies in has it, once it is built; else ``PATH`` does.
What it boots (kernels, initramfs, the carrier) lies beside it, where ``make build`` put it: in ``out/``. It looks for
that from its working directory, so it is run in the directory that ``out/`` is in, wherever the tests are.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Lies beside the command wherever `make build` made both.
BESIDE = "initramfs.cpio"


class CommandNotFound(RuntimeError):
    """The command ``folioscope`` is nowhere on this machine."""


@dataclass(frozen=True)
class Command:
    """The command ``folioscope``."""

    path: Path
    # The directory that it is run in: the one with `out/`, if there is one.
    directory: Path


def checkout() -> Path | None:
    """The checkout that this package lies in; none where it is installed."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "vmm" / "folioscope").is_dir() else None


def command() -> Command:
    """Finds the command.

    Raises ``CommandNotFound``, with what to do, where it is not there.
    """
    if named := os.environ.get("FOLIOSCOPE"):
        path = Path(named).expanduser().absolute()
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise CommandNotFound(f"expected the command folioscope at {path} (FOLIOSCOPE) and found no program there")
        return Command(path, _home(path))
    root = checkout()
    if root and (built := root / "out" / "folioscope").exists():
        return Command(built, root)
    if found := shutil.which("folioscope"):
        path = Path(found).absolute()
        return Command(path, _home(path))
    raise CommandNotFound(
        "the command folioscope is neither named by FOLIOSCOPE nor on PATH; build it in a checkout with: make build"
    )


def _home(path: Path) -> Path:
    """The directory whose ``out/`` the command is in; the current one where it stands alone."""
    for place in _links(path):
        if place.parent.name == "out" and (place.parent / BESIDE).exists():
            return place.parent.parent
    return Path.cwd()


def _links(path: Path) -> Iterator[Path]:
    """A path, and each that it leads to by symbolic links: `out/folioscope` is itself one, into the cache."""
    for _ in range(40):
        yield path
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()


def cache() -> Path:
    """The directory of builds, as ``vmm/setup/lib.sh`` finds it."""
    named = os.environ.get("FOLIOSCOPE_CACHE")
    user = os.environ.get("XDG_CACHE_HOME")
    return Path(named) if named else (Path(user) if user else Path.home() / ".cache") / "folioscope"


def output(root: Path) -> Path:
    """Where logs and bundles go: ``FOLIOSCOPE_OUT``, the ``out/`` of the checkout that this package lies in, else
    ``folioscope-out/`` in ``root``."""
    if named := os.environ.get("FOLIOSCOPE_OUT"):
        return Path(named).absolute()
    found = checkout()
    return found / "out" if found else root / "folioscope-out"
