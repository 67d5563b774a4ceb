# SPDX-License-Identifier: GPL-2.0-only
"""Runs programs one after another; all that a program has started ends before the next begins, and with this process.

Run as a program of its own, with nothing but Python's library, and without threads: it forks. A line of JSON on
standard input is a program to run, any other line stops the one that runs, and the end of input ends all. A line of
JSON on standard output says how the program ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import time
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
#: Seconds that a program has between SIGTERM and SIGKILL.
GRACE = 2.0
_LIBC = ctypes.CDLL(None)


def children() -> list[int]:
    """The children of this process that are still there. Not every kernel lists them (CONFIG_PROC_CHILDREN)."""
    me, found = os.getpid(), []
    try:
        with open(f"/proc/self/task/{me}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        pass
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                # Behind the name, which may have anything in it: the state, and the parent.
                if int(file.read().rpartition(")")[2].split()[1]) == me:
                    found.append(int(name))
        except OSError:
            continue
    return found


def reaped() -> bool:
    """Takes in all children that have ended; true if none is left. An orphan is a child: this is a subreaper."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def end_all() -> int:
    """Ends all descendants; returns how many children had to be killed."""
    killed = set()
    while not reaped():
        for pid in children():
            killed.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.001)
    return len(killed)


def start(wanted: dict[str, Any]) -> int:
    """Starts a program: with the console as its output, and killed with this process."""
    me = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != me:
            os._exit(127)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # Python ignores it, and what is ignored is inherited.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        console = os.open(wanted["console"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(console, 1)
        os.dup2(console, 2)
        os.chdir(wanted["directory"])
        os.execvpe(wanted["words"][0], wanted["words"], wanted["environment"])
    except OSError as error:
        os.write(2, f"{wanted['words'][0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def run(wanted: dict[str, Any], input_: int) -> dict[str, Any]:
    """Runs a program to its end, its limit, or until it is to be stopped."""
    began = time.monotonic()
    pid = start(wanted)
    ended = os.pidfd_open(pid)
    try:
        how = "exited"
        left = None if wanted["limit"] is None else 1000 * wanted["limit"]
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(input_, select.POLLIN | select.POLLHUP)
        found = dict(poll.poll(left))
        if ended not in found:
            how = "stopped" if input_ in found else "limit"
            os.kill(pid, signal.SIGTERM)
            poll.unregister(input_)
            if not poll.poll(1000 * GRACE):
                os.kill(pid, signal.SIGKILL)
    finally:
        os.close(ended)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {"how": how, "status": status, "killed": end_all(), "seconds": time.monotonic() - began}


def main() -> None:
    """Serve the requests of standard input."""
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    # A Ctrl-C is for the process that has started this one.
    os.setsid()

    def on_term(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_all()
        os._exit(1)

    signal.signal(signal.SIGTERM, on_term)
    # Unbuffered: a line that was read ahead would make nothing ready.
    requests = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
    while line := requests.readline():
        if line.startswith(b"{"):
            answer = run(json.loads(line), 0)
            try:
                os.write(1, json.dumps(answer).encode() + b"\n")
            except BrokenPipeError:
                return


if __name__ == "__main__":
    main()
