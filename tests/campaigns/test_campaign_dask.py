# SPDX-License-Identifier: GPL-2.0-only
"""Campaigns on Dask: a scheduler and workers that are real processes, and what happens when these are killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from folioscope.campaign import on_dask
from folioscope.campaign.campaign import Ran, run
from folioscope.campaign.cell import Cell, Kernel, Test
from folioscope.campaign.errors import Refused
from folioscope.campaign.on_dask import Dask
from folioscope.campaign.parts import keys
from folioscope.campaign.store import Store

from campaigns import PLUGIN, ran_here, table, waiting
from command import ROOT, SLOWER, wait_until
from dask_cluster import Cluster

SECONDS = 60 * SLOWER


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler; each test has its own workers."""
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster") as found:
        yield found


class Campaign:
    """A campaign that runs in a thread."""

    def __init__(self, cells: list[Cell], store: Store, cluster: Cluster) -> None:
        self._ran: Ran | BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(cells, store, str(cluster.file)))
        self._thread.start()

    def _run(self, cells: list[Cell], store: Store, address: str) -> None:
        try:
            self._ran = run(cells, store, Dask(address, store))
        except BaseException as error:  # noqa: BLE001
            self._ran = error

    def end(self, seconds: float = SECONDS) -> Ran:
        """What it comes to."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the campaign does not end"
        if isinstance(self._ran, BaseException):
            raise self._ran
        assert self._ran
        return self._ran


def killed(cluster: Cluster, process: subprocess.Popen[bytes] | None = None) -> None:
    """Kills a worker while its cell runs; the cell ends with it."""
    assert wait_until(cluster.waiting, SECONDS), cluster.logs()
    cell = random.choice(cluster.waiting())
    os.kill(process.pid if process else cluster.owner(cell), signal.SIGKILL)
    assert wait_until(lambda: cell not in cluster.waiting(), 10)


def test_a_worker_that_is_killed_costs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """One is killed with its cell, and another runs that cell again. One has Dask's nanny, which starts it anew."""
    cluster.worker("--no-nanny")
    cluster.worker()
    store = Store(str(tmp_path / "store")).open()
    cells = waiting(10, 0.4)
    campaign = Campaign(cells, store, cluster)
    killed(cluster)
    ran = campaign.end()
    assert (ran.ran, ran.lost) == (10, {})
    assert set(table(cells, store).values()) == {"pass"}
    assert run(cells, store, Dask(cluster.address, store)).ran == 0
    assert not cluster.waiting()


def test_a_scheduler_that_is_killed_ends_the_campaign(cluster: Cluster, tmp_path: Path) -> None:
    """With one sentence, and the workers end with their cells. What has a result keeps it: another engine goes on."""
    worker = cluster.worker("--no-nanny", alone=5)
    store = Store(str(tmp_path / "store")).open()
    cells = [*waiting(2, 0), *waiting(4, 2)[2:]]
    campaign = Campaign(cells, store, cluster)
    assert wait_until(lambda: len(store.named()) >= 2, SECONDS)
    cluster.scheduler.kill()
    with pytest.raises(Refused, match=r"the Dask scheduler at .*scheduler.json is gone; start it again, and then"):
        campaign.end()
    assert wait_until(lambda: worker.poll() is not None and not cluster.waiting(), 30)
    ran = ran_here(cells, store)
    assert ran.kept >= 2 and ran.kept + ran.ran == 4
    assert set(table(cells, store).values()) == {"pass"}


def test_a_campaign_that_ends_ends_its_cells(cluster: Cluster, tmp_path: Path) -> None:
    """They do not run on at the workers, which serve the next campaign; nor does a cell beyond its limit."""
    cluster.worker("--no-nanny")
    store = Store(str(tmp_path / "store")).open()
    engine = Dask(cluster.address, store)

    class Ended(Exception):
        pass

    class Progress:
        begun = building = ended = staticmethod(lambda *_: None)

        @staticmethod
        def tick() -> None:
            if cluster.waiting():
                raise Ended

    with pytest.raises(Ended):
        run(waiting(3, 600), store, engine, progress=Progress())
    assert wait_until(lambda: not cluster.waiting(), 10)
    (late,) = waiting(1, 600, limit=0.2)
    ran = run([late, *waiting(2, 0)], store, Dask(cluster.address, store))
    assert (ran.ran, ran.lost) == (2, {late.key: "it took longer than its limit of 0.2 s"})
    assert not cluster.waiting()


def test_a_worker_with_another_version_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """By one sentence, and the cell is no other's fault: it has no result, and is not lost."""
    other = tmp_path / "other"
    shutil.copytree(PLUGIN, other, ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "folioscope" / "campaign" / "cell.py").open("a") as file:
        file.write("# another version\n")
    cluster.worker("--no-nanny", package=other)
    store = Store(str(tmp_path / "store")).open()
    with pytest.raises(Refused, match=r"the worker tcp://.* has folioscope's campaigns \w{20} and the campaign has"):
        run(waiting(1, 0), store, Dask(cluster.address, store))
    assert store.named() == store.lost() == set()


@pytest.mark.qemu
def test_a_guest_on_a_worker(cluster: Cluster, tmp_path: Path) -> None:
    """Its kernel comes through the store into the worker's own cache."""
    cluster.worker("--no-nanny")
    store = Store(str(tmp_path / "store")).open()
    kernel = Kernel("pinned", "pinned", {"Image": str(ROOT / "out/kernel-4k/Image")})
    settings = {"only": "anon"}
    one = Cell(kernel, Test("anon", "tour", settings), machine="tcg", rig=keys("tour", settings), limit=300 * SLOWER)
    ran = run([one], store, Dask(cluster.address, store))
    assert (ran.ran, ran.lost) == (1, {})
    result = store.result(one.key)
    assert result and result.outcome == "pass" and result.summary.endswith("0 errors, 0 remarks, 0 not judged")
    (image,) = (tmp_path / "cluster").glob("worker-*/cache/kernels/stored-*/Image")
    assert image.read_bytes() == Path(kernel.files["Image"]).read_bytes()


def test_no_scheduler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one sentence."""
    monkeypatch.setattr(on_dask, "PATIENCE", 1)
    with pytest.raises(Refused, match="^expected a Dask scheduler at tcp://127.0.0.1:1 and found none; start"):
        Dask("tcp://127.0.0.1:1", Store(str(tmp_path)))


@pytest.mark.long
def test_a_cell_that_kills_its_workers_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    """After four workers, as Dask's scheduler counts them."""
    cluster.worker()
    store = Store(str(tmp_path / "store")).open()
    cells = waiting(1, 600)
    campaign = Campaign(cells, store, cluster)
    for _ in range(4):
        killed(cluster)
    ran = campaign.end()
    assert ran.lost == {cells[0].key: "its workers were killed"} and store.lost() == {cells[0].key}
