# SPDX-License-Identifier: GPL-2.0-only
"""`folioscope diff`: two cores of a process, and two of all RAM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

from command import folioscope
from held_guest import LAYOUT, Held


def test_cores_of_a_process(held: Held, tmp_path: Path) -> None:
    """Text and JSON say the same, and the JSON is what the schema says."""
    spawned, address = held.area("changes", 2 * LAYOUT.block, 2 * LAYOUT.block)
    source = ["--guest", held.socket, "--pid", str(spawned["pid"])]
    cores = [tmp_path / name for name in ("before.core", "after.core")]
    folioscope("save", *source, cores[0]).ok()
    held.op(spawned["process"], "madvise", address=address, length=LAYOUT.page, advice="dontneed")
    folioscope("save", *source, cores[1]).ok()
    text = folioscope("diff", *cores).ok()
    assert f"zap             {address:012x}-{address + LAYOUT.page:012x}     1 page" in text
    found = json.loads(folioscope("diff", *cores, "--format", "json").ok())
    jsonschema.validate(found, json.loads(folioscope("schema", "diff").ok()))
    [process] = found["processes"]
    assert (process["pid"], process["name"], process["lives"]) == (spawned["pid"], "changes", "both")
    assert process["started_ns"] > 0
    mine = [event for event in process["events"] if int(event["va"], 16) >= address]
    told = [(event["kind"], (int(event["va"], 16) - address) // LAYOUT.page, event["pages"]) for event in mine]
    assert told == [("zap", 0, 1), ("unfold", 1, 15)]
    assert folioscope("diff", cores[0], cores[0]).ok() == "nothing happened to 1 process(es)\n"
    wrong = folioscope("diff", *cores, "--pid", "9999")
    assert "neither snapshot holds process 9999" in wrong.sentence()


def test_cores_of_all_ram(held: Held, tmp_path: Path) -> None:
    """Every process, with those that came and went."""
    one, address = held.area("stays", LAYOUT.block, LAYOUT.block)
    gone, _ = held.area("goes", LAYOUT.block, LAYOUT.block)
    cores = [tmp_path / name for name in ("before.core", "after.core")]
    full = ["save", "--full", "--guest", held.socket, "--pid", str(one["pid"])]
    folioscope(*full, cores[0]).ok()
    held.call("command", command={"kill": {"process": gone["process"]}})
    new, _ = held.area("comes", LAYOUT.block, LAYOUT.block)
    held.op(one["process"], "madvise", address=address, length=LAYOUT.block, advice="dontneed")
    folioscope(*full, cores[1]).ok()
    found: dict[str, Any] = json.loads(folioscope("diff", *cores, "--format", "json").ok())
    lives = {each["pid"]: (each["name"], each["lives"]) for each in found["processes"]}
    assert lives[gone["pid"]] == ("goes", "ended")
    assert lives[new["pid"]] == ("comes", "started")
    assert lives[one["pid"]] == ("stays", "both")
    [mine] = [each for each in found["processes"] if each["pid"] == one["pid"]]
    told = [(event["kind"], event["pages"]) for event in mine["events"] if int(event["va"], 16) == address]
    assert told == [("zap", 16)]
    # Of a process that nothing was done to nothing is told.
    assert all(each["name"] != "four" for each in found["processes"])
