# SPDX-License-Identifier: GPL-2.0-only
"""A git tree for tests that is as small as a kernel's can be; its kernels are prebuilt, or do not build."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from command import ROOT

#: A commit that cannot be configured has this in its Makefile.
BROKEN = "allnoconfig:\n\t@echo 'mm/memory.c:7:1: error: expected a kernel'; false\n"
AUTHOR = {"GIT_AUTHOR_NAME": "A. Developer", "GIT_AUTHOR_EMAIL": "a@example.org"}
COMMITTER = {"GIT_COMMITTER_NAME": "A. Developer", "GIT_COMMITTER_EMAIL": "a@example.org"}
DATES = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}


class SmallTree:
    """A git tree, and a cache whose kernels are put there by the test."""

    def __init__(self, place: Path) -> None:
        self.place, self.cache = place / "tree", place / "cache"
        (self.place / "arch" / "arm64").mkdir(parents=True)
        (self.place / "mm").mkdir()
        (self.place / "Makefile").write_text("# no kernel\n")
        (self.place / "arch" / "arm64" / "Kconfig").write_text("")
        (self.place / "mm" / "memory.c").write_text("".join(f"line {number}\n" for number in range(1, 41)))
        self.git("init", "--quiet", "--initial-branch=main")
        self.base = self.commit("base")

    def git(self, *words: str) -> str:
        """git in the tree, by a developer who has no settings of their own."""
        environment = {**os.environ, **AUTHOR, **COMMITTER, **DATES, "GIT_CONFIG_GLOBAL": os.devnull}
        ran = subprocess.run(
            ["git", "-C", self.place, *words], env=environment, capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    def commit(self, subject: str, files: Mapping[str, str] | None = None) -> str:
        """A commit with these files; returns its ID."""
        for name, text in (files or {}).items():
            (self.place / name).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def line(self, number: int, text: str) -> dict[str, str]:
        """`mm/memory.c` with another line."""
        lines = (self.place / "mm" / "memory.c").read_text().splitlines()
        lines[number - 1] = text
        return {"mm/memory.c": "\n".join(lines) + "\n"}

    def state(self) -> dict[str, bytes]:
        """All files, with those of git."""
        return {str(path): path.read_bytes() for path in self.place.rglob("*") if path.is_file()}

    def key(self, commit: str, config: Path | None = None) -> str:
        """The key of a commit's kernel: as that of a clean tree."""
        self.git("checkout", "--quiet", "--detach", commit)
        words = [ROOT / "kernel-patches/build.sh", "--granule", "4k", "--source", self.place, "--key"]
        words += ["--config", config] if config else []
        environment = {**os.environ, "FOLIOSCOPE_CACHE": str(self.cache)}
        ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        self.git("checkout", "--quiet", "main")
        return Path(ran.stdout.strip()).name

    def prebuilt(
        self, commit: str, image: Path, warnings: str = "", config: Path | None = None, options: Sequence[str] = ()
    ) -> None:
        """Puts an image where the commit's kernel is kept, as if it had been built with these options."""
        place = self.cache / "kernels" / self.key(commit, config)
        place.mkdir(parents=True)
        (place / "Image").symlink_to(image.resolve())
        (place / "warnings").write_text(warnings)
        (place / "config").write_text("".join(f"CONFIG_{option}=y\n" for option in options))
