# SPDX-License-Identifier: BSD-2-Clause
"""The words of a benchmark: a mode is a way to run a program, a metric a figure that comes out, a target what the
project asks of the figure, and a case all of that about one program."""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from . import stats

if TYPE_CHECKING:
    from .bench import Bench


@dataclass(frozen=True)
class Mode:
    key: str
    title: str
    preload: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()  # extra arguments of the program, as the case uses them


KERNEL = Mode("kernel", "kernel")
ACCELERATED = Mode("accelerated", "accelerated", preload=True)


@dataclass(frozen=True)
class Metric:
    key: str
    title: str
    unit: str
    lower_is_better: bool = False


class Measurements:
    """values[mode][metric]: one figure a round."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[float]]] = {}
        self.curves: dict[str, stats.Curve] = {}  # mode -> latency curve, all rounds together

    def add(self, mode: str, figures: Mapping[str, float]) -> None:
        metrics = self.values.setdefault(mode, {})
        for metric, figure in figures.items():
            metrics.setdefault(metric, []).append(figure)

    def median(self, mode: str, metric: str) -> float | None:
        return stats.median(self.values.get(mode, {}).get(metric, []))

    def difference(self, metric: str, base: str, mode: str) -> float | None:
        """Median over the rounds of how much `mode` has more: both sides of a round ran close together, so that a
        machine that gets slower or faster meanwhile does not show."""
        before, after = (self.values.get(key, {}).get(metric, []) for key in (base, mode))
        if len(before) != len(after):
            return stats.median(after) - stats.median(before) if before and after else None  # type: ignore[operator]
        return stats.median([b - a for a, b in zip(before, after)])


Figure = Callable[[Measurements], float | None]


def gain(results: Measurements, metric: Metric, base: str, mode: str = ACCELERATED.key) -> float | None:
    """How many times better `mode` is than `base`; 1 is as good."""
    before, after = results.median(base, metric.key), results.median(mode, metric.key)
    if not before or not after:
        return None
    return before / after if metric.lower_is_better else after / before


@dataclass(frozen=True)
class Target:
    """What is asked of one metric of the accelerated mode. `kind` says of what: "times" better than the `base` mode (at
    least), "more" than the `base` mode in the metric's unit (at most), "value" itself (at most), "least" (at least), or
    "worst", the largest of all rounds (at most). `aim` is a further goal that is printed, not judged."""
    text: str
    metric: Metric
    kind: Literal["times", "more", "value", "least", "worst"]
    limit: float | Figure
    base: str | None = None
    aim: float | None = None

    @property
    def unit(self) -> str:
        return "times" if self.kind == "times" else self.metric.unit

    @property
    def at_least(self) -> bool:
        return self.kind in ("times", "least")

    def measured(self, results: Measurements) -> float | None:
        if self.kind == "times":
            return gain(results, self.metric, self.base or KERNEL.key)
        if self.kind == "worst":
            return max(results.values.get(ACCELERATED.key, {}).get(self.metric.key, ()), default=None)
        after = results.median(ACCELERATED.key, self.metric.key)
        if self.kind in ("value", "least") or after is None:
            return after
        return results.difference(self.metric.key, self.base or KERNEL.key, ACCELERATED.key)

    def verdict(self, results: Measurements) -> tuple[float | None, float | None, bool | None]:
        """Measured, limit, and whether it is met: None when it could not be measured."""
        measured = self.measured(results)
        limit = self.limit(results) if callable(self.limit) else self.limit
        if measured is None or limit is None:
            return measured, limit, None
        return measured, limit, measured >= limit if self.at_least else measured <= limit


def times_better(text: str, metric: Metric, base: str, at_least: float, aim: float | None = None) -> Target:
    return Target(text, metric, "times", at_least, base, aim)


def at_most(text: str, metric: Metric, limit: float | Figure) -> Target:
    return Target(text, metric, "value", limit)


def at_most_more(text: str, metric: Metric, base: str, limit: float) -> Target:
    return Target(text, metric, "more", limit, base)


def at_least(text: str, metric: Metric, limit: float) -> Target:
    return Target(text, metric, "least", limit)


def never_more(text: str, metric: Metric, limit: float) -> Target:
    return Target(text, metric, "worst", limit)


class Case(ABC):
    """One program measured in several modes. Subclasses set the fields and run it once in run()."""
    name: str
    title: str
    seconds: float  # that a round of all modes takes on a quiet machine
    by_hand: str  # the commands, as a reader would type them
    needs: tuple[str, ...] = ()  # programs that must be installed, by name
    helpers: tuple[str, ...] = ()  # our own programs that must be built
    needs_root = False
    only_by_name = False  # not among those that run unless they are named
    rounds = 5  # unless the caller says how many
    modes: tuple[Mode, ...] = (KERNEL, ACCELERATED)
    metrics: tuple[Metric, ...] = ()
    targets: tuple[Target, ...] = ()
    compare: tuple[tuple[Metric, str], ...] = ()  # (metric, base mode) of the ratios that are printed and drawn
    counts_connections = True  # the library's log must show accelerated connections; else only that it was loaded

    @abstractmethod
    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        """One round in one mode: metric key -> figure."""

    def finish(self, results: Measurements) -> None:
        """Called after the last round, for what is computed over all of them."""
