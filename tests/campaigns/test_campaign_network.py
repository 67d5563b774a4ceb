# SPDX-License-Identifier: GPL-2.0-only
"""Campaigns over a network: an S3 server, a Dask scheduler and workers on hosts of their own, each with its cache."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from folioscope.campaign.cell import Cell, Kernel, Test
from folioscope.campaign.parts import keys
from folioscope.campaign.store import Store

from campaigns import PLUGIN, TABLE, ran_here, table, waiting
from command import ROOT, SLOWER, children, program, wait_until
from dask_cluster import Cluster
from hosts import Hosts, inside, kill
from s3_server import BUCKET, S3

pytestmark = pytest.mark.network

PROGRAM = ROOT / "tests" / "helpers" / "campaigns.py"
STORE = f"s3://{BUCKET}/store"
SCHEDULER, SERVER, FIRST = 1, 2, 3
# A test that boots nothing: it looks where its kernel is.
SEES = """import os
def test_it(pytestconfig):
    (kernel,) = pytestconfig.getoption("--folioscope-kernel")
    assert kernel.startswith(os.environ["FOLIOSCOPE_CACHE"]), kernel
"""
RUN = """import pickle, sys
from campaigns import *
store = Store(sys.argv[1]).open()
cells = pickle.loads(bytes.fromhex(sys.argv[3]))
ran = run(cells, store, engine_of(sys.argv[2], store, cells, None))
print(ran.ran, ran.lost, *table(cells, store).values())
"""


@dataclass
class Network:
    """Hosts, a server and a cluster on them; campaigns are on the host 0."""

    hosts: Hosts
    s3: S3
    cluster: Cluster
    place: Path

    def python(self, code: str, *words: object) -> str:
        """Runs Python on the campaigns' host."""
        return self.hosts.python(0, code, *words, environment=self.s3.environment())

    def campaign(self, *words: object) -> subprocess.Popen[bytes]:
        """Starts a campaign of cells that wait; its output is in the last log."""
        environment = {**self.s3.environment(), "PYTHONPATH": str(PLUGIN)}
        self.log().write_bytes(b"")
        everything = [sys.executable, PROGRAM, STORE, *words, f"dask={self.cluster.address}"]
        return self.hosts.start(0, everything, environment, self.log())

    def log(self) -> Path:
        """The last campaign's."""
        return self.place / "campaign.log"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """A scheduler and a server; each test starts its own workers."""
    place = tmp_path / "cluster"
    place.mkdir()
    with Hosts(6) as hosts:
        s3 = S3(hosts, SERVER, tmp_path)
        with Cluster(place, hosts, s3.environment()) as cluster:
            yield Network(hosts, s3, cluster, tmp_path)


@pytest.mark.qemu
def test_a_kernel_comes_through_the_store(network: Network, tmp_path: Path) -> None:
    """Into the cache of each worker that has a cell with it."""
    for host in (FIRST, FIRST + 1):
        network.cluster.worker("--no-nanny", host=host)
    (tmp_path / "test_seen.py").write_text(SEES)
    kernel = Kernel("pinned", "pinned", {"Image": str(ROOT / "out/kernel-4k/Image")})
    settings = {"select": ["test_seen.py"]}
    test = Test("seen", "pytest", settings, tmp_path)
    rig = keys("pytest", settings, tmp_path)
    cells = [Cell(kernel, test, append=str(number), rig=rig, limit=60 * SLOWER) for number in range(8)]
    said = network.python(RUN, STORE, f"dask={network.cluster.address}", pickle.dumps(cells).hex())
    assert said.split() == ["8", "{}", *["pass"] * 8]
    images = list(network.place.glob("cluster/worker-*/cache/kernels/stored-*/Image"))
    assert [image.read_bytes() for image in images] == [Path(kernel.files["Image"]).read_bytes()] * 2
    assert not network.cluster.waiting()


def family(pid: int) -> list[int]:
    """A worker's processes that may be killed: Dask's nanny, the worker, and the keeper of its cells."""
    found = [pid]
    for one in found:
        found += [child for child in children(one) if program(child) != "sleep"]
    return found


@pytest.mark.long
def test_everything_is_killed_at_random_instants(network: Network, tmp_path: Path) -> None:
    """Sixty cells on four workers. One or another process of a worker is killed again and again, and once the
    scheduler, which ends the campaign by one sentence and the workers with it. What is started again goes on, and the
    table is that of a campaign which was left alone. A cell is killed three times at most if workers are left."""
    chance, count, seconds = random.Random(36), 60, 0.5
    hosts = range(FIRST, FIRST + 4)
    workers = {host: network.cluster.worker(host=host, alone=5) for host in hosts}
    campaign, kills, gone = network.campaign(count, seconds), 0, 0
    end = time.monotonic() + 600 * SLOWER
    while True:
        assert time.monotonic() < end, network.cluster.logs()
        with contextlib.suppress(subprocess.TimeoutExpired):
            campaign.wait(chance.uniform(0.2, 1.2))
        if campaign.poll() is not None:
            said = network.log().read_text()
            if campaign.returncode == 0:
                break
            # By the scheduler alone, once.
            assert (campaign.returncode, gone) == (2, 1), said
            (line,) = said.splitlines()
            assert line.endswith("is gone; start it again, and then the campaign, which goes on"), line
            gone += 1
            network.cluster.start_scheduler()
            for worker in workers.values():
                worker.wait(60 * SLOWER)
            workers = {host: network.cluster.worker(host=host, alone=5) for host in hosts}
            campaign = network.campaign(count, seconds)
        elif kills >= 3 and not gone:
            kill(network.cluster.scheduler)
            gone = 1
        elif gone != 1 and len(network.cluster.waiting()) > 1:
            host = chance.choice(hosts)
            pid = inside(workers[host])
            if pid:
                os.kill(chance.choice(family(pid)), signal.SIGKILL)
                kills += 1
            # A nanny starts a worker anew; nobody but us starts a nanny.
            if workers[host].poll() is not None:
                workers[host] = network.cluster.worker(host=host, alone=5)
    assert gone == 2 and kills > 3
    assert " 0 lost in " in said
    assert wait_until(lambda: not network.cluster.waiting(), 10)
    alone, cells = Store(str(tmp_path / "alone")).open(), waiting(count, 0)
    ran_here(cells, alone)
    found = json.loads(network.python(TABLE, STORE, count, seconds))
    assert found == table(cells, alone) and set(found.values()) == {"pass"}
