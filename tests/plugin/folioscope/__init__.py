"""Drive a Folioscope guest from Python: one class per thing that lives (guest, process, area)."""

from .area import Area
from .client import CommandFailed, GuestLost, Session
from .expect import Expectation
from .guest import Guest
from .layout import LAYOUTS, Layout
from .locate import CommandNotFound
from .model import Entry, Finding, Hello, Mismatch, Page, Program, Record, Space, Touched, Verified
from .process import Held, Process
from .view import View

__all__ = [
    "LAYOUTS",
    "Area",
    "CommandFailed",
    "CommandNotFound",
    "Entry",
    "Expectation",
    "Finding",
    "Guest",
    "GuestLost",
    "Held",
    "Hello",
    "Layout",
    "Mismatch",
    "Page",
    "Process",
    "Program",
    "Record",
    "Session",
    "Space",
    "Touched",
    "Verified",
    "View",
]
