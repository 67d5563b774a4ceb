# SPDX-License-Identifier: GPL-2.0-only
"""A test by the plugin cannot pass by accident: what is stated is judged, and what is found or not judged fails it."""

from __future__ import annotations

import re

import pytest

from test_plugin import run, user

__all__ = ["user"]

pytest_plugins = ["pytester"]

#: By its name, the body of a test that must fail, and the last words of its failure.
FAILS = {
    "a_block_that_folds": (
        'area.write(); area.must_not_fold("it is new"); process.look()',
        r"LookFailed: .*C2 at 0x[0-9a-f]+.*\(it is new\)",
    ),
    "without_a_look": (
        "area.write(); area.must_fold().written()",
        r"no look has judged what this test stated: contiguous at 0x[0-9a-f]+-0x[0-9a-f]+",
    ),
    "a_dictionary": (
        'area.write(); process.look(expectations=[{"start": area.address, "end": area.address, "what": "written"}])',
        r"TypeError: expected Expectation\(start, end, what\) and found \{",
    ),
    "after_the_last_look": (
        'area.write(); process.look(); area.must_not_fold("it is new")',
        r"no look has judged what this test stated: not-contiguous .*\(it is new\)",
    ),
    "of_another_process": (
        "area.write(); child = process.fork(); area.in_process(child).must_fold(); process.look()",
        r"no look has judged what this test stated: contiguous",
    ),
    "of_a_process_that_is_gone": (
        "area.write(); area.must_fold(); process.exit()",
        r"no look has judged what this test stated: contiguous",
    ),
    "an_order_without_a_look": (
        "area.write(); area.order(9)",
        r"no look has judged what this test stated: order 9 at",
    ),
    "another_order": (
        "area.write(); area.order(2); process.look()",
        r"LookFailed: .*order at 0x[0-9a-f]+.*where the test expects order 2",
    ),
    "nobody_read_what_was_found": (
        'area.write(); area.must_not_fold("it is new"); process.look(check=False)',
        r"no look has judged what this test stated: not-contiguous",
    ),
    "no_record_of_a_fault": (
        "area.write(); process.look(); area.order(4); process.look()",
        r"NotJudged: .*has no record of a fault there",
    ),
    "nothing_was_faulted_in": (
        "area.fresh(); process.look()",
        r"NotJudged: .*has no record of a fault there",
    ),
    "nothing_is_mapped_that_could_be_held": (
        "area.unheld(); process.look()",
        r"NotJudged: .*unheld at 0x[0-9a-f]+-0x[0-9a-f]+ .*maps nothing there",
    ),
    "nothing_is_mapped": (
        "area.written(); process.look()",
        r"NotJudged: .*written at 0x[0-9a-f]+-0x[0-9a-f]+ .*maps nothing there",
    ),
    "no_raw_entry": (
        'area.write(); area.madvise("dontneed"); area.raw("young"); process.look()',
        r"NotJudged: .*young at 0x[0-9a-f]+-0x[0-9a-f]+ .*maps nothing there",
    ),
    "less_than_a_block": (
        "area.write(); area.must_fold(3, 5)",
        r"ValueError: expected a range with a whole block of 64 KiB .* has none",
    ),
    "an_error_that_was_not_stated": (
        "area.write(); entry = process.look().entry(area.address)\n"
        "    guest.poke([(entry.address, entry.word & ~(1 << 52))])\n"
        "    try: process.look()\n"
        "    finally: guest.poke([(entry.address, entry.word)])",
        r"LookFailed: .*A4 at 0x[0-9a-f]+",
    ),
    "while_it_is_held": (
        'area.write(); area.must_not_fold("it is new")\n    with process.hold() as held: held.judge()',
        r"LookFailed: .*C2 at",
    ),
}

PASSES = {
    "all_that_holds": (
        'area.write(); area.must_fold().written().fresh().order(4); assert process.look().pattern(area) == "CC"'
    ),
    "who_only_looks": (
        'area.write(); area.must_not_fold("it is new"); view = process.look(check=False)\n'
        '    assert view.rules() == {"C2"}'
    ),
    "who_looks_again": "area.write(); process.look(again=True); area.write(); process.look(again=True)",
    "what_was_raised_has_the_view": (
        'area.write(); area.must_not_fold("it is new")\n'
        "    with pytest.raises(folioscope.LookFailed) as raised: process.look()\n"
        '    assert raised.value.view.rules() == {"C2"} and isinstance(raised.value, AssertionError)'
    ),
    "broken_on_purpose": (
        "area.write()\n"
        "    with process.hold() as held:\n"
        "        entry = held.judge().entry(area.address)\n"
        '        assert held.judge([(entry.address, entry.word & ~(1 << 52))]).rules() == {"A4"}'
    ),
}


def test_no_test_passes_by_accident(user: pytest.Pytester) -> None:
    """Each way in which a statement is not so, not judged or forgotten; and what is right passes."""
    lines = ["import folioscope", "import pytest", ""]
    for name, body in {**{name: body for name, (body, _) in FAILS.items()}, **PASSES}.items():
        lines += [
            f"def test_{name}(folioscope_guest, folioscope_process, folioscope_layout):",
            "    guest, process = folioscope_guest, folioscope_process",
            "    area = process.blocks(2)",
            f"    {body}",
            "",
        ]
    user.makepyfile("\n".join(lines))
    result = run(user, "--folioscope-granule", "4k", "-rA")
    said = result.stdout.str()
    result.assert_outcomes(passed=len(PASSES), failed=len(FAILS))
    for name, (_, words) in FAILS.items():
        (section,) = re.findall(rf"^_+ test_{name}\[.*?(?=^_+ test_|^=====)", said, re.MULTILINE | re.DOTALL)
        assert re.search(words, section), f"{name}: {section}"
