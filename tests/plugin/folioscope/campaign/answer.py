# SPDX-License-Identifier: GPL-2.0-only
"""Run by ``git bisect run`` for each commit: waits for the answer of the process that listens at a socket, and ends
with it as its status. Where that process is gone, with one that ends the bisect."""

from __future__ import annotations

import socket
import sys

ABORT = 255


def main() -> int:
    """The status for git."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(sys.argv[1])
            answer = client.makefile().readline().strip()
        except OSError:
            return ABORT
    return int(answer) if answer.isdecimal() else ABORT


if __name__ == "__main__":
    sys.exit(main())
