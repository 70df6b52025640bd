# SPDX-License-Identifier: BSD-2-Clause
"""Did acceleration happen? The library's log has a line for each connection that says so, or why not."""
from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

# "... connection 127.0.0.1:1 -> 127.0.0.1:2 is accelerated", "... not accelerated: the peer has no library"
_NOT = re.compile(r"\bnot accelerated\b(?:\W+(?P<reason>.*))?", re.IGNORECASE)
_YES = re.compile(r"\baccelerated\b", re.IGNORECASE)
_UDP_RECEIVER = re.compile(r"\bUDP (?P<own>\S+): accelerated\b")  # one that has " -> " is a sender's
_NUMBER = re.compile(r"\b\d+\b")  # one reason, however many bytes or calls it names


@dataclass
class Trace:
    """What the logs of one or more runs say; `files` is 0 when the library was not even loaded."""
    files: int = 0
    accelerated: int = 0
    plain: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Trace) -> Trace:
        return Trace(self.files + other.files, self.accelerated + other.accelerated, self.plain + other.plain,
                     self.reasons + other.reasons)

    @property
    def happened(self) -> bool:
        return self.accelerated > 0

    def sentence(self) -> str:
        if self.files == 0:
            return "the library was not loaded"
        why = "; ".join(f"{count}: {reason}" for reason, count in self.reasons.most_common(3))
        if not self.happened:
            return f"no connection was accelerated ({why or 'its log names none'})"
        return f"{self.accelerated} connection ends accelerated" + (f", {self.plain} not ({why})" if self.plain else "")


def environment(directory: Path, connections: bool) -> dict[str, str]:
    """What makes the library of a process (and of those it forks) write its log into `directory`: its header, which
    shows that it was loaded, and a line for each connection if wanted. At debug each epoll_ctl() would be logged, and
    measured."""
    return {"VMA_TRACELEVEL": "details" if connections else "info", "VMA_LOG_FILE": str(directory / "vma.%d.log")}


def parse(lines: list[str]) -> Trace:
    trace = Trace(files=1)
    for line in lines:
        if match := _NOT.search(line):
            trace.plain += 1
            trace.reasons[_NUMBER.sub("N", match["reason"] or "no reason given").strip()] += 1
        elif _YES.search(line):
            trace.accelerated += 1
    return trace


def udp_receivers(directory: Path) -> int:
    """UDP sockets that took messages past the kernel at some time."""
    return sum(len({match["own"] for match in _UDP_RECEIVER.finditer(log.read_text(errors="replace"))})
               for log in directory.glob("vma.*.log"))


def read(directory: Path) -> Trace:
    total = Trace()
    for log in sorted(directory.glob("vma.*.log")):
        total = total + parse(log.read_text(errors="replace").splitlines())
    return total
