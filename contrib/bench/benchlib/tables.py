# SPDX-License-Identifier: BSD-2-Clause
"""Text and Markdown tables of a result file (results.py)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = Sequence[str]


def number(value: float | None) -> str:
    """Three significant digits, thousands kept whole."""
    if value is None:
        return "-"
    if value != 0 and abs(value) < 0.001:
        return f"{value:.1e}"
    for limit, digits in ((1, 3), (10, 2), (100, 1)):
        if abs(value) < limit:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def size(count: int) -> str:
    """So many bytes, in whole units."""
    units = [(1 << 20, "MiB"), (1024, "KiB"), (1, "B")]
    return next((f"{count // factor} {unit}" for factor, unit in units if count >= factor), "0 B")


def _short(value: float | None) -> str:
    """A limit: no digits that nobody wrote."""
    return "-" if value is None else f"{round(value, 3):g}"


def text(rows: Sequence[Row], indent: str = "  ") -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append(indent + "  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(rows: Sequence[Row]) -> str:
    """Figures to the right, but for the first column and the last two."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|---|" + "---:|" * (len(rows[0]) - 3) + "---|---|")
    return "\n".join(lines)


def judged(met: bool | None) -> str:
    return {True: "met", False: "NOT MET", None: "not measured"}[met]


def asked(target: dict[str, Any]) -> str:
    sign = ">=" if target["at_least"] else "<="
    aim = f" (aim {target['aim']:g}x)" if target["aim"] else ""
    return f"{sign} {_short(target['limit'])}{_unit(target)}{aim}"


def _unit(target: dict[str, Any]) -> str:
    return "x" if target["unit"] == "times" else f" {target['unit']}"


def measured(target: dict[str, Any]) -> str:
    value = target["measured"]
    if value is None:
        return "-"
    return f"{'+' if target['kind'] == 'more' and value >= 0 else ''}{number(value)}{_unit(target)}"


def figures(case: dict[str, Any]) -> list[Row]:
    """A line a metric, a column a mode: median (smallest - largest)."""
    modes = [mode for mode in case["modes"] if mode["figures"]]
    rows: list[Row] = [["", *(mode["title"] for mode in modes)]]
    for metric in case["metrics"]:
        cells = [metric["title"] + ", " + metric["unit"]]
        for mode in modes:
            figure = mode["figures"].get(metric["key"])
            cells.append("" if figure is None else
                         f"{number(figure['median'])} ({number(figure['min'])} - {number(figure['max'])})")
        rows.append(cells)
    return rows


def ratios(cases: Sequence[dict[str, Any]]) -> list[Row]:
    """A line for each comparison with the kernel."""
    rows: list[Row] = [["", "kernel", "accelerated", "gain"]]
    for case in cases:
        for ratio in case["ratios"]:
            if ratio["gain"] is not None:
                base, accelerated = (f"{number(ratio[which])} {ratio['unit']}" for which in ("base", "accelerated"))
                rows.append([f"{case['title']}: {ratio['title']} against {ratio['base_title']}", base, accelerated,
                             f"{number(ratio['gain'])}x"])
    return rows


def targets(cases: Sequence[dict[str, Any]]) -> list[Row]:
    rows: list[Row] = [["", "measured", "asked", ""]]
    for case in cases:
        for target in case["targets"] if case["tried"] else ():
            rows.append([f"{case['title']}: {target['text']}", measured(target), asked(target), judged(target["met"])])
    return rows


def report(result: dict[str, Any]) -> str:
    parts = []
    for case in result["cases"]:
        if case["skipped"]:
            parts.append(f"{case['title']}\n  skipped: {case['skipped']}")
            continue
        lines = [case["title"], text(figures(case))]
        if case["acceleration"]:
            lines.append(f"  {case['acceleration']}")
        lines += [f"  error: {error}" for error in dict.fromkeys(case["errors"])]
        parts.append("\n".join(lines))
    rows = targets(result["cases"])
    if len(rows) > 1:
        parts.append("Targets\n" + text(rows))
    return "\n\n".join(parts)


def page(result: dict[str, Any]) -> str:
    """The table of doc/figures.md, with the command that makes each figure."""
    rows: list[Row] = [["work", "kernel or rival", "accelerated", "measured", "asked", "", "command"]]
    for case in result["cases"]:
        command = f"`contrib/bench/bench.py --only {case['name']}`"
        for target in () if case["skipped"] else case["targets"]:
            rows.append([f"{case['title']}: {target['text']}", _value(target, "base"), _value(target, "accelerated"),
                         measured(target), asked(target), judged(target["met"]), command])
            command = ""
    host = result["host"]
    quick = ", short runs" if result["quick"] else ""
    where = (f"{result['date'][:10]}, {host['cpus']} CPUs ({host['model']}), Linux {host['kernel']}, medians of "
             f"{result['rounds']} rounds{quick}.")
    return markdown(rows) + "\n\n" + where


def _value(target: dict[str, Any], which: str) -> str:
    value = target[which]
    return "" if value is None else f"{number(value)} {target['metric_unit']}"
