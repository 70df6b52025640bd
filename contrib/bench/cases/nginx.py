# SPDX-License-Identifier: BSD-2-Clause
"""nginx with two workers and a page of 1 KiB, loaded by wrk, with and without keep-alive. Three busy processes on two
CPUs: nothing is pinned to one of them, both sides may use both."""
from __future__ import annotations

from pathlib import Path

from benchlib import parsers, procs
from benchlib.bench import Bench
from benchlib.model import KERNEL, Case, Metric, Mode, times_better

RATE = Metric("rate", "requests", "requests/s")

CONFIG = """\
daemon off;
user root;
worker_processes {workers};
pid nginx.pid;
error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
    server {{ listen {listen}; root html; }}
}}
"""


def prefix(scratch: Path, listen: object, workers: int = 2) -> Path:
    """A directory that nginx finds all of its files in. `listen`: a port of loopback, or what nginx.conf says."""
    home = scratch / "nginx"
    for name in ("html", "tmp"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / "nginx.conf").write_text(CONFIG.format(listen=f"127.0.0.1:{listen}" if isinstance(listen, int) else listen, workers=workers))
    (home / "html" / "page.html").write_text("x" * 1024)
    return home


class _Nginx(Case):
    needs = ("nginx", "wrk")
    metrics = (RATE,)
    compare = ((RATE, KERNEL.key),)
    headers: tuple[str, ...] = ()

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        seconds = bench.size(2, 1)
        port = procs.free_port()
        home = prefix(bench.scratch, port)
        wrk = [bench.program("wrk"), "-t", "1", "-c", "32", "-d", f"{seconds}s", *self.headers,
               f"http://127.0.0.1:{port}/page.html"]
        with bench.server(mode, [bench.program("nginx"), "-p", str(home), "-c", "nginx.conf"], port, bench.both_cpus):
            return {RATE.key: parsers.wrk_rate(bench.client(mode, wrk, seconds, bench.both_cpus))}


class NginxKeepAlive(_Nginx):
    name = "nginx"
    title = "nginx + wrk, 1 KiB, keep-alive"
    seconds = 4
    by_hand = ("LD_PRELOAD=libvma.so nginx -p PREFIX -c nginx.conf & "
               "LD_PRELOAD=libvma.so wrk -t 1 -c 32 -d 2s http://127.0.0.1:PORT/page.html")
    targets = (times_better("requests", RATE, KERNEL.key, at_least=1.5),)


class NginxClose(_Nginx):
    name = "nginx-close"
    title = "nginx + wrk, 1 KiB, a connection a request"
    seconds = 4
    by_hand = NginxKeepAlive.by_hand.replace("-d 2s", "-d 2s -H 'Connection: close'")
    headers = ("-H", "Connection: close")
    counts_connections = False  # they live too short to be moved, and that is what is measured
    targets = (times_better("requests", RATE, KERNEL.key, at_least=0.9),)
