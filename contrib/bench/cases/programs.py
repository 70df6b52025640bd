# SPDX-License-Identifier: BSD-2-Clause
"""Large programs as they are used: a database, a proxy before a web server, copies of files, messages, an interpreter's web server.
What is asked is that none is slower with the library than without."""
from __future__ import annotations

import os
import pwd
import shutil
import sys
import time
from pathlib import Path

from benchlib import parsers, procs
from benchlib.bench import Bench
from benchlib.model import KERNEL, Case, Metric, Mode, times_better

from . import nginx, postgres

RATE = Metric("rate", "rate", "1/s")
SPEED = Metric("speed", "speed", "MB/s")
HERE = Path(__file__).resolve().parents[1]


def no_slower(metric: Metric):
    return (times_better("no slower", metric, KERNEL.key, at_least=0.95),)


class _Program(Case):
    only_by_name = True
    metrics = (RATE,)
    compare = ((RATE, KERNEL.key),)
    targets = no_slower(RATE)
    seconds = 8


class HaproxyNginx(_Program):
    name = "haproxy"
    title = "wrk, haproxy, nginx, 1 KiB, keep-alive"
    needs = ("haproxy", "nginx", "wrk")
    by_hand = "LD_PRELOAD=libvma.so nginx ... & LD_PRELOAD=libvma.so haproxy -db -f CONF & LD_PRELOAD=libvma.so wrk -t 1 -c 32 URL"

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        seconds = bench.size(2, 1)
        port, behind = procs.free_port(), procs.free_port()
        home = nginx.prefix(bench.scratch, behind)
        config = bench.scratch / "haproxy.cfg"
        config.write_text("global\n maxconn 500\n nbthread 1\ndefaults\n mode http\n timeout connect 9s\n timeout client 9s\n"
                          " timeout server 9s\n http-reuse always\n"
                          f"frontend in\n bind 127.0.0.1:{port}\n default_backend out\nbackend out\n server one 127.0.0.1:{behind}\n")
        wrk = [bench.program("wrk"), "-t", "1", "-c", "32", "-d", f"{seconds}s", f"http://127.0.0.1:{port}/page.html"]
        with bench.server(mode, [bench.program("nginx"), "-p", str(home), "-c", "nginx.conf"], behind, bench.both_cpus), \
                bench.server(mode, [bench.program("haproxy"), "-db", "-f", str(config)], port, bench.both_cpus):
            return {RATE.key: parsers.wrk_rate(bench.client(mode, wrk, seconds, bench.both_cpus))}


class NodeHttp(_Program):
    name = "node"
    title = "wrk, node's http, keep-alive"
    needs = ("node", "wrk")
    by_hand = "LD_PRELOAD=libvma.so node -e 'http server' & LD_PRELOAD=libvma.so wrk -t 1 -c 32 URL"
    PROGRAM = "require('http').createServer((_, a) => a.end('x'.repeat(1024))).listen(+process.argv[1], '127.0.0.1')"

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        seconds = bench.size(2, 1)
        port = procs.free_port()
        wrk = [bench.program("wrk"), "-t", "1", "-c", "32", "-d", f"{seconds}s", f"http://127.0.0.1:{port}/"]
        with bench.server(mode, [bench.program("node"), "-e", self.PROGRAM, str(port)], port):
            return {RATE.key: parsers.wrk_rate(bench.client(mode, wrk, seconds))}


class Rsync(_Program):
    name = "rsync"
    title = "rsync from a daemon, 300 MB again and again"
    needs = ("rsync",)
    metrics = (SPEED,)
    compare = ((SPEED, KERNEL.key),)
    targets = no_slower(SPEED)
    counts_connections = False  # the daemon's child and the receiver's two processes share one
    by_hand = "LD_PRELOAD=libvma.so rsync --daemon --no-detach --config=CONF & LD_PRELOAD=libvma.so rsync -W -I --inplace rsync://127.0.0.1:PORT/there/file ."

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        size, times = bench.size(300, 10), bench.size(4, 1)
        port = procs.free_port()
        there, back = bench.scratch / "there", bench.scratch / "back"
        there.mkdir()
        back.mkdir()
        with (there / "file").open("wb") as out:
            for _ in range(size):
                out.write(os.urandom(1_000_000))
        owner = "uid = root\ngid = root\n" if os.geteuid() == 0 else ""
        (bench.scratch / "rsyncd.conf").write_text(f"use chroot = no\n{owner}[there]\npath = {there}\n")
        daemon = [bench.program("rsync"), "--daemon", "--no-detach", "--address=127.0.0.1", f"--port={port}",
                  f"--config={bench.scratch}/rsyncd.conf"]
        client = [bench.program("rsync"), "-W", "-I", "--inplace", f"rsync://127.0.0.1:{port}/there/file", str(back)]
        with bench.server(mode, daemon, port):
            bench.client(mode, client, 5, bench.both_cpus)  # then the pages of both files are there, whoever has to give them
            start = time.monotonic()
            for _ in range(times):
                bench.client(mode, client, 5, bench.both_cpus)
            took = time.monotonic() - start
        shutil.rmtree(there)
        shutil.rmtree(back)
        return {SPEED.key: size * times / took}


class ZeroMq(_Program):
    name = "zeromq"
    title = "ZeroMQ, request and reply, 64 B"
    by_hand = "LD_PRELOAD=libvma.so contrib/bench/zmq_echo.py server PORT & LD_PRELOAD=libvma.so contrib/bench/zmq_echo.py client PORT 2"

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        seconds = bench.size(2, 1)
        port = procs.free_port()
        program = [sys.executable, str(HERE / "zmq_echo.py")]
        with bench.server(mode, [*program, "server", str(port)], port, bench.both_cpus):
            output = bench.client(mode, [*program, "client", str(port), str(seconds)], seconds, bench.both_cpus)
        return {RATE.key: float(parsers.json_line(output)["rate"])}


class Pgbench(_Program):
    name = "pgbench"
    title = "pgbench, SELECT, prepared, 4 clients"
    needs = ("psql", "setpriv")
    by_hand = "LD_PRELOAD=libvma.so postgres -D DATA & LD_PRELOAD=libvma.so pgbench -S -M prepared -c 4 -T 3 postgres"

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        def as_nobody(argv: list[str]) -> list[str]:
            return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *argv] if os.geteuid() == 0 else argv

        owner = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        return {RATE.key: postgres.select_rate(bench, mode, as_nobody, as_nobody, owner)}
