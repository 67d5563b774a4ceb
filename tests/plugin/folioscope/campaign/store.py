# SPDX-License-Identifier: GPL-2.0-only
"""The state of campaigns: a directory, or a place that fsspec knows by URL.

``objects/`` has files by their SHA-256, ``results/`` a named result for each cell that has one, ``lost/`` a note for
each cell that was lost. A file is put under another name and then named, so half a file is never read; an object is
compared with its name when it is fetched. Two writers of a cell name one whole result or the other.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec

from ..content import digest
from .errors import Refused
from .result import Result

FORMAT = "folioscope-store"
VERSION = 1
_ABOUT = "store.json"
#: Protocols by which a put is whole or absent by itself.
_WHOLE = {"s3", "s3a", "gs", "gcs", "abfs", "az", "memory"}
#: The user and password of a URL, in messages.
_SHOWN = "//***@"


def shown(url: str) -> str:
    """A store's URL without a user and a password."""
    head, at, tail = url.rpartition("@")
    return head.partition("//")[0] + _SHOWN + tail if at and "//" in head else url


class Store:
    """A store that was opened. It can be pickled; another process opens it anew."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._made: set[str] = set()
        with self._errors("opened"):
            self._fs, root = fsspec.core.url_to_fs(str(Path(url).expanduser()) if "://" not in url else url)
        self._root = str(root).rstrip("/")
        protocol = self._fs.protocol
        self._whole = bool(_WHOLE & set([protocol] if isinstance(protocol, str) else protocol))
        self._local = "file" in protocol

    def __reduce__(self) -> tuple[type[Store], tuple[str]]:
        return Store, (self.url,)

    def open(self) -> Store:
        """Looks whether it can be used, and makes it where it is new. Raises ``Refused``."""
        about = self._read(_ABOUT)
        if about is None:
            self._put(_ABOUT, json.dumps({"format": FORMAT, "version": VERSION}).encode())
        else:
            self._known(about)
            probe = f"tmp/{uuid.uuid4().hex}"
            self._put(probe, b"probe")
            with self._errors("written"):
                self._fs.rm_file(self._path(probe))
        return self

    def _known(self, about: bytes) -> None:
        try:
            found = json.loads(about)
            name, version = found["format"], int(found["version"])
        except (ValueError, KeyError, TypeError):
            name, version = "", 0
        if name != FORMAT:
            raise Refused(
                f"expected a store of campaigns in {shown(self.url)} and found other files; name another place"
            )
        if version > VERSION:
            raise Refused(
                f"the store {shown(self.url)} is of version {version} and this program knows up to {VERSION}; "
                "update it, or name another store"
            )

    def named(self) -> set[str]:
        """The keys of all cells that have a result."""
        return self._keys("results")

    def lost(self) -> set[str]:
        """The keys of all cells that were lost, whether they have a result since or not."""
        return self._keys("lost")

    def result(self, key: str) -> Result | None:
        """The result of a cell; none if there is none, or if it cannot be read, so that the cell is run again."""
        data = self._read(f"results/{key[:2]}/{key}.json")
        try:
            return Result.of_json(json.loads(data)) if data else None
        except (ValueError, KeyError, TypeError):
            return None

    def name(self, result: Result) -> None:
        """Names a cell's result, whose files are put. From here on the cell is not run again."""
        data = json.dumps(result.as_json(), indent=1).encode()
        self._put(f"results/{result.key[:2]}/{result.key}.json", data)

    def forget(self, key: str) -> None:
        """Takes a cell's result away, as the cell is judged again: if it is lost now, an old verdict is none of it."""
        with self._errors("written"), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(f"results/{key[:2]}/{key}.json"))

    def lose(self, key: str, why: str) -> None:
        """Notes why a cell was lost: it has no result, and is tried again by the next campaign."""
        self._put(f"lost/{key[:2]}/{key}.json", json.dumps({"key": key, "why": why}).encode())

    def why_lost(self, key: str) -> str | None:
        """Why a cell was lost."""
        data = self._read(f"lost/{key[:2]}/{key}.json")
        try:
            return str(json.loads(data)["why"]) if data else None
        except (ValueError, KeyError, TypeError):
            return None

    def record(self, key: str, values: dict[str, Any], kind: str = "series") -> None:
        """Notes what a campaign about a series, or a bisect, came to."""
        self._put(f"{kind}/{key[:2]}/{key}.json", json.dumps(values, indent=1).encode())

    def records(self, kind: str = "series") -> dict[str, dict[str, Any]]:
        """The notes of a kind by key, those that can be read."""
        found = {}
        for key in sorted(self._keys(kind)):
            with contextlib.suppress(ValueError):
                found[key] = json.loads(self._read(f"{kind}/{key[:2]}/{key}.json") or b"")
        return found

    def put(self, path: Path) -> str:
        """Puts a file, and returns its name: the SHA-256."""
        name = digest(path)
        place = self._object(name)
        with self._errors("read"):
            there = self._fs.exists(self._path(place))
        if not there:
            self._put(place, path)
        return name

    def fetch(self, name: str, to: Path) -> None:
        """Gets a file by its name, whole or not at all."""
        to.parent.mkdir(parents=True, exist_ok=True)
        part = to.with_name(f".{to.name}.{uuid.uuid4().hex}")
        try:
            with self._errors("read"):
                self._fs.get_file(self._path(self._object(name)), str(part))
            if (found := digest(part)) != name:
                raise Refused(
                    f"the object {name} in the store {shown(self.url)} is damaged: its content is {found}; "
                    "remove it, and the results that name it"
                )
            part.replace(to)
        finally:
            part.unlink(missing_ok=True)

    @staticmethod
    def _object(name: str) -> str:
        return f"objects/{name[:2]}/{name}"

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _keys(self, below: str) -> set[str]:
        with self._errors("read"):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._path(below), detail=True)
            except FileNotFoundError:
                return set()
        # A power failure may leave a name without contents.
        names = (posixpath.basename(path) for path, about in found.items() if about["size"] != 0)
        return {name.removesuffix(".json") for name in names if name.endswith(".json") and name[0] != "."}

    def _read(self, name: str) -> bytes | None:
        with self._errors("read"):
            try:
                data: bytes = self._fs.cat_file(self._path(name))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return data

    def _put(self, name: str, what: bytes | Path) -> None:
        with self._errors("written"):
            at = self._path(name)
            place = at if self._whole else self._path(f"tmp/{uuid.uuid4().hex}")
            # An object store has no directories: making one there would make a bucket, also one that is misspelt.
            wanted = set() if self._whole else {posixpath.dirname(at), posixpath.dirname(place)}
            for directory in wanted - self._made:
                self._fs.makedirs(directory, exist_ok=True)
                self._made.add(directory)
            if isinstance(what, Path):
                self._fs.put_file(str(what), place)
            else:
                self._fs.pipe_file(place, what)
            if self._local:
                Path(place).replace(at)
            elif place != at:
                self._fs.mv(place, at)

    @contextlib.contextmanager
    def _errors(self, done: str) -> Iterator[None]:
        """Each file system has errors of its own."""
        try:
            yield
        except Refused:
            raise
        except Exception as error:
            what = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Refused(
                f"the store {shown(self.url)} could not be {done}: {' '.join(str(what).split())}; "
                "make it usable, or name another store"
            ) from error
