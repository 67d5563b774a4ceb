# SPDX-License-Identifier: GPL-2.0-only
"""What runs differ by, and whether that is more than their spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from scipy import stats

#: Of the interval within which a ratio lies.
CONFIDENCE = 0.95
#: A claim needs as many runs on each side.
LEAST_RUNS = 5
RESAMPLES = 2000
#: What is less is not worth a word, however often it repeats.
LEAST_CHANGE = 0.01


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as many instructions the first took as the second, and the interval that this lies in."""

    times: float
    low: float
    high: float
    #: No run of either took as many as any of the other: the interval of a few runs alone claims too much.
    apart: bool = True

    @property
    def moved(self) -> bool:
        """Whether it is beyond what the runs differ by."""
        return self.apart and not self.low <= 1 <= self.high


def ratio(first: Sequence[float], second: Sequence[float]) -> Ratio:
    """Of the medians, with a bootstrap interval (percentiles, from a fixed seed, so that a report repeats).

    Raises ``ValueError`` with fewer than five runs of one.
    """
    least = min(len(first), len(second))
    if least < LEAST_RUNS:
        raise ValueError(f"expected {LEAST_RUNS} runs of each side or more and found {least}; measure again with more")
    times = median(first) / median(second)
    if len(set(first)) == len(set(second)) == 1:
        return Ratio(times, times, times)

    def of_medians(a: Any, b: Any, axis: int) -> Any:
        # Of all samples at once: a document has a thousand ratios.
        below = np.median(b, axis=axis)
        if not below.all():
            raise ZeroDivisionError("a sample of the second has a median of 0")
        return np.median(a, axis=axis) / below

    found = stats.bootstrap(
        (first, second),
        of_medians,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=True,
        rng=7,
    ).confidence_interval
    apart = max(first) < min(second) or max(second) < min(first)
    return Ratio(times, float(found.low), float(found.high), apart)


def changed(found: Ratio) -> bool:
    """Whether a ratio is worth a word."""
    return found.moved and abs(found.times - 1) > LEAST_CHANGE
