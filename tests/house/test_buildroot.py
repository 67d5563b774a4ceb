# SPDX-License-Identifier: GPL-2.0-only
"""A guest's initramfs that a Buildroot tree has built, without the network.

`BUILDROOT` names the tree, and `BR2_DL_DIR` its downloads. Without them there is nothing to test: nothing here
fetches Buildroot.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from command import OUT, ROOT, folioscope

TREE, DOWNLOADS = os.environ.get("BUILDROOT"), os.environ.get("BR2_DL_DIR")
SCRIPT = ROOT / "tests" / "buildroot" / "build.sh"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that it was built in."""
    if not TREE or not DOWNLOADS:
        pytest.skip("BUILDROOT and BR2_DL_DIR name no Buildroot tree with its downloads")
    work = tmp_path_factory.mktemp("buildroot")
    words = ["--buildroot", TREE, "--downloads", DOWNLOADS, "--agent", OUT / "folioscope-agent", "--work", work]
    ended = subprocess.run([SCRIPT, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return work


@pytest.mark.long
@pytest.mark.qemu
@pytest.mark.timeout(3600)
def test_the_tour_on_what_buildroot_built(built: Path, tmp_path: Path) -> None:
    """busybox, C library and loads are Buildroot's; the tour's first workloads find nothing on it."""
    target = built / "output" / "target"
    said = (target / "usr" / "lib" / "os-release").read_text()
    assert "NAME=Buildroot" in said
    libraries = subprocess.run(
        ["readelf", "-d", target / "bin" / "busybox"], capture_output=True, text=True, check=True
    )
    assert re.search(r"NEEDED.*\[libc\.so\.6\]", libraries.stdout), "the static one of pack.sh is Debian's"
    assert (target / "lab" / "load").is_file() and (target / "lib" / "libc.so.6").exists()
    run = ["--granule", "4k", "--only", "anon,fork,munmap,tmpfs", "--initrd", built / "initramfs.cpio"]
    folioscope("run", *run, "--out", tmp_path / "run").ok()


@pytest.mark.parametrize("missing", ["--buildroot", "--downloads", "--agent"])
def test_what_is_missing_is_named(missing: str, tmp_path: Path) -> None:
    """Before anything is built."""
    (tmp_path / "support" / "scripts").mkdir(parents=True)
    (tmp_path / "support" / "scripts" / "br2-external").touch()
    (tmp_path / "package" / "busybox").mkdir(parents=True)
    (tmp_path / "package" / "busybox" / "busybox.mk").write_text("BUSYBOX_VERSION = 1.2.3\n")
    (tmp_path / "busybox").mkdir()
    (tmp_path / "busybox" / "busybox-1.2.3.tar.bz2").touch()
    (tmp_path / "agent").touch()
    words = {"--buildroot": tmp_path, "--downloads": tmp_path, "--agent": tmp_path / "agent", "--work": tmp_path / "w"}
    words[missing] = tmp_path / "none"
    ended = subprocess.run(
        [SCRIPT, *(str(word) for pair in words.items() for word in pair)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2 and str(tmp_path / "none") in ended.stderr and ended.stderr.count("\n") == 1
    assert not (tmp_path / "w").exists()
