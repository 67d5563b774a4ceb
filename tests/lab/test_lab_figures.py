# SPDX-License-Identifier: GPL-2.0-only
"""The seeds' figures, each with one entry, and documents whose tables are made from the results in the tree."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from folioscope.lab import documents
from folioscope.lab.documents import BadPlace, all_grades, made, results, summary
from folioscope.lab.experiments import EXPERIMENTS
from folioscope.lab.figures import FIGURES, SEEDS, Figure
from folioscope.lab.grades import GRADES, totals
from folioscope.lab.marks import NAMES
from folioscope.lab.plots import draw

from command import ROOT
from lab_numbers import numbers

#: How a ratio follows from numbers as they are printed: before, after, percent.
RATIOS = {
    "after/before": lambda found: found[1] / found[0],
    "before/after": lambda found: found[0] / found[1],
    "less": lambda found: 1 / (1 + found[-1] / 100),
    "more": lambda found: 1 + found[-1] / 100,
    "times": lambda found: found[-1],
}


def places(seed: str) -> dict[str, str]:
    """Each number of a seed by its place."""
    lines = numbers()[seed]["lines"]
    return {f"{at}.{n}": number for at, line in lines.items() for n, number in enumerate(line.split(), 1)}


@pytest.mark.parametrize("seed", SEEDS)
def test_each_number_of_a_seed_is_of_a_figure_or_said_not_to_be(seed: str) -> None:
    """By the copy of the seed's numbers: no figure is left out, and none is there twice."""
    there, other = places(seed), numbers()[seed]["other"]
    figures = [figure for figure in FIGURES if figure.seed == seed]
    assert len(there) > 10 and figures
    own = Counter(figure.places[-1] for figure in figures)
    assert not [place for place, count in own.items() if count > 1]
    for figure in figures:
        assert figure.printed == " ".join(there[place] for place in figure.places), figure.name
    used = {place for figure in figures for place in figure.places}
    left = {place.partition(".")[0] for place in there if place not in used}
    assert left == set(other) and all(other.values())


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_is_what_its_numbers_say(figure: Figure) -> None:
    """Its ratio; and it has an experiment with that setting and these intervals, or a reason."""
    found = [float(re.sub(r"[^-+.\d]", "", number)) for number in figure.printed.split()]
    assert figure.times == pytest.approx(RATIOS[figure.ratio](found), abs=6e-5)
    # Where a percentage or a speed-up is printed beside, it is that of the two numbers, rounded.
    if len(found) == 3 and figure.printed.endswith("%"):
        change = found[1] / found[0] - 1
        # A row of cycles is rounded itself, to a thousand million.
        assert 100 * change == pytest.approx(found[2], abs=5 if "cycles" in figure.what else 0.06), figure.name
    elif len(found) == 3:
        assert figure.times == pytest.approx(found[2], abs=0.0051)
    assert bool(figure.why) != bool(figure.experiment)
    if figure.why:
        return
    experiment = EXPERIMENTS[figure.experiment]
    settings = [setting.name for setting in experiment.settings]
    assert figure.setting in settings and (not figure.against or figure.against in settings)
    there = {crowd.of(name) if crowd else name for name in NAMES.values() for crowd in experiment.crowds or (None,)}
    assert set(figure.intervals) <= there


def test_the_names_of_figures_are_their_own() -> None:
    """And all seeds have some."""
    names = [figure.name for figure in FIGURES]
    assert len(names) == len(set(names)) and {figure.seed for figure in FIGURES} == set(SEEDS)


def test_the_documents_are_made_from_the_results_in_the_tree() -> None:
    """All tables, and the summary of the README: no figure is a copy that can grow old."""
    found = results(ROOT / documents.RESULTS)
    assert found
    grades = all_grades(found)
    texts = {name: (ROOT / name).read_text() for name in documents.DOCUMENTS}
    for name, text in texts.items():
        assert "<!-- lab: " in text and made(text, found, grades) == text, (
            f"{name}: make it again by out/folioscope lab tables"
        )
    # The first thing that it says.
    assert texts["docs/laboratory.md"].index("<!-- lab: totals -->") < texts["docs/laboratory.md"].index("\n## ")
    assert "<!-- lab: summary -->" in texts["README.md"]
    everything = "".join(texts.values())
    for name in found:
        assert f"<!-- lab: experiment {name} -->" in everything, name
    for seed in SEEDS:
        assert f"<!-- lab: figures {seed} -->" in everything, seed
    assert not re.search(r"\breproduced\b", everything)


def test_the_pictures_are_made_from_the_results_in_the_tree(tmp_path: Path) -> None:
    """The same bytes."""
    found = results(ROOT / documents.RESULTS)
    shown = sorted(path.stem.removeprefix("lab-") for path in (ROOT / "docs").glob("lab-*.svg"))
    assert shown
    for name in shown:
        (picture,) = draw(found[name], tmp_path / "lab.json")
        assert picture.read_bytes() == (ROOT / "docs" / picture.name).read_bytes(), name


def test_the_totals_are_sums() -> None:
    """Each figure has a grade, of those that there are; rows and columns add up."""
    grades = all_grades(results(ROOT / documents.RESULTS))
    assert len(grades) == len(FIGURES) and {each.grade for each in grades} <= set(GRADES)
    head, *rows, last = totals(grades)
    assert last[-1] == str(len(FIGURES)) and [row[0] for row in rows] == list(GRADES)
    for column in range(1, len(head)):
        assert sum(int(row[column]) for row in rows) == int(last[column])
    for row in rows:
        assert sum(map(int, row[1:-1])) == int(row[-1]) == sum(each.grade == row[0] for each in grades)
    all_of = {row[0]: int(row[-1]) for row in rows}
    more = [all_of[name] for name in ("same direction", "opposite", "no effect here", "cannot be shown here")]
    said = [all_of["within 10 %"] + all_of["within 25 %"], 25, *more]
    assert list(map(int, re.findall(r"\d+", summary(grades)))) == [len(grades), *said]


def test_a_place_that_there_is_no_table_for() -> None:
    """A typing error is not left as it is."""
    with pytest.raises(BadPlace, match="expected a place of totals, summary, figures SEED.*found 'experiment zapp'"):
        made("<!-- lab: experiment zapp -->\n<!-- lab end -->\n", {}, [])
