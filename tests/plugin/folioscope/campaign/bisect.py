# SPDX-License-Identifier: GPL-2.0-only
"""``folioscope bisect``: the commit with which a condition on the verdict begins to hold, by ``git bisect run``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import content, locate
from .asked import Answer, Asker, question
from .commands import write
from .errors import Refused
from .found import as_json, text
from .store import Store
from .table import rows
from .trees import Own, Tree, environment, git, words

_ANSWER = Path(__file__).with_name("answer.py")
#: As ``git bisect run`` understands them.
_GOOD, _BAD, _SKIP = 0, 1, 125
_TICK = 0.2


@dataclass
class Search:
    """A bisect: the answers in the order in which git asked, its log, and what it came to."""

    good: Answer
    bad: Answer
    steps: list[Answer] = field(default_factory=list)
    log: str = ""
    #: One, unless commits that were skipped are left.
    first: list[str] = field(default_factory=list)

    def run(self, own: Own, asker: Asker, said: Path) -> None:
        """Lets git ask until it has the first one."""
        own.head(self.bad.commit)
        # Only what has to be built is checked out, by its build.
        git(own.tree, "bisect", "start", "--no-checkout", self.bad.commit, self.good.commit)
        try:
            if not self._read(own):
                self._asked(own, asker, said)
            if not self._read(own):
                last = (said.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
                raise Refused(f"git bisect ended without an answer: {last}; see {said}")
        finally:
            git(own.tree, "bisect", "reset", "HEAD")

    def _read(self, own: Own) -> bool:
        """Takes in git's log; true if it names the first one."""
        # A replay needs the files of each commit.
        self.log = git(own.tree, "bisect", "log").replace("'--no-checkout' ", "") + "\n"
        self.first = re.findall(r"^# first bad commit: \[([0-9a-f]+)\]", self.log, re.MULTILINE)
        self.first = self.first or re.findall(r"^# possible first bad commit: \[([0-9a-f]+)\]", self.log, re.MULTILINE)
        return bool(self.first)

    def _asked(self, own: Own, asker: Asker, said: Path) -> None:
        place = Path(tempfile.mkdtemp(prefix="folioscope-bisect-"))
        listener = socket.socket(socket.AF_UNIX)
        child = None
        try:
            listener.bind(str(place / "answers"))
            listener.listen()
            listener.settimeout(_TICK)
            run = [sys.executable, "-I", "-S", str(_ANSWER), str(place / "answers")]
            with said.open("w") as output:
                child = subprocess.Popen(
                    # git ends with this process, and what it runs by the end of the socket.
                    ["setpriv", "--pdeathsig", "KILL", *words(own.tree), "bisect", "run", *run],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment(),
                    start_new_session=True,
                )
            while child.poll() is None:
                with contextlib.suppress(TimeoutError):
                    client, _ = listener.accept()
                    with client:
                        client.sendall(f"{self._step(own, asker)}\n".encode())
        finally:
            listener.close()
            if child and child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            shutil.rmtree(place, ignore_errors=True)

    def _step(self, own: Own, asker: Asker) -> int:
        commit = git(own.tree, "rev-parse", "--verify", "BISECT_HEAD")
        answer = asker.ask(commit)
        self.steps.append(answer)
        print(f"folioscope: step {len(self.steps)}: {said_of(answer)}", file=sys.stderr)
        return _SKIP if answer.holds is None else _BAD if answer.holds == self.bad.holds else _GOOD


def said_of(answer: Answer) -> str:
    """A commit and its answer in one line."""
    why = f": {answer.why}" if answer.holds is None else ""
    return f"{answer.commit[:12]} {answer.subject}: {answer.word()}{why}"


def _range(tree: Tree, good: str, bad: str) -> tuple[str, str]:
    """The commits of both ends. Raises ``Refused`` unless one is above the other."""
    first, last = tree.commit(good), tree.commit(bad)
    if first == last:
        raise Refused(f"{good} and {bad} are the same commit, {first[:12]}; name an older one and a newer one")
    if not tree.is_ancestor(first, last):
        if tree.is_ancestor(last, first):
            raise Refused(f"{bad} is an ancestor of {good}: the range is reversed; name the older one first")
        base = tree.merge_base(first, last)
        what = f"; name their merge base, {base[:12]}, in its place" if base else "; they have no commit in common"
        raise Refused(f"{good} is no ancestor of {bad}{what}")
    return first, last


def _ends(asker: Asker, good: str, bad: str) -> tuple[Answer, Answer]:
    """The answers of both ends. Raises ``Refused`` unless they differ."""
    answers = []
    for name, commit in (("GOOD", good), ("BAD", bad)):
        answer = asker.ask(commit)
        print(f"folioscope: {name}: {said_of(answer)}", file=sys.stderr)
        if answer.holds is None:
            advice = "; --unjudged take takes a verdict as it is" if answer.result else ""
            raise Refused(
                f"{name}, {commit[:12]} {answer.subject}, gives no answer: {answer.why}; name another commit{advice}"
            )
        answers.append(answer)
    if answers[0].holds == answers[1].holds:
        verb = "holds" if answers[0].holds else "does not hold"
        raise Refused(
            f"{asker.asked.text!r} {verb} for GOOD and for BAD alike; name other commits, or another --when "
            f"({answers[0].commit[:12]}, {answers[1].commit[:12]})"
        )
    return answers[0], answers[1]


def _words(arguments: argparse.Namespace, commits: Sequence[str]) -> list[str]:
    """The words of the command, with the commits by their IDs."""
    names = dict(zip((arguments.good, arguments.bad), commits, strict=True))
    return [names.get(word, word)[:12] if word in names else word for word in sys.argv[1:]]


def bisect(arguments: argparse.Namespace) -> int:
    """Finds the commit; the exit status is 2 where commits that gave no answer are left beside it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.time()
    tree = Tree(arguments.tree)
    commits = _range(tree, arguments.good, arguments.bad)
    asked = question(arguments.when, arguments.only, arguments.unjudged == "take")
    store = Store(arguments.store or str(locate.cache() / "campaigns")).open()
    out: Path = arguments.out or locate.output(Path.cwd()) / "bisect"
    out.mkdir(parents=True, exist_ok=True)
    with tree.own(arguments.granule) as own:
        asker = Asker(tree, own, store, asked, arguments, out / "builds")
        search = Search(*_ends(asker, *commits))
        search.run(own, asker, out / "bisect-run.txt")
        parent = tree.parent(search.first[0])
    about = {
        "when": asked.text,
        "granule": arguments.granule,
        "cpu": arguments.cpu,
        "only": arguments.only or "",
        "repeat": arguments.repeat,
        "time": began,
        "seconds": time.time() - began,
        "words": _words(arguments, commits),
    }
    before = asker.answers.get(parent, search.good)
    subjects = [(each, tree.subject(each)) for each in search.first]
    told = as_json(search, subjects, before, asker, about)
    store.record(content.of_values([*commits, asked.text]), told, "bisect")
    write(rows(asker.cells(), store), store, out, "bisect")
    shown = "\n".join(text(told))
    for name, contents in (("txt", f"{shown}\n"), ("log", search.log), ("json", json.dumps(told, indent=1) + "\n")):
        (out / f"bisect.{name}").write_text(contents)
    print(shown)
    print(f"folioscope: {out / 'index.html'}, bisect.txt, bisect.json and bisect.log beside it", file=sys.stderr)
    return 0 if len(search.first) == 1 else 2
