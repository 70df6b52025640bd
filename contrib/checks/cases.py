"""Cases of a check: what came of each, what of its output tells why it failed, and the lines that end a check's output."""

import collections
import dataclasses
import re

PASS, FAIL, SKIP = "passed", "failed", "skipped"
# Lines that say why a case failed, the best first.
TELLING = (r"^E  ", r" crashed: SIG| ended with status | did not end within | logged: |: sanitizer report",
           r"(?i)^SUMMARY: |error\b.*:|^not ok|assert")
GIST, GIST_WIDTH = 4, 300  # so many of them end the output, and so much of each
CASE_HEAD, CASE_TAIL = 60, 140  # lines of a failed case's own output that are shown: what was wrong, and what its processes said
SETTINGS = re.compile(r" VMA (INFO|DETAILS): .* \[VMA_\w+\]$")  # a process's log begins with a hundred of these: they are not shown


@dataclasses.dataclass
class Case:
    """`again`: a function of a stage, a folder, names and an environment that runs cases once more, the folder, and the name of this one.
    None: it can't be run by itself."""

    name: str
    status: str
    detail: str = ""  # why it was skipped, or where to read of the failure
    output: str = ""  # of a failed case: what it printed
    again: tuple | None = None
    stage: str = ""
    unstable: bool = False  # it failed, and passed when it was run again alone

    @property
    def title(self):
        return f"{self.stage}: {self.name}"


def count(cases):
    return ", ".join(f"{sum(c.status == s for c in cases)} {s}" for s in (PASS, FAIL, SKIP))


def shorten(lines):
    lines = [line for line in lines if not SETTINGS.search(line)]
    left_out = len(lines) - CASE_HEAD - CASE_TAIL
    return lines if left_out <= 0 else [*lines[:CASE_HEAD], f"[{left_out} lines left out]", *lines[-CASE_TAIL:]]


def gist(output):
    """Of what a failed case printed the lines that most likely say why: whoever sees the end of the output only reads these."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = next((found for pattern in TELLING if (found := [line for line in lines if re.search(pattern, line)])), lines[-GIST:])
    return [line[:GIST_WIDTH] for line in telling[:GIST]]


def summary(cases, times):
    """The lines that end the output: what was skipped, how long each stage took, each unstable case and each failed one with what
    tells why, and the counts. `times`: of each stage, in words."""
    skipped = collections.Counter((case.stage, case.detail) for case in cases if case.status == SKIP)
    lines = [f"skipped: {stage}: {number} case{'s' if number > 1 else ''} ({why})" for (stage, why), number in skipped.items()]
    lines += ["stages: " + ", ".join(f"{name} {time}" for name, time in times.items())]
    for status, chosen in (("unstable", [case for case in cases if case.unstable]),
                           (FAIL, [case for case in cases if case.status == FAIL])):
        for case in chosen:
            lines.append(f"{status}: {case.title}" + (f" ({case.detail})" if case.detail else ""))
            lines += [f"    | {line}" for line in gist(case.output)]
    return [*lines, count(cases)]
