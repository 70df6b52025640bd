# SPDX-License-Identifier: BSD-2-Clause
"""Medians and percentiles. Latency samples are kept as a histogram of whole nanoseconds."""
from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

Curve = list[tuple[float, float]]  # (percentile 0..100, microseconds)


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def spread(values: Sequence[float]) -> tuple[float, float] | None:
    """Smallest and largest: with a handful of rounds nothing else is honest."""
    return (min(values), max(values)) if values else None


def percentiles(histogram: Counter[int], wanted: Iterable[float]) -> list[float]:
    """The values (nanoseconds) at `wanted` percentiles, ascending: the smallest that this share does not exceed."""
    total = histogram.total()
    found: list[float] = []
    ordered = iter(sorted(histogram.items()))
    value, seen = 0, 0
    for percentile in wanted:
        while seen < total and seen < percentile / 100 * total - 1e-9:
            value, count = next(ordered)
            seen += count
        found.append(float(value))
    return found


def curve(histogram: Counter[int], points_a_decade: int = 24) -> Curve:
    """Points that lie evenly on an axis of 'nines', from the minimum up to what the number of samples supports, and
    the maximum."""
    total = histogram.total()
    if total == 0:
        return []
    wanted: list[float] = []
    step = 0
    while True:
        beyond = 10 ** (-step / points_a_decade)  # share of samples above
        if beyond * total < 10:
            break  # a handful of samples is no percentile
        wanted.append(100 * (1 - beyond))
        step += 1
    wanted[0] = 100 / total
    wanted.append(100.0)
    values = percentiles(histogram, wanted)
    return [(round(p, 7), v / 1000) for p, v in zip(wanted, values)]
