# SPDX-License-Identifier: BSD-2-Clause
"""The result file: what a run of the benchmarks leaves, as JSON. Tables and pictures are made of it alone."""
from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from . import find, stats
from .model import ACCELERATED, Mode, Target, gain
from .runner import Outcome

FORMAT = 1


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _said(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def _package_version(package: str) -> str | None:
    return _said("dpkg-query", "-W", "-f", "${Version}", package)


def _revision() -> str | None:
    return _said("git", "-C", str(find.TOP), "describe", "--always", "--dirty")


def load_now() -> float:
    """Runnable processes, averaged over the last minute: what else the machine does. Ask before the first run."""
    return os.getloadavg()[0]


def host() -> dict[str, Any]:
    packages = ("sockperf", "iperf3", "redis-server", "nginx", "wrk", "libfabric1")
    return {"kernel": platform.release().partition("-")[0], "model": _cpu_model(), "cpus": os.cpu_count(),
            "packages": {name: version for name in packages if (version := _package_version(name))},
            "revision": _revision()}


def _mode(outcome: Outcome, mode: Mode) -> dict[str, Any]:
    figures = {}
    for metric, values in outcome.results.values.get(mode.key, {}).items():
        smallest, largest = stats.spread(values) or (None, None)
        figures[metric] = {"median": stats.median(values), "min": smallest, "max": largest, "rounds": values}
    title = mode.title + (" (it was NOT)" if mode.preload and outcome.accelerated is False else "")
    return {"key": mode.key, "title": title, "env": dict(mode.env), "figures": figures,
            "curve": outcome.results.curves.get(mode.key, [])}


def _target(outcome: Outcome, target: Target) -> dict[str, Any]:
    results = outcome.results
    measured, limit, met = target.verdict(results)
    if outcome.accelerated is False:
        measured = met = None  # what was measured is something else
    base = results.median(target.base, target.metric.key) if target.base else None
    return {"text": target.text, "kind": target.kind, "unit": target.unit, "metric": target.metric.key,
            "metric_unit": target.metric.unit, "base": base,
            "accelerated": results.median(ACCELERATED.key, target.metric.key), "measured": measured, "limit": limit,
            "at_least": target.at_least, "aim": target.aim, "met": met}


def _ratios(outcome: Outcome) -> list[dict[str, Any]]:
    titles = {mode.key: mode.title for mode in outcome.case.modes}
    ratios = []
    for metric, base in outcome.case.compare:
        asked = [t.limit for t in outcome.case.targets if (t.metric, t.base, t.kind) == (metric, base, "times")]
        wanted = asked[0] if asked else None
        ratios.append({"title": metric.title, "base_title": titles[base], "unit": metric.unit,
                       "base": outcome.results.median(base, metric.key),
                       "accelerated": outcome.results.median(ACCELERATED.key, metric.key),
                       "gain": None if outcome.accelerated is False else gain(outcome.results, metric, base),
                       "wanted": None if callable(wanted) else wanted})
    return ratios


def _case(outcome: Outcome) -> dict[str, Any]:
    case, seen = outcome.case, outcome.acceleration
    return {"name": case.name, "title": case.title, "by_hand": case.by_hand, "skipped": outcome.skipped,
            "tried": outcome.tried, "seconds": round(outcome.seconds, 1), "errors": outcome.errors,
            "accelerated": outcome.accelerated,
            "acceleration": seen.sentence() if seen and (case.counts_connections or not outcome.accelerated) else None,
            "metrics": [vars(metric) for metric in case.metrics],
            "modes": [_mode(outcome, mode) for mode in case.modes], "ratios": _ratios(outcome),
            "targets": [_target(outcome, target) for target in case.targets]}


def _rounds(outcomes: list[Outcome]) -> str:
    """"5", or "3 to 5" where not all have as many."""
    numbers = sorted({outcome.rounds for outcome in outcomes if not outcome.skipped})
    return " to ".join(str(number) for number in dict.fromkeys((*numbers[:1], *numbers[-1:]))) or "0"


def collect(outcomes: list[Outcome], quick: bool, load: float) -> dict[str, Any]:
    return {"format": FORMAT, "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "rounds": _rounds(outcomes), "quick": quick, "host": {**host(), "load": load},
            "cases": [_case(outcome) for outcome in outcomes]}


def load(path: Path) -> dict[str, Any]:
    result = dict(json.loads(path.read_text()))
    if result.get("format") != FORMAT:
        raise ValueError(f"{path}: not a result file of this version")
    return result
