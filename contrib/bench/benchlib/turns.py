# SPDX-License-Identifier: BSD-2-Clause
"""Several ways to do one thing, in turns: in each round each way runs once, one after the other, so that all of them
see the same machine."""
from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from . import stats

Cell = TypeVar("Cell")
Key = TypeVar("Key", bound=Hashable)
Figures = dict[Key, dict[str, list[float]]]  # what was measured -> way -> of each round


def measure(rounds: int, cells: Sequence[Cell], ways: Sequence[str], run: Callable[[Cell, str], Mapping[Key, float]],
            title: Callable[[Cell], str], after: Callable[[Figures[Key]], None] = lambda seen: None) -> Figures[Key]:
    """`run` gives what came of a cell by one way: nothing where it failed. `after` gets what there is after a round."""
    seen: Figures[Key] = {}
    for number in range(rounds):
        for cell in cells:
            for way in ways:
                said = f"round {number + 1} of {rounds}: {title(cell)}, {way}"
                print(f"\r{said:<78}", end="", file=sys.stderr, flush=True)
                for key, value in run(cell, way).items():
                    seen.setdefault(key, {}).setdefault(way, []).append(value)
        after(seen)
    print(f"\r{'':<78}\r", end="", file=sys.stderr, flush=True)
    return seen


def medians(seen: Figures[Key]) -> dict[Key, dict[str, float]]:
    return {key: {way: middle for way, values in ways.items() if (middle := stats.median(values)) is not None}
            for key, ways in seen.items()}
