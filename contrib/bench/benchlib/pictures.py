# SPDX-License-Identifier: BSD-2-Clause
"""The pictures of a result file, each as SVG and PNG. matplotlib is asked for only here: without it there are none."""
from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

COLOURS = {"kernel": "#8c8c8c", "spinning": "#e08a1e", "accelerated": "#1769aa"}
INK = "#222222"
FAINT = "#dddddd"


def _pyplot() -> Any:
    os.environ.setdefault("MPLCONFIGDIR", os.path.join(tempfile.gettempdir(), f"vma-bench-matplotlib-{os.getuid()}"))
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({
        "font.family": "DejaVu Sans", "font.size": 10, "axes.edgecolor": INK, "text.color": INK,
        "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False,
        "axes.spines.right": False, "svg.hashsalt": "vma", "savefig.facecolor": "white"})
    import matplotlib.pyplot as pyplot

    return pyplot


def available() -> bool:
    try:
        _pyplot()
    except ImportError:
        return False
    return True


def _save(figure: Any, out: Path, name: str) -> list[Path]:
    paths = [out / f"{name}.svg", out / f"{name}.png"]
    figure.savefig(paths[0], bbox_inches="tight", metadata={"Date": None})
    figure.savefig(paths[1], bbox_inches="tight", dpi=150)
    return paths


def _microseconds(value: float, _: object = None) -> str:
    return f"{value / 1000:g} ms" if value >= 1000 else f"{value:g}"


def heat_map(rows: list[str], columns: list[str], ratios: list[list[float]], out: Path, what: str = "times the kernel's") -> None:
    """Blue is less than one, red is more; what was not measured has no colour."""
    pyplot = _pyplot()
    from matplotlib.colors import LogNorm

    figure, axes = pyplot.subplots(figsize=(2 + 0.9 * len(columns), 1.5 + 0.35 * len(rows)))
    image = axes.imshow(ratios, cmap="RdBu_r", norm=LogNorm(vmin=0.1, vmax=10), aspect="auto")
    axes.set_xticks(range(len(columns)), columns, fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    for y, row in enumerate(ratios):
        for x, ratio in enumerate(row):
            if not math.isnan(ratio):
                axes.text(x, y, f"{ratio:.2f}", ha="center", va="center", fontsize=7, color=INK if 0.25 < ratio < 4 else "white")
    figure.colorbar(image, label=what, shrink=min(1.0, 12 / len(rows)))
    figure.savefig(out, bbox_inches="tight", **({"metadata": {"Date": None}} if out.suffix == ".svg" else {}))


def latency(case: dict[str, Any], out: Path) -> list[Path]:
    """Latency over percentiles; the x axis counts nines, so that the tail has the room it deserves."""
    curves = [(mode, [(p, us) for p, us in mode["curve"] if p < 100]) for mode in case["modes"] if mode["curve"]]
    if not curves:
        return []
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(8.4, 5))
    furthest = 10.0
    for mode, curve in curves:
        xs = [100 / (100 - p) for p, _ in curve]
        furthest = max(furthest, xs[-1])
        axes.plot(xs, [us for _, us in curve], color=COLOURS.get(mode["key"], INK), linewidth=2.2,
                  label=_legend(mode))
    for mode in case["modes"]:
        if mode["key"] == "cacheline" and "p50" in mode["figures"]:
            axes.axhline(mode["figures"]["p50"]["median"], color=INK, linewidth=1, linestyle=":", label=_legend(mode))
    axes.set_xscale("log")
    axes.set_yscale("log")
    nines = [(1, "0"), (2, "50"), (10, "90"), (100, "99"), (1e3, "99.9"), (1e4, "99.99"), (1e5, "99.999"),
             (1e6, "99.9999")]
    shown = [(x, label) for x, label in nines if x <= furthest * 1.01]
    axes.set_xticks([x for x, _ in shown], [label for _, label in shown])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(pyplot.FuncFormatter(_microseconds))
    axes.set_xlim(1, furthest * 1.1)
    axes.set_xlabel("percentile")
    axes.set_ylabel("half round trip, us (log)")
    axes.set_title(case["title"] + ", client and server on one host", loc="left", fontweight="bold")
    axes.grid(True, color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(loc="upper left", facecolor="white", edgecolor="none", framealpha=0.85)
    paths = _save(figure, out, f"latency-{case['name']}")
    pyplot.close(figure)
    return paths


def _legend(mode: dict[str, Any]) -> str:
    p50 = mode["figures"].get("p50", {}).get("median")
    return str(mode["title"]) if p50 is None else f"{mode['title']}: p50 {p50:.2f} us"


def ratios(cases: list[dict[str, Any]], out: Path) -> list[Path]:
    """How many times better than the kernel, one bar a comparison, with a mark where the target lies."""
    bars = [(f"{case['title']}\n{ratio['title']}, against {ratio['base_title']}", ratio)
            for case in cases for ratio in case["ratios"] if ratio["gain"] is not None]
    if not bars:
        return []
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(8.4, 0.9 + 0.5 * len(bars)))
    rows = range(len(bars))
    gains = [ratio["gain"] for _, ratio in bars]
    axes.barh(rows, [g - 1 for g in gains], left=1, height=0.55,
              color=[COLOURS["accelerated"] if g >= 1 else COLOURS["spinning"] for g in gains])
    largest = max([*gains, *(ratio["wanted"] or 1 for _, ratio in bars), 2.0])
    for row, (_, ratio) in zip(rows, bars):
        axes.annotate(f"{ratio['gain']:.1f}x", (max(ratio["gain"], 1), row), xytext=(6, 0),
                      textcoords="offset points", va="center", fontweight="bold")
        if ratio["wanted"]:
            axes.plot([ratio["wanted"]] * 2, [row - 0.38, row + 0.38], color=INK, linewidth=1.8)
    axes.plot([], [], color=INK, linewidth=1.8, label="target")
    axes.axvline(1, color=INK, linewidth=1)
    if largest > 12:
        axes.set_xscale("log")
        axes.minorticks_off()
        ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if min([*gains, 1]) * 0.9 <= t]
        axes.set_xticks([t for t in ticks if t <= largest * 1.3])
    axes.set_xlim(min([*gains, 1]) * 0.9, largest * 1.35)
    axes.xaxis.set_major_formatter(pyplot.FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.set_yticks(list(rows), [label for label, _ in bars], fontsize=8.5)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x", color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_title("times better than the kernel (1x = the same)", loc="left", fontweight="bold")
    axes.legend(frameon=False, loc="lower right")
    paths = _save(figure, out, "ratios")
    pyplot.close(figure)
    return paths


def draw(result: dict[str, Any], out: Path) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for case in result["cases"]:
        paths += latency(case, out)
    return paths + ratios(result["cases"], out)
