#!/usr/bin/env python3
"""Writes a cpio archive in the newc format that depends on nothing but its input.

Reads a list from standard input, one entry per line, fields separated by tabs, and writes the
archive to standard output:

    dir   PATH  MODE
    file  PATH  MODE  SOURCE
    link  PATH  TARGET
    node  PATH  MODE  c|b  MAJOR  MINOR
    tree  DIRECTORY             everything under a directory of the host, at the archive's root

Every owner is root, every time is 0, and the entries are sorted, so that nobody has to be root and
the same input gives the same bytes. A later entry replaces an earlier one with the same path.
Directories that a path needs are made. The kernel's format: Documentation/driver-api/early-userspace/buffer-format.rst.
"""

import os
import stat
import sys

MAGIC = b"070701"
LAST = "TRAILER!!!"
LIMIT = 0xFFFFFFFF


class Bad(Exception):
    """The list, or what it names, cannot be packed."""


class Archive:
    """Entries by path: mode, content, device."""

    def __init__(self):
        self.entries = {}

    def add(self, path, mode, content=b"", device=(0, 0)):
        path = path.strip("/")
        if not path or ".." in path.split("/"):
            raise Bad(f"'{path}' is no path in the archive")
        parent = os.path.dirname(path)
        if parent and parent not in self.entries:
            self.add(parent, stat.S_IFDIR | 0o755)
        if parent and not stat.S_ISDIR(self.entries[parent][0]):
            raise Bad(f"/{path} cannot be packed: /{parent} is no directory")
        if path in self.entries and stat.S_ISDIR(self.entries[path][0]) != stat.S_ISDIR(mode):
            raise Bad(f"/{path} is a directory in one place and none in another")
        self.entries[path] = (mode, content, device)

    def add_file(self, path, mode, source):
        with open(source, "rb") as file:
            self.add(path, stat.S_IFREG | mode, file.read())

    def add_tree(self, root):
        if not os.path.isdir(root):
            raise Bad(f"{root} is no directory")
        for directory, names, files in os.walk(root):
            for name in names + files:
                source = os.path.join(directory, name)
                path = os.path.relpath(source, root)
                mode = os.lstat(source).st_mode
                # A user's umask must not decide what is in the archive.
                usual = 0o755 if mode & 0o100 else 0o644
                if stat.S_ISLNK(mode):
                    self.add(path, stat.S_IFLNK | 0o777, os.fsencode(os.readlink(source)))
                elif stat.S_ISDIR(mode):
                    self.add(path, stat.S_IFDIR | 0o755)
                elif stat.S_ISREG(mode):
                    self.add_file(path, usual, source)
                else:
                    raise Bad(f"{source} is neither a file, a directory nor a symbolic link")

    def read_list(self, lines):
        for number, line in enumerate(lines, 1):
            fields = line.rstrip("\n").split("\t")
            try:
                match fields:
                    case [""]:
                        pass
                    case ["dir", path, mode]:
                        self.add(path, stat.S_IFDIR | int(mode, 8))
                    case ["file", path, mode, source]:
                        self.add_file(path, int(mode, 8), source)
                    case ["link", path, target]:
                        self.add(path, stat.S_IFLNK | 0o777, os.fsencode(target))
                    case ["node", path, mode, "c" | "b" as kind, major, minor]:
                        kind = stat.S_IFCHR if kind == "c" else stat.S_IFBLK
                        self.add(path, kind | int(mode, 8), device=(int(major), int(minor)))
                    case ["tree", root]:
                        self.add_tree(root)
                    case _:
                        raise Bad(f"not an entry: {line.strip()}")
            except (ValueError, Bad) as error:
                raise Bad(f"line {number}: {error}") from error

    def write(self, out):
        def entry(number, name, mode, content, device, links):
            name = os.fsencode(name) + b"\0"
            if len(content) > LIMIT:
                raise Bad(f"{name} is too large for the format")
            fields = [number, mode, 0, 0, links, 0, len(content), 0, 0, *device, len(name), 0]
            header = MAGIC + b"".join(b"%08x" % field for field in fields) + name
            out.write(header + b"\0" * (-len(header) % 4))
            out.write(content + b"\0" * (-len(content) % 4))

        # A parent sorts before what is in it.
        for number, path in enumerate(sorted(self.entries), 1):
            mode, content, device = self.entries[path]
            entry(number, path, mode, content, device, 2 if stat.S_ISDIR(mode) else 1)
        entry(0, LAST, 0, b"", (0, 0), 1)


def main():
    archive = Archive()
    try:
        archive.read_list(sys.stdin)
        archive.write(sys.stdout.buffer)
    except (Bad, OSError) as error:
        print(f"newc.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
