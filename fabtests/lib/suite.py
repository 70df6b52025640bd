# SPDX-License-Identifier: BSD-2-Clause
"""Test suites, of others and of ours, run without the library and with it, and compared test by test."""

import dataclasses
import fnmatch
import pathlib
import re

MODES = {"kernel": (False, "default"), "vma": (True, "default"), "vma-latency": (True, "latency")}
_ALLOWED = pathlib.Path(__file__).resolve().parents[1] / "posix" / "allowed_differences.txt"


@dataclasses.dataclass
class Results:
    """Outcome of each test by its name; `whole`: the suite came to its end."""

    outcomes: dict[str, str]
    whole: bool


def read_results(path: pathlib.Path) -> Results:
    """The file that programs/unittest_results.py writes. A test with several outcomes has failed if one of them is that."""
    outcomes: dict[str, str] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        outcome, _, name = line.partition(" ")
        if name and outcomes.get(name) != "failed":
            outcomes[name] = outcome
    return Results(outcomes, bool(lines) and lines[-1] == "ended")


def read_tap(text: str) -> Results:
    """What a program says in the Test Anything Protocol, version 12; whole: it has come to its plan, and that is what it ran."""
    outcomes: dict[str, str] = {}
    plan = None
    for line in text.splitlines():
        if match := re.match(r"(not )?ok (\d+)(?: - )?([^#]*)(# skip)?", line, re.IGNORECASE):
            name = f"{int(match[2]):03} {match[3].strip()}"
            outcomes[name] = "failed" if match[1] else "skipped" if match[4] else "passed"
        elif match := re.match(r"1\.\.(\d+)", line):
            plan = int(match[1])
    return Results(outcomes, plan is not None and plan == len(outcomes))


def allowed_differences() -> list[tuple[str, str]]:
    """(pattern, reason) of each line of allowed_differences.txt."""
    lines = [line for line in _ALLOWED.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def differences(kernel: Results, other: Results) -> list[str]:
    """What is not as over the kernel. A test that does better is no difference, nor is one that an allowed pattern names."""
    allowed = [pattern for pattern, _ in allowed_differences()]
    found = []
    for name, before in sorted(kernel.outcomes.items()):
        now = other.outcomes.get(name, "not run")
        if now in (before, "passed") or before == "failed" and now == "skipped":
            continue
        if before == "failed" or any(fnmatch.fnmatchcase(name, pattern) for pattern in allowed):
            continue
        found.append(f"{name}: {before} over the kernel, {now}")
    if kernel.whole and not other.whole:
        found.append("the suite did not come to its end")
    return found
