# SPDX-License-Identifier: BSD-2-Clause
"""PostgreSQL and its pgbench, each as some user: neither server nor initdb runs as root."""
from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from benchlib import parsers, procs
from benchlib.bench import Bench
from benchlib.model import KERNEL, Mode

As = Callable[[list[str]], list[str]]  # a command, to one that runs it as a certain user


def open_to_all(folder: Path) -> None:
    """Whoever is not root any more comes there, and writes there."""
    for parent in folder.parents:
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
    folder.chmod(0o777)


def _wait_for_answers(where: Path, server: list[str]) -> None:
    """It listens before it serves, and says until then that it starts up."""
    deadline = time.monotonic() + 20
    while subprocess.run([str(where / "pg_isready"), "-q", *server], check=False).returncode != 0:
        if time.monotonic() > deadline:
            raise procs.RunError("postgres does not come up")
        time.sleep(0.02)


def select_rate(bench: Bench, mode: Mode, server: As, client: As, owner: int | None = None) -> float:
    """Transactions a second of 4 clients that SELECT by prepared statements. `owner`: the number of the server's user."""
    seconds = bench.size(3, 1)
    where = max(Path("/usr/lib/postgresql").glob("*/bin/postgres")).parent
    port = procs.free_port()
    place = bench.scratch / "postgres"
    place.mkdir()
    if owner is not None:
        os.chown(place, owner, -1)
        open_to_all(bench.scratch)
    data = str(place / "data")
    bench.client(KERNEL, server([str(where / "initdb"), "-D", data, "-A", "trust", "-U", "bench", "--no-sync"]), 5,
                 bench.both_cpus)
    start = [str(where / "postgres"), "-D", data, "-p", str(port), "-c", "fsync=off", "-c", "unix_socket_directories=", "-c",
             "listen_addresses=127.0.0.1"]
    address = ["-h", "127.0.0.1", "-p", str(port)]
    pgbench, options = str(where / "pgbench"), [*address, "-U", "bench", "postgres"]
    with bench.server(mode, server(start), port, bench.both_cpus):
        _wait_for_answers(where, address)
        bench.client(KERNEL, client([pgbench, "-i", "-q", *options]), 5, bench.both_cpus)
        load = [pgbench, "-n", "-S", "-M", "prepared", "-c", "4", "-T", str(seconds), *options]
        output = bench.client(mode, client(load), seconds, bench.both_cpus)
    shutil.rmtree(place)
    return parsers.pgbench_rate(output)
