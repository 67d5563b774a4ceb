# SPDX-License-Identifier: GPL-2.0-only
"""docs/reports.md has each field of a report and each method of a session, as the schemas of the command have them."""

from __future__ import annotations

import json
import re

from command import COMMAND, ROOT, folioscope
from schema_reference import document

TEXT = (ROOT / "docs" / "reports.md").read_text()


def test_the_page_is_made_of_the_schemas() -> None:
    """A field that is new is in the page when it is made again."""
    how = "run: python3 tests/helpers/schema_reference.py out/folioscope > docs/reports.md"
    assert document(COMMAND) == TEXT, how


def test_every_method_and_type_is_there() -> None:
    """By the schema itself: fields of a report and of a finding, and methods; each link leads to a table."""
    report = json.loads(folioscope("schema").ok())
    for of in (report, report["$defs"]["Finding"], report["$defs"]["Step"]):
        assert all(f"\n| `{name}`" in TEXT for name in of["properties"])
    session = json.loads(folioscope("schema", "session").ok())
    methods = [each["properties"]["method"]["const"] for each in session["$defs"]["Request"]["oneOf"]]
    assert len(methods) > 20 and all(f"\n| `{name}` | " in TEXT for name in methods)
    headings = {name.lower() for name in re.findall(r"^### (\w+)$", TEXT, re.M)}
    assert set(re.findall(r"\]\(#(\w+)\)", TEXT)) <= headings
