# SPDX-License-Identifier: GPL-2.0-only
"""The kernels of a matrix: their keys are asked from ``kernel-patches/build.sh``, which builds them too."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import content, locate
from .cell import Kernel
from .errors import Refused
from .matrix import Source

_GRANULES = {4096: "4k", 16384: "16k", 65536: "64k"}
_SECONDS = 60
_TARBALL = "FOLIOSCOPE_KERNEL_TARBALL"
#: Why the cells of a kernel that does not build are lost begins with it.
NOT_BUILT = "its kernel does not build"


def _script() -> Path:
    root = locate.checkout()
    if root is None:
        raise Refused("a kernel is built from a checkout of folioscope and this is none; give images in [kernels]")
    return root / "kernel-patches" / "build.sh"


def image(name: str, source: Source) -> tuple[Kernel, str | None]:
    """A kernel that is given, and its granule, if its header says it."""
    path = Path(source.image).expanduser().absolute()
    try:
        found = locate.command()
    except locate.CommandNotFound as error:
        raise Refused(str(error)) from error
    words = [str(found.path), "image", str(path), "--format", "json"]
    told = subprocess.run(words, check=False, capture_output=True, text=True, timeout=_SECONDS)
    if told.returncode:
        raise Refused(f"kernels.{name}: {told.stderr.strip().removeprefix('folioscope: ')}")
    files = {"Image": str(path)}
    symbols = Path(source.vmlinux).expanduser().absolute() if source.vmlinux else path.with_name("vmlinux")
    if source.vmlinux or symbols.is_file():
        files["vmlinux"] = str(symbols)
    try:
        key = content.of_values([content.digest(Path(each)) for each in files.values()])
    except OSError as error:
        raise Refused(f"kernels.{name}: expected a file at {error.filename} and found {error.strerror}") from error
    return Kernel(name, key, files), _GRANULES.get(json.loads(told.stdout)["page_size"])


def checked_out(name: str, source: Source) -> str:
    """A commit of a tree, in a clone of its own in the cache, which shares the tree's objects: nothing is written
    into the user's tree or its repository."""

    def git(*words: str) -> str:
        ran = subprocess.run(["git", *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if ran.returncode:
            why = (ran.stderr.strip().splitlines() or ["no such commit"])[-1]
            raise Refused(f"kernels.{name}: expected the commit {source.commit} in {source.tree} and found none: {why}")
        return ran.stdout.strip()

    wanted = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{source.commit}^{{commit}}"]
    commit = git("-C", source.tree, *wanted)
    place = locate.cache() / "trees" / commit[: content.LENGTH]
    if not (place / "complete").exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=".part.", dir=place.parent))
        try:
            git("clone", "--quiet", "--shared", "--no-checkout", source.tree, str(part / "tree"))
            git("-C", str(part / "tree"), "checkout", "--quiet", "--detach", commit)
            (part / "complete").touch()
            # Another campaign may have been first.
            with contextlib.suppress(OSError):
                part.rename(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    # The time of its last use, by which `make cache` goes.
    (place / "complete").touch()
    return str(place / "tree")


def built(name: str, source: Source, granule: str) -> Kernel:
    """A kernel that is built, or was: with its key, without building."""
    words = ["--granule", granule]
    tree = checked_out(name, source) if source.commit else source.tree
    for option, value in (("--source", tree), ("--base", source.base), ("--config", source.config)):
        words += [option, str(Path(value).expanduser()) if option != "--base" else value] if value else []
    words += ["--debug"] if source.debug else []
    place = asked(f"kernels.{name}", words)
    return Kernel(name, place.name, files_of(place), tuple(words))


@functools.cache
def _tarball(base: str) -> str:
    """The source of a base, which ``vmm/setup/source.sh`` fetches from Debian."""
    script = _script().parents[1] / "vmm" / "setup" / "source.sh"
    ran = subprocess.run([script, base.removesuffix(".x")], capture_output=True, text=True, check=False)
    if ran.returncode:
        why = (ran.stderr.strip().splitlines() or [f"status {ran.returncode}"])[-1].removeprefix("folioscope: ")
        raise Refused(f"expected the source of base {base} and found none: {why}")
    return ran.stdout.strip().splitlines()[-1]


def _environment(base: str) -> dict[str, str]:
    """Of ``build.sh``; it finds the source of a base by it."""
    found = dict(os.environ)
    if base and _TARBALL not in found:
        found[_TARBALL] = _tarball(base)
    return found


def _base(words: Sequence[str]) -> str:
    return words[words.index("--base") + 1] if "--base" in words else ""


def asked(name: str, words: Sequence[str]) -> Path:
    """Where ``build.sh`` keeps a kernel, there or not."""
    environment = _environment(_base(words))
    ran = subprocess.run([_script(), *words, "--key"], env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        said = ran.stderr.strip().splitlines()
        raise Refused(f"{name}: {re.sub(r'^kernel [0-9a-z?]+: ', '', said[-1]) if said else 'no key'}")
    return Path(ran.stdout.strip().splitlines()[-1])


def files_of(place: Path) -> dict[str, str]:
    """Image and vmlinux of a build, if it is there."""
    return {each: str(place / each) for each in ("Image", "vmlinux") if (place / each).is_file()}


class Builder:
    """Builds kernels, one at a time, and ends a build with the campaign."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._child: subprocess.Popen[str] | None = None
        self._stopped = False

    def __call__(self, kernel: Kernel) -> Mapping[str, Path] | str:
        """Its files, or why it does not build."""
        log = self._log / f"{kernel.key}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        # Another campaign of this checkout may build at the same time.
        logs = {"FOLIOSCOPE_LOG_DIR": str((self._log / kernel.key).absolute())}
        with log.open("w") as errors:
            # A group of its own: a Ctrl-C is for the campaign.
            self._child = subprocess.Popen(
                # The build ends with this program, also where that is killed.
                ["setpriv", "--pdeathsig", "TERM", _script(), *kernel.build],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env={**_environment(_base(kernel.build)), **logs},
            )
        if self._stopped:
            self.stop()
        said, _ = self._child.communicate()
        if self._child.returncode == 0:
            place = Path(said.strip().splitlines()[-1])
            if place.name != kernel.key:
                raise Refused(
                    f"the sources of the kernel {kernel.name} changed after the campaign began; start it again"
                )
            return {name: Path(path) for name, path in files_of(place).items()}
        words = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("kernel ")]
        why = words[-1] if words else f"status {self._child.returncode}"
        if self._child.returncode == 2:
            raise Refused(f"the kernel {kernel.name} could not be built: {why}")
        # The compiler's first error says more than what ended.
        compiler = [line.strip() for line in log.read_text(errors="replace").splitlines() if " error: " in line]
        return f"{NOT_BUILT}: {'; '.join([*compiler[:1], why])}"

    def stop(self) -> None:
        """Ends the build that runs, and each that begins."""
        self._stopped = True
        if self._child and self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGTERM)
