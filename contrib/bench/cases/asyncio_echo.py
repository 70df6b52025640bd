# SPDX-License-Identifier: BSD-2-Clause
"""Python's asyncio, one client, 64 B there and back: what is left of the gain when an interpreter stands between."""
from __future__ import annotations

import sys
from pathlib import Path

from benchlib import parsers, procs
from benchlib.bench import Bench
from benchlib.model import KERNEL, Case, Metric, Mode

RATE = Metric("rate", "round trips", "1/s")
PROGRAM = Path(__file__).resolve().parents[1] / "asyncio_echo.py"


class AsyncioEcho(Case):
    name = "asyncio"
    title = "Python asyncio echo, 64 B"
    seconds = 4
    by_hand = ("LD_PRELOAD=libvma.so contrib/bench/asyncio_echo.py server PORT & "
               "LD_PRELOAD=libvma.so contrib/bench/asyncio_echo.py client PORT 2")
    metrics = (RATE,)
    compare = ((RATE, KERNEL.key),)

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        seconds = bench.size(2, 1)
        port = procs.free_port()
        program = [sys.executable, str(PROGRAM)]
        with bench.server(mode, [*program, "server", str(port)], port):
            output = bench.client(mode, [*program, "client", str(port), str(seconds)], seconds)
        return {RATE.key: float(parsers.json_line(output)["rate"])}
