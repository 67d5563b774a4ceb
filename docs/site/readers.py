# SPDX-License-Identifier: GPL-2.0-only
"""Leaves the plugin's own readers out of the reference: `read()` of a class, which takes a line of JSON.

`read()` of a guest and of an area is an operation, and stays.
"""

from typing import Any

import griffe


class Readers(griffe.Extension):
    """Removes the class methods of that name."""

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Called for each class when its members are known."""
        reader = cls.members.get("read")
        if reader and reader.is_function and "classmethod" in reader.labels:
            del cls.members["read"]
