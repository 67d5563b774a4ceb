# SPDX-License-Identifier: GPL-2.0-only
"""Campaigns whose store is a bucket of a real S3 server, on a host of its own."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from folioscope.content import digest

from campaigns import PLUGIN, TABLE
from command import ROOT, SLOWER, wait_until
from hosts import Hosts, kill
from s3_server import BUCKET, S3

pytestmark = pytest.mark.network

PROGRAM = ROOT / "tests" / "helpers" / "campaigns.py"
MATRIX = """version = 1
[kernels.none]
[tests.wait]
kind = "wait"
[axes]
kernel = ["none"]
cpu = ["max", "cortex-a72"]
test = ["wait"]
"""
#: A file of this size is put in parts, as s3fs does above twice its block of 50 MiB; a vmlinux is one.
LARGE = 101 << 20
#: Writers that are killed. What they have put of a file stays with the server.
CUTS = 2
#: Without it an error of the server's is asked about for ten seconds.
ONCE = {"AWS_MAX_ATTEMPTS": "1"}
# A store, and a file of random contents.
PUT = """import os, sys
from pathlib import Path
from folioscope.campaign.store import Store
store, path = Store(sys.argv[1]).open(), Path(sys.argv[2])
print("puts", flush=True)
print(store.put(path), flush=True)
"""
FETCH = """import sys
from pathlib import Path
from folioscope.campaign.errors import Refused
from folioscope.campaign.store import Store
try:
    Store(sys.argv[1]).fetch(sys.argv[2], Path(sys.argv[3]))
    print("whole")
except Refused as error:
    print(error)
