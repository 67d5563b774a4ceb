# SPDX-License-Identifier: GPL-2.0-only
"""A guest in which a wrong edit strikes, and what was said of it."""

from __future__ import annotations

from folioscope import Area, CommandFailed, Guest, Process, View


class Scene:
    """A guest, and what was said of it."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.layout = guest.layout
        self.rules: set[str] = set()
        # A sentence for each rule, the first.
        self.told: dict[str, str] = {}
        self.not_judged: list[str] = []

    def name(self, rule: str, sentence: str) -> None:
        """A rule has spoken."""
        self.rules.add(rule)
        self.told.setdefault(rule, sentence)

    def take(self, view: View) -> View:
        """Takes in a look."""
        for error in view.errors:
            self.name(error.rule, error.message)
        self.not_judged += view.not_judged
        return view

    def look(self, process: Process) -> View:
        """Looks at a process, with what was stated since."""
        return self.take(process.look(check=False))

    def told_of(self, process: Process) -> View:
        """The same, with what the kernel says of its memory, inside."""
        return self.take(process.look(getters=True, check=False))

    def holds(self, area: Area, first: int = 0, pages: int | None = None, **expect: int) -> None:
        """The pages hold what was written to them; C3 where they do not, as in the tour."""
        try:
            found = area.verify(first, pages, **expect)
        except CommandFailed as error:
            if error.kind != "signal":
                raise
            self.name("C3", str(error))
        else:
            if found.wrong:
                self.name("C3", f"{found.wrong} of {found.words} words are wrong")

    def spawn(self) -> Process:
        """A process, in which the edit strikes as in any other."""
        return self.guest.spawn("scene")

    def tour(self, name: str) -> None:
        """A workload of the tour, with what it knows of each step."""
        raw = self.guest.call("tour", name=name, policy="variable", seconds=240)
        assert not raw["left_out"], raw["left_out"]
        assert raw["checkpoints"], f"{name} made no checkpoint"
        for checkpoint in raw["checkpoints"]:
            self.take(View(checkpoint["look"], self.layout))
