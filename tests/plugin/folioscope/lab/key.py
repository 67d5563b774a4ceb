# SPDX-License-Identifier: GPL-2.0-only
"""What a lab's results depend on, so that only a lab of the same is gone on with."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from .. import content
from ..locate import command
from .bench import Bench
from .kinds import Setting
from .schema import VERSION

#: Of the rig's own: what each guest may be started with.
_BUILT = ("libcounter_plugin.so", "librecorder_plugin.so")
_KERNELS = ("kernel-net",)
_PARTS = ("Image", "vmlinux")
_QEMU = "qemu-system-aarch64"


def inputs(bench: Bench, settings: Iterable[Setting] = ()) -> Iterator[Path]:
    """Every file that guests are made of, there or not: programs, plugins, initramfs, kernels and this package."""
    found = command()
    out = found.directory / "out"
    yield from (found.path, bench.initrd, *(out / name for name in _BUILT))
    if bench.programs:
        yield bench.programs
    yield Path(shutil.which(_QEMU) or _QEMU)
    # A kernel of the user's is that of all experiments.
    for option, path in zip(bench.more, bench.more[1:], strict=False):
        if option in ("--kernel", "--vmlinux"):
            yield Path(path)
        if option == "--kernel":
            yield Path(path).with_name("vmlinux")
    if "--kernel" not in bench.more:
        yield from (out / name / part for name in (f"kernel-{bench.granule}", *_KERNELS) for part in _PARTS)
    yield from (Path(setting.image) for setting in settings if setting.image)
    yield from sorted(Path(__file__).parent.parent.rglob("*.py"))


def key_of(bench: Bench, settings: Iterable[Setting] = ()) -> str:
    """A hash of all inputs and of how they are used."""
    how = (VERSION, bench.granule, bench.memory_mib, bench.runs, bench.quick, bench.cpus, bench.more)
    files = [(path.name, content.digest(path) if path.is_file() else None) for path in inputs(bench, settings)]
    return content.of_values([how, files])
