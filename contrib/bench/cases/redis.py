# SPDX-License-Identifier: BSD-2-Clause
"""redis-benchmark SET and GET, no pipeline, with 50 clients and with one."""
from __future__ import annotations

from benchlib import parsers, procs
from benchlib.bench import Bench
from benchlib.model import KERNEL, Case, Metric, Mode, times_better

SET = Metric("set", "SET", "requests/s")
GET = Metric("get", "GET", "requests/s")


class _Redis(Case):
    needs = ("redis-server", "redis-benchmark")
    metrics = (SET, GET)
    compare = ((SET, KERNEL.key), (GET, KERNEL.key))
    clients: int
    requests: tuple[int, int]  # normal, quick

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        port = procs.free_port()
        server = [bench.program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                  "--appendonly", "no"]
        client = [bench.program("redis-benchmark"), "-h", "127.0.0.1", "-p", str(port), "-t", "set,get", "--csv",
                  "-c", str(self.clients), "-n", str(bench.size(*self.requests))]
        with bench.server(mode, server, port):
            rates = parsers.redis_rates(bench.client(mode, client, 15))
        return {SET.key: rates["SET"], GET.key: rates["GET"]}


class RedisMany(_Redis):
    name = "redis-50"
    title = "redis-benchmark, 50 clients"
    seconds = 5
    by_hand = ("LD_PRELOAD=libvma.so redis-server --save '' --appendonly no & "
               "LD_PRELOAD=libvma.so redis-benchmark -t set,get -c 50 -n 200000")
    clients = 50
    requests = (200_000, 60_000)
    targets = (times_better("SET", SET, KERNEL.key, at_least=2.5),
               times_better("GET", GET, KERNEL.key, at_least=2.5))


class RedisOne(_Redis):
    name = "redis-1"
    title = "redis-benchmark, 1 client"
    seconds = 6
    by_hand = ("LD_PRELOAD=libvma.so redis-server --save '' --appendonly no & "
               "LD_PRELOAD=libvma.so redis-benchmark -t set,get -c 1 -n 30000")
    clients = 1
    requests = (30_000, 15_000)
    targets = (times_better("SET", SET, KERNEL.key, at_least=4),
               times_better("GET", GET, KERNEL.key, at_least=4))
