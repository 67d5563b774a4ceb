# SPDX-License-Identifier: GPL-2.0-only
"""Commits of the user's kernel tree, in a repository of this program's own that borrows the tree's objects: nothing is
written into the tree or its repository, however this program ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .. import content, locate
from .cell import Kernel
from .errors import Refused
from .kernels import asked, files_of

#: Of the commits that patches become: with the author's date they have the same name each time.
_COMMITTER = {"GIT_COMMITTER_NAME": "folioscope", "GIT_COMMITTER_EMAIL": "folioscope@localhost"}
_INHERITED = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES")


class GitFailed(Exception):
    """git ended with an error; its words."""


def environment() -> dict[str, str]:
    """The environment of git: nothing of it leads to another repository."""
    kept = {name: value for name, value in os.environ.items() if name not in _INHERITED}
    # Without the first, a mere look refreshes the index.
    return {**kept, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", **_COMMITTER}


def words(place: Path) -> list[str]:
    """The words by which git is called in a directory."""
    settings = ["-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "commit.gpgSign=false"]
    return ["git", "-C", str(place), *settings]


def git(place: Path, *more: str, text: bytes | None = None) -> str:
    """Runs git in a directory. Raises ``GitFailed``."""
    ran = subprocess.run([*words(place), *more], input=text or b"", capture_output=True, check=False, env=environment())
    said = (ran.stdout + ran.stderr if ran.returncode else ran.stdout).decode(errors="replace")
    if ran.returncode:
        raise GitFailed(said.strip())
    return said.rstrip("\n")


class Tree:
    """The user's tree, which is only read."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        if not self.path.is_dir():
            raise Refused(f"expected a git tree of the kernel at {self.path} (--tree) and found no directory")
        try:
            self._objects = (self.path / git(self.path, "rev-parse", "--git-path", "objects")).resolve()
            self._shallow = (self.path / git(self.path, "rev-parse", "--git-path", "shallow")).resolve()
            changed = git(self.path, "status", "--porcelain", "--untracked-files=no").splitlines()
        except GitFailed as error:
            why = str(error).splitlines()[-1]
            raise Refused(f"expected a git tree of the kernel at {self.path} (--tree) and found none: {why}") from error
        if changed:
            raise Refused(
                f"{self.path} has changes that no commit has ({changed[0].strip()}); commit or stash them, "
                "for only commits are judged"
            )

    def commit(self, revision: str) -> str:
        """The whole ID of a commit."""
        if found := self.resolved(self.path, revision):
            return found
        raise Refused(f"{self.path} has no commit {revision!r}; check the name, or fetch it")

    @staticmethod
    def resolved(path: Path, revision: str) -> str:
        """The whole ID of a commit of a tree, as far as it has one."""
        try:
            return git(path, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except GitFailed:
            return ""

    def has(self, commit: str) -> bool:
        """Whether it has a commit."""
        try:
            git(self.path, "cat-file", "-e", f"{commit}^{{commit}}")
        except GitFailed:
            return False
        return True

    def commits(self, range_: str) -> list[str]:
        """The commits of a range, the first one first."""
        try:
            found = git(self.path, "rev-list", "--reverse", "--topo-order", "--end-of-options", range_).split()
            merges = git(self.path, "rev-list", "--merges", "--end-of-options", range_).split()
        except GitFailed as error:
            raise Refused(
                f"{self.path} has no range {range_!r}; write it as BASE..TIP, of commits that it has"
            ) from error
        if not found:
            raise Refused(f"the range {range_} has no commit; write it as BASE..TIP, the older one first")
        if merges:
            raise Refused(f"the range {range_} has the merge {merges[0][:12]}; choose a range of patches only")
        return found

    def parent(self, commit: str) -> str:
        """The commit below."""
        return self.commit(f"{commit}^")

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether a commit is another one, or below it."""
        return self.merge_base(older, newer) == older

    def merge_base(self, one: str, other: str) -> str:
        """The best commit below both; empty where there is none."""
        try:
            return git(self.path, "merge-base", one, other)
        except GitFailed:
            return ""

    def subject(self, commit: str) -> str:
        """The first line of a commit's message."""
        return git(self.path, "log", "-1", "--format=%s", commit)

    @contextlib.contextmanager
    def own(self, granule: str) -> Iterator[Own]:
        """The repository of this program's own for it, which this process alone uses until the end."""
        root = locate.cache() / "incremental"
        place = root / f"{content.of_values(str(self.path))}-{granule}"
        try:
            place.mkdir(parents=True, exist_ok=True)
            # The first is against `make cache`, which would remove it.
            with (root / "lock").open("w") as shared, (place / "in-use").open("w") as alone:
                fcntl.flock(shared, fcntl.LOCK_SH)
                try:
                    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise Refused(f"another series or bisect works with {self.path}; wait for its end") from error
                yield Own(place, self._objects, self._shallow, granule)
        except OSError as error:
            raise Refused(f"expected to build in {place} and found {error.strerror}; set FOLIOSCOPE_CACHE") from error


class Own:
    """A repository that borrows another's objects, and the directory of objects beside it."""

    def __init__(self, place: Path, objects: Path, shallow: Path, granule: str) -> None:
        self.place, self.tree, self.granule = place, place / "src", granule
        if not (self.tree / ".git" / "HEAD").is_file():
            self.tree.mkdir(exist_ok=True)
            git(self.tree, "init", "--quiet", "--template=")
        within = self.tree / ".git"
        (within / "objects" / "info").mkdir(parents=True, exist_ok=True)
        (within / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        if shallow.is_file():
            shutil.copy(shallow, within / "shallow")
        # What a killed one has left; the lock is ours.
        (within / "index.lock").unlink(missing_ok=True)
        for each in (("am", "--quit"), ("bisect", "reset", "HEAD")):
            with contextlib.suppress(GitFailed):
                git(self.tree, *each)

    def checkout(self, commit: str) -> None:
        """Has the files of a commit."""
        git(self.tree, "checkout", "--quiet", "--force", "--detach", commit)

    def head(self, commit: str) -> None:
        """Is at a commit where it was at none yet, without its files: git bisect wants that."""
        try:
            git(self.tree, "rev-parse", "--verify", "--quiet", "HEAD")
        except GitFailed:
            git(self.tree, "update-ref", "--no-deref", "HEAD", commit)

    def options(self, base: str, tip: str) -> list[str]:
        """The options that the commits between two add and that can be switched off: those with a question."""
        diff = git(self.tree, "diff", "--no-ext-diff", "--unified=0", base, tip, "--", ":(glob)**/Kconfig*")
        entries = re.split(r"^\+(?:menu)?config (?=\w+$)", diff, flags=re.MULTILINE)[1:]
        return [each.split()[0] for each in entries if re.search(r'^\+\s+(bool|tristate) "', each, re.MULTILINE)]

    def kernel(self, name: str, commit: str, config: str = "") -> Kernel:
        """The kernel of a commit, with its key, without building."""
        build = ["--granule", self.granule, "--incremental", str(self.place), "--commit", commit]
        build += ["--config", str(Path(config).expanduser().absolute())] if config else []
        place = asked(name, build)
        return Kernel(name, place.name, files_of(place), tuple(build))
