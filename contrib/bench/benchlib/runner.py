# SPDX-License-Identifier: BSD-2-Clause
"""Runs cases: in each round every mode once, so that whatever else the machine does hits all of them alike."""
from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import find, trace
from .bench import Bench
from .model import ACCELERATED, Case, Measurements, Mode
from .parsers import ParseError
from .procs import RunError
from .tables import number

Say = Callable[[str], None]
_GIVE_UP = 2  # failures of one mode


@dataclass
class Outcome:
    """What came of one case."""
    case: Case
    results: Measurements = field(default_factory=Measurements)
    acceleration: trace.Trace | None = None  # None: no run with the library came to its end
    errors: list[str] = field(default_factory=list)
    skipped: str | None = None
    rounds: int = 0
    tried: bool = False  # the accelerated mode was run, with whatever success
    seconds: float = 0.0

    @property
    def accelerated(self) -> bool | None:
        """Whether the figures called accelerated are; None when there was nothing to accelerate."""
        if self.acceleration is None:
            return None
        return _as_meant(self.case, self.acceleration)


def _as_meant(case: Case, seen: trace.Trace) -> bool:
    return seen.happened if case.counts_connections else seen.files > 0


def why_not(case: Case, bench: Bench) -> str | None:
    """What is missing to run the case."""
    missing = [name for name in case.needs if not find.program(name)]
    missing += [f"contrib/bench/{name} (not built)" for name in case.helpers if not find.helper(name, bench.lib)]
    if case.needs_root and os.geteuid() != 0:
        missing.append("root")
    return f"missing: {', '.join(missing)}" if missing else None


def rounds_that_fit(upcoming: Sequence[Case], left: float, pace: float) -> int:
    """Rounds for the first of `upcoming`: as many as it should have, or fewer where the time that is left is too short
    for all of them. `pace` is how many times longer than on a quiet machine things take."""
    wanted = upcoming[0].rounds
    needed = pace * sum(case.rounds * case.seconds for case in upcoming)
    return wanted if needed <= left else max(2, int(wanted * left / needed))


def run_case(case: Case, bench: Bench, rounds: int, say: Say, modes: Sequence[Mode] | None = None) -> Outcome:
    outcome = Outcome(case, skipped=why_not(case, bench), rounds=rounds)
    if outcome.skipped:
        say(f"{case.title}: skipped, {outcome.skipped}")
        return outcome
    say(f"{case.title}")
    chosen = list(case.modes if modes is None else modes)
    outcome.tried = any(mode.key == ACCELERATED.key for mode in chosen)
    failures: dict[str, int] = {}
    started = time.monotonic()
    for number_of_round in range(1, rounds + 1):
        for mode in chosen:
            if failures.get(mode.key, 0) >= _GIVE_UP:
                continue
            label = f"  {number_of_round}/{rounds}  {mode.title:<18}"
            try:
                figures, note = _run_once(case, bench, mode, outcome)
            except (RunError, ParseError) as error:
                failures[mode.key] = failures.get(mode.key, 0) + 1
                outcome.errors.append(f"{mode.title}: {error}")
                say(f"{label} failed: {error}")
            else:
                outcome.results.add(mode.key, figures)
                say(f"{label} {_line(case, figures)}{note}")
    case.finish(outcome.results)
    outcome.seconds = time.monotonic() - started
    if outcome.acceleration is not None and (case.counts_connections or not outcome.accelerated):
        say(f"  {'acceleration' if outcome.accelerated else 'NOT ACCELERATED'}: {outcome.acceleration.sentence()}")
    return outcome


def _run_once(case: Case, bench: Bench, mode: Mode, outcome: Outcome) -> tuple[dict[str, float], str]:
    """The figures, and a remark when they are not what they are called."""
    scratch = Path(tempfile.mkdtemp(prefix=f"vma-bench-{case.name}-"))
    try:
        figures = case.run(replace(bench, scratch=scratch, log_connections=case.counts_connections), mode)
        if not mode.preload:
            return figures, ""
        seen = trace.read(scratch)
        outcome.acceleration = (outcome.acceleration or trace.Trace()) + seen
        return figures, "" if _as_meant(case, seen) else "  NOT ACCELERATED"
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _line(case: Case, figures: dict[str, float]) -> str:
    known = [f"{m.title} {number(figures[m.key])} {m.unit}" for m in case.metrics if m.key in figures]
    return ", ".join(known or [f"{name} {number(value)}" for name, value in figures.items()])
