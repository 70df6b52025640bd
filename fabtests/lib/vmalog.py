# SPDX-License-Identifier: BSD-2-Clause
"""Reading the library's debug log: which connections were accelerated, which were not and why, warnings, errors.

From VMA_TRACELEVEL=details on one line per connection says "accelerated" or "not accelerated: <reason>".
"""

import dataclasses
import pathlib
import re

_VERDICT = re.compile(r"\b(?P<no>not )?accelerated\b(?:: (?P<reason>.*))?")
# Every log at debug begins with it; to be looked at as it is by config/test_troubles.py alone.
_NOTICE = re.compile(r"VMA WARNING: \*")
_LEVEL = re.compile(r"VMA (?P<level>PANIC|ERROR|WARNING|WARN)\s*:")


def without_notice(text: str) -> list[str]:
    """The lines of a log but those that say that its level is high."""
    return [line for line in text.splitlines() if not _NOTICE.search(line)]


@dataclasses.dataclass(frozen=True)
class Verdict:
    accelerated: bool
    reason: str
    line: str

    def names_port(self, port: int) -> bool:
        return "->" not in self.line or re.search(rf":{port}\b", self.line) is not None


class Log:
    """The log lines of one process, or of all processes of one command."""

    def __init__(self, paths):
        self.lines = []
        for path in sorted(map(pathlib.Path, paths)):
            self.lines += without_notice(path.read_text(errors="replace"))

    def verdicts(self, port: int | None = None) -> list[Verdict]:
        found = []
        for line in self.lines:
            m = _VERDICT.search(line)
            if m:
                found.append(Verdict(not m["no"], m["reason"] or "", line))
        return [v for v in found if port is None or v.names_port(port)]

    def accelerated(self, port: int | None = None) -> int:
        """How many connections (of this port, if given) were accelerated."""
        return sum(v.accelerated for v in self.verdicts(port))

    def not_accelerated(self, port: int | None = None) -> list[str]:
        """Reasons given for connections that were not."""
        return [v.reason for v in self.verdicts(port) if not v.accelerated]

    def at_level(self, *levels: str) -> list[str]:
        """Lines of the given levels: PANIC, ERROR, WARNING."""
        return [line for line in self.lines
                if (m := _LEVEL.search(line)) and (m["level"] in levels
                                                   or (m["level"] == "WARN" and "WARNING" in levels))]
