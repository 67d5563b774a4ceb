# SPDX-License-Identifier: GPL-2.0-only
"""Files of a disk: the words on the disk and those in the page cache are compared separately."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from folioscope import Guest, Layout
from folioscope.process import Process

NULLB = "/sys/kernel/config/nullb/stored"
PLACE = "/tmp/stored"
#: As `vmm/folioscope/src/cross/mounts.rs` has them.
SUPER = r"\123\106\117\132\005\253\277\131"


def shell(guest: Guest, words: str) -> str:
    """What the words print; they succeed."""
    ended = guest.run(["sh", "-ec", words])
    assert ended.status == 0, ended
    return ended.stdout


@pytest.fixture
def path(guest: Guest) -> Iterator[str]:
    """A file of zonefs on a disk of memory."""
    settings = {"size": 16, "zone_size": 4, "zone_nr_conv": 2, "zoned": 1, "memory_backed": 1, "power": 1}
    echo = "".join(f"echo {value} > {NULLB}/{name}; " for name, value in settings.items())
    shell(
        guest,
        f"mount -t configfs configfs /sys/kernel/config; mkdir {NULLB}; {echo} mkdir -p {PLACE}; "
        f"printf '{SUPER}' | dd of=/dev/stored conv=notrunc,fsync; mount -t zonefs /dev/stored {PLACE}",
    )
    yield f"{PLACE}/cnv/0"
    shell(guest, f"umount {PLACE}; rmdir {NULLB}; umount /sys/kernel/config")


def wrong(process: Process, path: str, salt: int, *, direct: bool) -> int:
    """How many of the words of two pages are not of this salt."""
    expect = {"pattern": {"salt": salt}}
    found = process.op("file_verify", path=path, offset=0, length=8192, stride=4096, expect=expect, direct=direct)
    assert found["verified"]["words"] == 2
    count: int = found["verified"]["wrong"]
    return count


def cached(guest: Guest) -> int:
    """Pages of the page cache."""
    return int(shell(guest, "sed -n 's/^nr_file_pages //p' /proc/vmstat"))


def test_what_is_stored(path: str, process: Process, layout: Layout) -> None:
    """A store by mmap is on the disk behind fsync(), and again the next one, which faults."""
    pages = 2 * layout.cont_pages
    process.op("file_write", path=path, offset=0, length=pages * layout.page, salt=1)
    area = process.map_file(path, pages * layout.page)
    word = process.peek(area.address)[0]
    for value in (word ^ 1, word):
        process.poke(area.address, [value])
        process.op("file_sync", path=path)
        # The pattern of a file is by the offset: the same word at both places.
        expected = int(value != word)
        assert wrong(process, path, 1, direct=False) == wrong(process, path, 1, direct=True) == expected


def test_what_is_evicted(guest: Guest, path: str, process: Process, layout: Layout) -> None:
    """What was written leaves the page cache, and comes back from the disk."""
    pages = 2 * layout.cont_pages
    before = cached(guest)
    process.op("file_write", path=path, offset=0, length=pages * layout.page, salt=2)
    assert cached(guest) >= before + pages
    process.op("file_sync", path=path, evict=True)
    assert cached(guest) < before + pages // 2
    assert wrong(process, path, 2, direct=False) == 0
