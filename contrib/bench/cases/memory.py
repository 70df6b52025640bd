# SPDX-License-Identifier: BSD-2-Clause
"""Resident memory of a process with the library and idle connections, against the same process without. Both sides of
the connections are looked at, and the larger one counts."""
from __future__ import annotations

import subprocess
from pathlib import Path

from benchlib import parsers, procs
from benchlib.bench import Bench
from benchlib.model import ACCELERATED, KERNEL, Case, Metric, Mode, at_most, at_most_more

LOADED = Metric("loaded", "RSS, no socket yet", "MiB", lower_is_better=True)
ONE = Metric("one", "RSS, one idle connection", "MiB", lower_is_better=True)
ONE_PSS = Metric("one_pss", "PSS, one idle connection", "MiB", lower_is_better=True)
FURTHER = Metric("further", "RSS, a further idle connection", "KiB", lower_is_better=True)
FURTHER_PSS = Metric("further_pss", "PSS, a further idle connection", "KiB", lower_is_better=True)


def _open(client: subprocess.Popen[str], count: int, first: bool = False) -> None:
    """Lets the client open connections until it has `count`."""
    if not first:
        assert client.stdin
        client.stdin.write("\n")
        client.stdin.flush()
    assert client.stdout
    line = client.stdout.readline().split()
    if line != ["open", str(count)]:
        raise procs.RunError(f"idle_conn: opening {count} connections failed: {' '.join(line) or 'it ended'}")


class Memory(Case):
    name = "memory"
    title = "memory"
    seconds = 2
    by_hand = "idle_conn server PORT & idle_conn client PORT 200; grep -E 'Rss|Pss' /proc/PID/smaps_rollup at each step"
    helpers = ("idle_conn",)
    modes = (KERNEL, Mode(ACCELERATED.key, ACCELERATED.title, preload=True, env={"VMA_SPEC": "latency"}))
    metrics = (LOADED, ONE, ONE_PSS, FURTHER, FURTHER_PSS)
    targets = (at_most_more("resident, library and one idle connection, over without", ONE, KERNEL.key, limit=16),
               at_most("resident, each further idle connection", FURTHER, limit=40))

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        port = procs.free_port()
        count = bench.size(200, 50)
        program = bench.helper("idle_conn")
        with bench.server(mode, [program, "server", str(port)], port) as server, \
                bench.stepped(mode, [program, "client", str(port), str(count)]) as client:
            def sizes() -> dict[str, int]:
                """The larger of both sides, in KiB."""
                both = [parsers.smaps_rollup(Path(f"/proc/{p.pid}/smaps_rollup").read_text()) for p in (server, client)]
                return {field: max(side[field] for side in both) for field in ("Rss", "Pss")}

            _open(client, 0, first=True)
            loaded = sizes()
            _open(client, 1)
            one = sizes()
            _open(client, count + 1)
            all_open = sizes()
        return {LOADED.key: loaded["Rss"] / 1024, ONE.key: one["Rss"] / 1024, ONE_PSS.key: one["Pss"] / 1024,
                FURTHER.key: (all_open["Rss"] - one["Rss"]) / count,
                FURTHER_PSS.key: (all_open["Pss"] - one["Pss"]) / count}
