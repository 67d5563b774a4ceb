# SPDX-License-Identifier: GPL-2.0-only
"""Writes docs/reports.md: the fields of a report and the methods of a session, from the schemas of the command.

Usage: python tests/helpers/schema_reference.py out/folioscope > docs/reports.md
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

#: Types without a table of their own.
PLAIN = {"RuleId": "[rule](rules.md)", "Hex": "string, `0x...`", "Text": "string"}
HEAD = """# Reports and sessions

Reports for CI are `--json`, `--junit` and `--ktap`, for people `--html`. Findings of one cause are
one finding in each of them, with the number of places and the first of these; `totals.errors`
counts places, `totals.findings` findings. When a guest is lost, `out/bundles/` keeps its console,
registers, tables (a core), findings and the exact command. All that can be proved of its tables is
judged, so a guest that hangs because they are broken ends with status 1.

Other programs drive a guest by lines of JSON: `folioscope session` on standard input and output,
`folioscope boot` on its socket, several at once.

`folioscope schema` prints the JSON schema of a report, and `folioscope schema session` that of the
lines. These tables are made from both, by
`python3 tests/helpers/schema_reference.py out/folioscope > docs/reports.md`.
"""
SESSION = """
## Session

Each line from a client is a request, with an `id` of its choice, a `method` and `params`. Each gets
one line as its answer, with the same `id`: `ok` with the result, or `error`. The first line of all
is a greeting.

```
{"id":1,"method":"command","params":{"command":{"processes":{}}}}
```

*Fields* are those of `params`. A `?` is behind a field that may be left out.
"""
COMMANDS = """
### Commands of the agent

`command` passes one of these to the agent in the guest, in `params.command`.
"""
OPERATIONS = """
### Operations of a process

The command `op` has one of these as its `op`.
"""


def schema(program: Path, of: str) -> Schema:
    """A schema, as the command prints it."""
    ended = subprocess.run([program, "schema", of], check=True, capture_output=True, text=True, timeout=60)
    found: Schema = json.loads(ended.stdout)
    return found


def words(text: str) -> str:
    """A description as a cell of a table: without links within the sources."""
    text = re.sub(r"\[(`[^`]+`)\](?:\([^)]*\))?", r"\1", " ".join(text.split()))
    return text.replace("crate::", "").replace("|", "\\|").replace("<", "&lt;")


def text(of: Schema) -> str:
    """The description of a type, as lines of a document."""
    return textwrap.fill(words(of["description"]), 100, break_long_words=False, break_on_hyphens=False)


def kind(field: Schema) -> str:
    """The type of a field, in a word or two."""
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    for several in ("anyOf", "oneOf"):
        if several in field:
            return " or ".join(dict.fromkeys(kind(each) for each in field[several]))
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    names = field.get("type", "any")
    names = names if isinstance(names, list) else [names]
    said = []
    for name in names:
        if name == "array" and "items" in field:
            said.append(f"list of {kind(field['items'])}")
        elif name == "object" and isinstance(field.get("additionalProperties"), dict):
            said.append(f"{kind(field['additionalProperties'])} by name")
        else:
            said.append(name)
    return " or ".join(said)


def described(field: Schema, all_of: Schema) -> str:
    """Its own words, or those of its type."""
    return words(field.get("description") or all_of.get(kind(field), {}).get("description", ""))


def linked(type_of: str) -> str:
    """The type of a field, with links to those that have a table."""
    return re.sub(r"\b[A-Z]\w+", lambda name: PLAIN.get(name[0], f"[{name[0]}](#{name[0].lower()})"), type_of)


def fields(of: Schema, all_of: Schema) -> Iterator[str]:
    """A row for each field of an object."""
    required = of.get("required", [])
    for name, field in of.get("properties", {}).items():
        mark = "" if name in required else "?"
        yield f"| `{name}`{mark} | {linked(kind(field))} | {described(field, all_of)} |"


def values(of: Schema) -> Iterator[str]:
    """A row for each value that a type may have; one field of an object says which value it is."""
    for each in of.get("oneOf", []):
        names = [each["const"]] if "const" in each else each.get("enum", [])
        more = [f"{name}: {value.get('const', '...')}" for name, value in each.get("properties", {}).items()]
        for name in names or [", ".join(more)]:
            yield f"| `{name}` | {words(each.get('description', ''))} |"
    for name in of.get("enum", []):
        yield f"| `{name}` | |"


def table(of: Schema, all_of: Schema) -> str:
    """The fields of an object, or the values of another type."""
    if rows := list(fields(of, all_of)):
        return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows])
    return "\n".join(["| value | meaning |", "|---|---|", *values(of)])


def report(of: Schema) -> Iterator[str]:
    """The report itself, and each type that is in it, in the order in which they are met."""
    types = of["$defs"]
    optional = "A `?` is behind a field that may be absent."
    yield f"\n## Report\n\n{text(of)} {optional}\n\n{table(of, types)}\n"
    waiting, met = [{**of, "$defs": {}}], set(PLAIN)
    while waiting:
        for name in re.findall(r'"#/\$defs/(\w+)"', json.dumps(waiting.pop(0))):
            if name not in met:
                met.add(name)
                waiting.append(types[name])
                yield f"\n### {name}\n\n{text(types[name])}\n\n{table(types[name], types)}\n"


def named(of: Schema, all_of: Schema) -> str:
    """The fields of what a method, a command or an operation takes."""
    of = all_of[kind(of)] if "$ref" in of else of
    required = of.get("required", [])
    return " ".join(f"`{name}`{'' if name in required else '?'}" for name in of.get("properties", {}))


def methods(of: Schema, all_of: Schema) -> Iterator[str]:
    """A row for each method of a request."""
    yield from ("| method | fields | meaning |", "|---|---|---|")
    for each in of["oneOf"]:
        method, params = each["properties"]["method"]["const"], each["properties"].get("params", {})
        yield f"| `{method}` | {named(params, all_of)} | {words(each['description'])} |"


def choices(of: Schema, all_of: Schema, head: str) -> Iterator[str]:
    """A row for each command or operation."""
    yield from (f"| {head} | fields | meaning |", "|---|---|---|")
    for each in of["oneOf"]:
        for name, takes in each.get("properties", {}).items():
            yield f"| `{name}` | {named(takes, all_of)} | {words(each.get('description', ''))} |"


def document(program: Path) -> str:
    """The whole document."""
    session = schema(program, "session")
    types = session["$defs"]
    parts = [
        HEAD,
        *report(schema(program, "report")),
        SESSION,
        *(f"\n{line}" if at == 0 else line for at, line in enumerate(methods(types["Request"], types))),
        COMMANDS,
        *(f"\n{line}" if at == 0 else line for at, line in enumerate(choices(types["Command"], types, "command"))),
        OPERATIONS,
        *(f"\n{line}" if at == 0 else line for at, line in enumerate(choices(types["Operation"], types, "operation"))),
    ]
    return "".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


if __name__ == "__main__":
    sys.stdout.write(document(Path(sys.argv[1]).absolute()))
