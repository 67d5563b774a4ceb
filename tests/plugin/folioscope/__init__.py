# SPDX-License-Identifier: GPL-2.0-only
"""Drive a Folioscope guest from Python: one class per thing that lives (guest, process, area)."""

from .area import Area
from .changes import Changes, Event, ProcessChanges, State
from .client import Attached, CommandFailed, GuestLost, Session
from .counts import Counts, Decision
from .expect import Expectation
from .guest import Guest
from .layout import LAYOUTS, Layout
from .listing import Folio, KernelMap, Mapping, Task, Vma, VmArea
from .locate import CommandNotFound
from .model import Entry, Finding, Hello, Mismatch, Program, Record, Touched, Verified
from .pages import FileCache, Page, Space
from .process import Held, Process
from .program import INCLUDE, Mark, ProgramRun
from .trace import Done, FolioThen, Sequence, Step, Tlbi, Trace
from .view import LookFailed, NotJudged, View

__all__ = [
    "INCLUDE",
    "LAYOUTS",
    "Area",
    "Attached",
    "Changes",
    "CommandFailed",
    "CommandNotFound",
    "Counts",
    "Decision",
    "Done",
    "Entry",
    "Event",
    "Expectation",
    "FileCache",
    "Finding",
    "Folio",
    "FolioThen",
    "Guest",
    "GuestLost",
    "Held",
    "Hello",
    "KernelMap",
    "Layout",
    "LookFailed",
    "Mapping",
    "Mark",
    "Mismatch",
    "NotJudged",
    "Page",
    "Process",
    "ProcessChanges",
    "Program",
    "ProgramRun",
    "Record",
    "Sequence",
    "Session",
    "Space",
    "State",
    "Step",
    "Task",
    "Tlbi",
    "Touched",
    "Trace",
    "Verified",
    "View",
    "VmArea",
    "Vma",
]
