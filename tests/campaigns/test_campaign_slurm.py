# SPDX-License-Identifier: GPL-2.0-only
"""A campaign on workers that Slurm starts: Debian's Slurm, and the program that the documents give."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from folioscope.campaign.store import Store

import command
from campaigns import PLUGIN, table, waiting
from command import ROOT, SLOWER, wait_until
from hosts import Hosts
from slurm import Slurm

pytestmark = pytest.mark.network

PROGRAM = ROOT / "tests" / "helpers" / "campaigns.py"
NODES, COUNT, SECONDS = 2, 8, 1.0


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """The controller's and the nodes'. Dask takes the address of the default route."""
    with Hosts(1 + NODES) as found:
        made = found.run(0, ["ip", "route", "add", "default", "dev", "hosts"])
        assert made.returncode == 0, made.stderr
        yield found


def workers(place: Path) -> Path:
    """The program of the documents."""
    text = (ROOT / "docs" / "how-to" / "campaigns.md").read_text()
    (found,) = re.findall(r"```python\n(# slurm_workers.py\n.*?)```", text, re.DOTALL)
    program = place / "slurm_workers.py"
    program.write_text(found)
    return program


def test_workers_of_slurm(hosts: Hosts, tmp_path: Path) -> None:
    """A job is cancelled while its cell runs, and the other worker runs that cell again. The jobs end with the
    program that has submitted them, and nothing runs on."""
    (tmp_path / "slurm").mkdir()
    slurm = Slurm(hosts, tmp_path / "slurm", NODES)
    mark = uuid.uuid4().hex
    # Not into the checkout: what the environment has comes before what the program says.
    said = str(tmp_path / "job-%j.log")
    more = {"SBATCH_OUTPUT": said, "SBATCH_ERROR": said, command.MARK: mark, "PYTHONPATH": str(PLUGIN)}
    environment = {**os.environ, **slurm.environment(), **more}
    with subprocess.Popen(
        hosts.words(0, slurm.words([sys.executable, workers(tmp_path)]), ROOT),
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as submits:
        assert submits.stdout
        address = submits.stdout.readline().strip()
        assert address.startswith("tcp://"), slurm.logs()

        def jobs() -> list[str]:
            return slurm.said("squeue", "--noheader", "--states=running", "--format=%i").split()

        assert wait_until(lambda: len(jobs()) == NODES, 30), slurm.logs()
        words = [sys.executable, PROGRAM, tmp_path / "store", COUNT, SECONDS, f"dask={address}"]
        log = tmp_path / "campaign.log"
        campaign = hosts.start(0, words, {"PYTHONPATH": str(PLUGIN)}, log)
        cells = lambda: [pid for pid in command.marked(mark) if command.program(pid) == "sleep"]  # noqa: E731
        assert wait_until(lambda: len(cells()) == NODES, 60), log.read_text() + slurm.logs()
        assert slurm.said("scancel", jobs()[0]) == ""
        assert campaign.wait(120 * SLOWER) == 0, log.read_text()
        assert f"0 kept, {COUNT} ran, 0 lost" in log.read_text()
        submits.communicate("\n", timeout=60 * SLOWER)
    assert wait_until(lambda: not command.marked(mark), 30), slurm.logs()
    assert jobs() == []
    found = table(waiting(COUNT, SECONDS), Store(str(tmp_path / "store")))
    assert set(found.values()) == {"pass"}