"""


@dataclass
class Site:
    """A server, and where its clients are."""

    hosts: Hosts
    s3: S3

    @property
    def environment(self) -> dict[str, str]:
        """A client's."""
        return {**self.s3.environment(), "PYTHONPATH": str(PLUGIN)}

    def campaign(self, store: str, *words: object) -> str:
        """A campaign of cells that wait, to its end."""
        ran = self.hosts.run(0, [sys.executable, PROGRAM, store, *words], self.environment)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def python(self, code: str, *words: object) -> str:
        """Runs Python beside the server."""
        return self.hosts.python(0, code, *words, environment=self.s3.environment())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server on a host; clients are on another."""
    with Hosts(1) as hosts:
        yield Site(hosts, S3(hosts, 1, tmp_path_factory.mktemp("s3")))


def store(name: str) -> str:
    """The URL of a store."""
    return f"s3://{BUCKET}/{name}"


def test_a_campaign(site: Site) -> None:
    """On this machine. A second one finds all results; the bucket has what a directory has, and nothing else."""
    place = store("one")
    assert "0 kept, 6 ran, 0 lost" in site.campaign(place, 6, 0)
    assert "6 kept, 1 ran, 0 lost" in site.campaign(place, 7, 0)
    table = json.loads(site.python(TABLE, place, 7, 0))
    assert len(table) == 7 and set(table.values()) == {"pass"}
    names = site.python(f"import s3fs; print(*s3fs.S3FileSystem().find('{BUCKET}/one'), sep='\\n')").split()
    kinds = sorted(name.split("/")[2] for name in names)
    assert kinds == [*["results"] * 7, "store.json"]


def test_two_writers_agree(site: Site) -> None:
    """Two campaigns of the same cells at once end with one table, whole."""
    place = store("two")
    words = [sys.executable, PROGRAM, place, 8, 0.05]
    both = [site.hosts.start(0, words, site.environment, Path(os.devnull)) for _ in range(2)]
    assert [one.wait(60 * SLOWER) for one in both] == [0, 0]
    table = json.loads(site.python(TABLE, place, 8, 0.05))
    assert len(table) == 8 and set(table.values()) == {"pass"}


def test_half_a_file_is_never_read(site: Site, tmp_path: Path) -> None:
    """A large file is put in parts. Its writer is killed at random instants, and the file is not there; then it is."""
    place, chance, most = store("three"), random.Random(36), 0.3 * SLOWER
    path, log = tmp_path / "file", tmp_path / "log"
    path.write_bytes(random.Random(1).randbytes(LARGE))
    name = digest(path)
    cut = 0
    for _ in range(10):
        log.write_bytes(b"")
        put = site.hosts.start(0, [sys.executable, "-c", PUT, place, path], site.environment, log)
        assert wait_until(lambda: "puts" in log.read_text(), 30), log.read_text()
        time.sleep(chance.uniform(0, most))
        kill(put)
        said = site.python(FETCH, place, name, tmp_path / "there").strip()
        if said == "whole":
            # It was fast. One that is there is not put again.
            site.python(f"import s3fs; s3fs.S3FileSystem().rm_file('{BUCKET}/three/objects/{name[:2]}/{name}')")
            most /= 2
        else:
            assert "could not be read: The specified key does not exist" in said, said
            cut += 1
        if cut == CUTS:
            break
    assert cut == CUTS
    assert site.python(PUT, place, path).split()[-1] == name
    assert site.python(FETCH, place, name, tmp_path / "there").strip() == "whole"
    assert digest(tmp_path / "there") == name


def test_a_damaged_object_is_refused(site: Site, tmp_path: Path) -> None:
    """Its content is compared with its name."""
    (tmp_path / "file").write_text("contents")
    name = site.python(PUT, store("four"), tmp_path / "file").split()[-1]
    at = f"{BUCKET}/four/objects/{name[:2]}/{name}"
    site.python(f"import s3fs; s3fs.S3FileSystem().pipe_file('{at}', b'content')")
    assert "is damaged: its content is" in site.python(FETCH, store("four"), name, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def sentence(site: Site, url: str, words: list[object], environment: dict[str, str]) -> str:
    """The one sentence of a refusal, without what all have."""
    ran = site.hosts.run(0, [sys.executable, *words], {**environment, "PYTHONPATH": str(PLUGIN)})
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    (line,) = ran.stderr.splitlines()
    head, tail = f"folioscope: the store {url} could not be ", "; make it usable, or name another store"
    assert line.startswith(head) and line.endswith(tail), line
    return line.removeprefix(head).removesuffix(tail)


def refused(site: Site, tmp_path: Path, url: str, environment: dict[str, str]) -> str:
    """What `folioscope matrix` says."""
    (tmp_path / "matrix.toml").write_text(MATRIX)
    words = ["-m", "folioscope.campaign", "matrix", tmp_path / "matrix.toml", "--store", url]
    return sentence(site, url, [*words, "--out", tmp_path / "out"], environment)


def test_a_server_that_is_not_there_is_refused(site: Site, tmp_path: Path) -> None:
    """By one sentence, as are those below."""
    environment = {**site.s3.environment(), **ONCE, "AWS_ENDPOINT_URL": f"http://{Hosts.address(0)}:1"}
    assert refused(site, tmp_path, store("five"), environment).startswith("read: Could not connect to the endpoint")


def test_credentials_that_are_refused(site: Site, tmp_path: Path) -> None:
    """An unknown user, and a wrong secret."""
    for environment in (site.s3.environment("stranger"), site.s3.environment("writer", "wrong")):
        assert refused(site, tmp_path, store("five"), environment) == "read: Forbidden"


def test_a_bucket_that_may_only_be_read_is_refused(site: Site, tmp_path: Path) -> None:
    """A store that is there, and one that is new."""
    site.campaign(store("six"), 1, 0)
    for name in ("six", "seven"):
        assert refused(site, tmp_path, store(name), site.s3.environment("reader")) == "written: Access Denied."


def test_a_bucket_that_is_not_there_is_refused(site: Site, tmp_path: Path) -> None:
    """It is not made: its name may be misspelt."""
    said = refused(site, tmp_path, "s3://campaings/x", site.s3.environment())
    assert said == "written: The specified bucket does not exist"


def test_a_full_store_is_refused(tmp_path: Path) -> None:
    """Where it is full after some cells: what is left of a page takes a few results."""
    with Hosts(1) as hosts:
        site, url = Site(hosts, S3(hosts, 1, tmp_path, "60m")), store("x")
        site.campaign(url, 1, 0)
        site.s3.fill()
        said = sentence(site, url, [PROGRAM, url, 100, 0], {**site.s3.environment(), **ONCE})
        assert said == "written: We encountered an internal error, please try again."
