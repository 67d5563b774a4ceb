# SPDX-License-Identifier: GPL-2.0-only
"""Errors that end a campaign; each is one sentence with what to do."""

from __future__ import annotations


class Refused(Exception):
    """The campaign cannot go on; the text is shown to the user unchanged."""


class Lost(Exception):
    """A cell ended without a result: its worker, its machine or its guest was lost."""
