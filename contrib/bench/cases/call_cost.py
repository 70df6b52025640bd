# SPDX-License-Identifier: BSD-2-Clause
"""What a call on a descriptor that is not the library's costs with the library loaded, against without."""
from __future__ import annotations

from benchlib import parsers
from benchlib.bench import Bench
from benchlib.model import KERNEL, Case, Measurements, Metric, Mode, at_most_more

LIMIT_NS = 5
# A UDP socket is the library's. Of the others, and of what makes a descriptor and closes it, some are several calls, some take so much of the
# kernel that the library's share is lost in it, and some change what it keeps: handlers and the numbers of descriptors.
NOT_JUDGED = {"recv_udp_ns", "setlk_file_ns", "ofd_setlk_file_ns", "connect_unix_ns", "accept_unix_ns", "close_range_nothing_ns",
              "sigaction_ns", "dup2_ns"}


def title_of(name: str) -> str:
    call, _, descriptor = name.removesuffix("_ns").rpartition("_")
    return f"{call} and close" if descriptor == "close" else " on ".join(filter(None, (call, descriptor)))


class CallCost(Case):
    name = "calls"
    title = "a call on a foreign descriptor"
    seconds = 1
    by_hand = "call_cost; LD_PRELOAD=libvma.so call_cost"
    helpers = ("call_cost",)
    counts_connections = False  # there are none

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        figures = parsers.json_line(bench.client(mode, [bench.helper("call_cost")], 5))
        return {name: float(value) for name, value in figures.items() if name.endswith("_ns")}

    def finish(self, results: Measurements) -> None:
        """The program decides which calls it makes; the one that gets dearest is judged."""
        self.metrics = tuple(Metric(name, title_of(name), "ns", lower_is_better=True)
                             for name in results.values.get(KERNEL.key, {}))
        foreign = [metric for metric in self.metrics if metric.key not in NOT_JUDGED and not metric.key.endswith("_close_ns")]
        every = [at_most_more(f"{metric.title}, over without the library (the worst of {len(foreign)} calls)",
                              metric, KERNEL.key, LIMIT_NS) for metric in foreign]
        every.sort(key=lambda target: target.measured(results) or 0)
        self.targets = tuple(every[-1:])
