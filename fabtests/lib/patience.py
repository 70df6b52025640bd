# SPDX-License-Identifier: BSD-2-Clause
"""How long to wait for what only a hang keeps away: a minute at least, and as many times that as this machine is slower, now, than
the usual one. Only here is it known how slow that is. doc/checks.md, "Patience is measured"."""

import mmap
import os
import subprocess
import time

USUAL = 60.0  # seconds: no wait is shorter, and what needs no more on the usual machine doesn't name a time
MOST = 5.0  # what hangs has to be told some day, while there is time for all others
FRESH = 20.0  # seconds for which a measurement is good
_AT_MOST = 0.02  # seconds for one of the measurements, but for a step that takes longer
_PAGES = 200

# Seconds that each takes on an idle virtual machine of 2 processors, Python's part included: rather more than less, as a machine
# that is as fast as that one waits for the usual time.
_REFERENCE = {"system call": 0.5e-6, "process": 2e-3, "wake-up": 30e-6, "page fault": 1e-6}


def _each(step, times: int) -> float:
    """Seconds that a step takes, on average."""
    begin = time.perf_counter()
    for done in range(1, times + 1):
        step()
        spent = time.perf_counter() - begin
        if spent > _AT_MOST:
            break
    return spent / done


def _wake_ups() -> float:
    """A byte to another process and back."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as other:
        def turn():
            other.stdin.write(b"x")
            other.stdout.read(1)
        turn()  # it has started
        return _each(turn, 50)


def _page_faults() -> float:
    with mmap.mmap(-1, _PAGES * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        fresh = iter(range(0, len(memory), mmap.PAGESIZE))
        return _each(lambda: memory.__setitem__(next(fresh), 1), _PAGES)


def _queue() -> float:
    """Threads that want to run for each processor: those of this moment or of the last minute, which are more. We are one of them."""
    with open("/proc/loadavg", encoding="ascii") as file:
        minute, _, _, now, _ = file.read().split()
    return max(float(minute), float(now.partition("/")[0])) / len(os.sched_getaffinity(0))


def measure() -> dict[str, float]:
    """How many times slower than the usual machine this one is, in each respect."""
    takes = {"system call": _each(os.getppid, 1000),
             "process": _each(lambda: subprocess.run(["/bin/true"], check=True), 5),
             "wake-up": _wake_ups(),
             "page fault": _page_faults()}
    return {"queue": _queue()} | {what: time / _REFERENCE[what] for what, time in takes.items()}


class _Slowness:
    """The last measurement."""

    def __init__(self):
        self.found, self.until = 1.0, 0.0

    def now(self) -> float:
        if time.monotonic() > self.until:
            self.found = min(max(1.0, *measure().values()), MOST)
            self.until = time.monotonic() + FRESH
        return self.found


_SLOWNESS = _Slowness()
_ASKED_FOR = max(float(os.environ.get("FABTESTS_PATIENCE") or 1), 1.0)


def factor() -> float:
    """What usual times are multiplied by: how slow the machine is, times what FABTESTS_PATIENCE asks for."""
    return _SLOWNESS.now() * _ASKED_FOR


def seconds(usual: float = USUAL) -> float:
    """How long to wait here for what takes less than `usual` seconds on the usual machine."""
    return max(usual, USUAL) * factor()


class Deadline:
    """The end of a wait. The machine may have become slower since it began: over() looks at it again, and may put the end off."""

    def __init__(self, usual: float = USUAL):
        self._usual, self._begin, self._seconds = usual, time.monotonic(), seconds(usual)

    def __str__(self):
        return f"{self._seconds:.0f} s"

    def left(self) -> float:
        """Seconds to wait until over() is to be asked."""
        return max(self._begin + self._seconds - time.monotonic(), 0.0)

    def over(self) -> bool:
        if self.left() == 0:
            self._seconds = max(self._seconds, seconds(self._usual))
        return self.left() == 0


if __name__ == "__main__":
    print(f"{factor():.2f}")
