"""The machine that a check runs on: its pace, its processors' idle time, and huge pages for what runs there."""

import contextlib
import os
import pathlib
import re
import time

HUGE_PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")

# Of the quicker machine that doc/checks.md tells of, the seconds that each stage takes, and of those that run beside another one what
# they add. Where the time of a check is limited, those that come first here are begun before others.
SECONDS = {"build": 130, "make-check": 125, "core": 240, "guests": 90, "fabtests": 555, "lab": 300, "asan": 390, "tidy": 155, "packages": 300, "distcheck": 575,
           "fuzz": 120, "cross": 60, "model": 70}

# For compilers and clang-tidy: their heaps grow by what huge pages fit in (huge_pages in Makefile.am).
COMPILERS = {"GLIBC_TUNABLES": "glibc.malloc.top_pad=16777216"}

AGAIN_MINUTES = 10  # beyond the limit of a check in which failed cases are run again


class Pace:
    """What of the stages `chosen` there is time for. `always`: those that run in any case. `minutes`: of the whole check, None if
    there is no limit."""

    def __init__(self, chosen, always, minutes):
        self.chosen, self.always, self.minutes = chosen, always, minutes
        self.start = time.monotonic()
        self.left = set(chosen)  # what has not ended
        self.under_way = {}  # of those, which have begun: when
        self.measured = 1.0

    def begin(self, name):
        self.under_way[name] = time.monotonic()

    def end(self, name):
        self.left.discard(name)
        self.under_way.pop(name, None)
        if not self.under_way:  # else nobody knows how much of the others is done
            self.measured = max(1.0, self.spent() / max(1, sum(SECONDS[one] for one in self.chosen if one not in self.left)))

    def in_order(self):
        return [name for name in SECONDS if name in self.left]

    def fits(self, name, alone=False):
        """Whether there is time for the stage, and unless `alone` for what is left of those before it in the list of SECONDS, at the
        pace of this machine so far."""
        if not self.minutes or name in self.always:
            return True
        order = self.in_order()
        before = [] if alone else order[:order.index(name)]
        return self.spent() + sum(map(self.still_takes, (*before, name))) <= self.minutes * 60

    def still_takes(self, name):
        """Seconds. Stages that are under way have shared the processors, two at a time."""
        done = (time.monotonic() - self.under_way[name]) / 2 if name in self.under_way else 0
        return max(0, self.pace() * SECONDS[name] - done)

    def spent(self):
        return time.monotonic() - self.start

    def pace(self):
        """How many times as long as there the stages have taken here, 1 at least."""
        return self.measured

    def is_late(self):
        """Whether not even a failed case can be run again."""
        return self.minutes is not None and self.spent() > (self.minutes + AGAIN_MINUTES) * 60


@contextlib.contextmanager
def huge_pages():
    """A compiler's memory in huge pages: it faults a fifth as often, which is a fifth to a third of its time where the machine is a
    virtual one. Root's to set, and put back behind the check."""
    before = re.search(r"\[(\w+)\]", HUGE_PAGES.read_text(encoding="ascii")) if os.access(HUGE_PAGES, os.W_OK) else None
    if not before:
        yield
        return
    HUGE_PAGES.write_text("always", encoding="ascii")
    try:
        yield
    finally:
        HUGE_PAGES.write_text(before[1], encoding="ascii")


def processor_times():
    """Seconds that the machine's processors were idle, and all seconds, since it booted. proc(5): /proc/stat."""
    numbers = [int(word) for word in pathlib.Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return numbers[3] + numbers[4], sum(numbers)
