# SPDX-License-Identifier: GPL-2.0-only
"""Directories of our own for a while: removed by a mark in them and a lock on it, never by the look of a name.

The command does the same for its guests (``vmm/folioscope/src/scratch.rs``), with the same mark.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from pathlib import Path

import pytest

from .locate import output

# The file that makes a directory ours, and how it begins. Whoever uses the directory holds a lock on it: what is
# seen across PID namespaces, and ends with the process however that ends.
MARK = ".folioscope"
WORDS = "folioscope scratch"
# After this what another kernel's processes left is nobody's any more.
OLD_SECONDS = 24 * 60 * 60.0
# The worker's input, by pytest-xdist, that names the run's directory.
WORKERS = "folioscope_logs"


def _boot() -> str:
    """The first part of this boot's id, which is random."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:8]
    return "0"


class Scratch:
    """A new directory below ``parent``, ours until the interpreter ends; what dead ones left there goes first."""

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        for entry in parent.iterdir():
            clear(entry)
        self.path = new(parent, f"{os.getpid()}-{_boot()}")
        self._lock = os.open(self.path / MARK, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Without these words it is nobody's, so not in the moment before the lock either.
        os.write(self._lock, f"{WORDS}\nboot {_boot()}\n".encode())

    def close(self) -> None:
        """Gives it up: it stays until the next one is made."""
        os.close(self._lock)


def kept(parent: Path, name: str) -> Path:
    """A new directory that stays until `make clean`, which knows it by its mark."""
    place = new(parent, name)
    (place / MARK).write_text("folioscope bundle\n")
    return place


def new(parent: Path, name: str) -> Path:
    """A directory that was not there: by that name, or a number added to it where somebody has it already, such as a
    namesake in another PID namespace."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        place = parent / (name if number == 1 else f"{name}+{number}")
        try:
            place.mkdir(0o700)
            return place
        except FileExistsError:
            number += 1


def clear(directory: Path) -> bool:
    """Removes a directory that carries our mark and that nobody uses; says whether it did."""
    mark = directory / MARK
    if directory.is_symlink():
        return False
    try:
        lock = os.open(mark, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        words, *more = os.read(lock, 4096).decode(errors="replace").splitlines() or [""]
        if words != WORDS:
            return False
        # Of the locks of another boot, which may be another machine's or a carrier's, nothing is known here.
        if f"boot {_boot()}" not in more and not _old(directory):
            return False
        for entry in directory.iterdir():
            if entry == mark:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        mark.unlink()
        directory.rmdir()
        return True
    except OSError:
        return False
    finally:
        os.close(lock)


def _old(directory: Path) -> bool:
    """Whether nothing in it has changed for long."""
    newest = max(path.lstat().st_mtime for path in [directory, *directory.iterdir()])
    return newest + OLD_SECONDS < time.time()


_RUN = pytest.StashKey[Scratch]()


def output_of(config: pytest.Config) -> Path:
    """The directory of a run's logs and bundles, by pytest's root directory.

    Without an ini file pytest takes the value of an option for a path of tests as well, and its root may then be that
    of a kernel, or ``/``. Such a root does not hold the tests, or lies above the current directory, which takes its
    place.
    """
    root, here = config.rootpath, config.invocation_params.dir
    tests = [here / argument.partition("::")[0] for argument in config.args]
    is_of_tests = root not in here.parents and all(path.is_relative_to(root) for path in tests)
    return output(root if config.inipath or is_of_tests else here)


def of_run(config: pytest.Config) -> Path:
    """The directory of a run of pytest's logs, made when first asked for."""
    if _RUN not in config.stash:
        config.stash[_RUN] = Scratch(output_of(config) / "tests")
        config.add_cleanup(config.stash[_RUN].close)
    return config.stash[_RUN].path
