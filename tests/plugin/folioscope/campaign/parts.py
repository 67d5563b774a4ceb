# SPDX-License-Identifier: GPL-2.0-only
"""The keys of the programs that run a cell, so that a worker with other programs is refused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .. import content
from .errors import Refused
from .kinds import KINDS


@cache
def _key(path: Path, _size: int, _time: int) -> str:
    return content.of_tree(path, [name.name for name in path.iterdir()]) if path.is_dir() else content.digest(path)


def keys(kind: str, settings: Mapping[str, Any], directory: str = ".") -> dict[str, str]:
    """The keys of all parts of a test, by name, as this machine has them."""
    found = {}
    for name, path in KINDS[kind].parts(settings, Path(directory)).items():
        try:
            stat = path.stat()
            found[name] = _key(path.resolve(), stat.st_size, stat.st_mtime_ns)[: content.LENGTH]
        except OSError as error:
            raise Refused(f"expected {name} at {path} and found {error.strerror}; make build makes it") from error
    return found


def same(kind: str, settings: Mapping[str, Any], wanted: Mapping[str, str], where: str, directory: str = ".") -> None:
    """Refuses a worker whose parts are others than the campaign's."""
    for name, key in keys(kind, settings, directory).items():
        if key != wanted.get(name):
            raise Refused(
                f"the worker {where} has {name} {key} and the campaign has {wanted.get(name)}; "
                "build the same commit on both"
            )
