"""Drive a Folioscope guest from Python: one class per thing that lives (guest, process, area)."""

from .client import CommandFailed, GuestLost, Session
from .guest import Area, Guest, Process, View
from .layout import Layout

__all__ = ["Area", "CommandFailed", "Guest", "GuestLost", "Layout", "Process", "Session", "View"]
