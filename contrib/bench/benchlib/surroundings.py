# SPDX-License-Identifier: BSD-2-Clause
"""What else there is on the machine while busy.py measures: busy loops, or a limit of the processor time (cgroups(7))."""
from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from . import procs

PERIOD_US = 100_000
V1 = Path("/sys/fs/cgroup/cpu")
V2 = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """They end with us, however we end."""
    loops = [subprocess.Popen([sys.executable, "-c", "import os\nwhile os.getppid() == %d: sum(range(10000))" % os.getpid()])
             for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _limits() -> tuple[Path, str, str]:
    """Where a group is made, the file that limits it, and what is written there for half of a processor."""
    if (V1 / "cpu.cfs_quota_us").exists():
        return V1, "cpu.cfs_quota_us", str(PERIOD_US // 2)
    if "cpu" in (V2 / "cgroup.controllers").read_text().split():
        return V2, "cpu.max", f"{PERIOD_US // 2} {PERIOD_US}"
    raise procs.RunError("no cgroup can limit the processor here")


@contextlib.contextmanager
def half_a_processor() -> Iterator[None]:
    """For us and all that we start meanwhile: 50 ms in 100. Needs root."""
    try:
        parent, file, value = _limits()
        group = parent / f"vma-busy-{os.getpid()}"
        group.mkdir()
    except OSError as error:
        raise procs.RunError(f"no limit of the processor time: {error}") from error
    try:
        (group / file).write_text(value)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (parent / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def surrounded(by: str) -> contextlib.AbstractContextManager[None]:
    return half_a_processor() if by == "quota" else busy_loops(int(by))


def title(by: str) -> str:
    return "50 % of a CPU" if by == "quota" else f"{by} loops"
