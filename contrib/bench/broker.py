#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What vmad's broker does and costs (doc/broker.md): how long an introduction takes, how much of a processor so many a second need, and what its program
costs connections that nobody asks about: those are wrk's to nginx, a connection a request, on one processor, in turns with and without a vmad, which is
started for each turn. For root; the tree of control groups is one of its own."""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from benchlib import find

IN_TREE = ("unshare", "-m", "sh", "-c", 'mount -t cgroup2 none "$0" && exec "$@"')


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="broker.py", description=__doc__)
    parser.add_argument("--rounds", metavar="N", type=int, default=16, help="with and without a vmad (default %(default)s)")
    parser.add_argument("--rate", metavar="N", type=int, default=10000, help="connections a second (default %(default)s)")
    parser.add_argument("--seconds", metavar="N", type=float, default=5, help="of each load (default %(default)s)")
    args = parser.parse_args(argv)
    if args.rounds < 1 or args.rate < 1 or args.seconds <= 0:
        parser.error("--rounds, --rate and --seconds take numbers above 0")
    if os.geteuid() != 0:
        parser.error("only root can load a program that hears of connections")
    return args


def found(name: str) -> pathlib.Path:
    return find.helper(name, None) or sys.exit(f"broker.py: {name} is not built")


class Vmad:
    """With a broker alone, as long as the block runs."""

    def __init__(self, folder: pathlib.Path):
        self.path = folder / "broker"
        self._tree = folder / "tree"
        self._tree.mkdir(exist_ok=True)

    def __enter__(self):
        self.process = subprocess.Popen([*IN_TREE, self._tree, found("vmad"), "--console", "--agent-socket", "", "--socket", "",
                                         "--broker", self.path, "--cgroup", self._tree], stdout=subprocess.PIPE, text=True)
        if "introduces" not in self.process.stdout.readline():
            sys.exit("broker.py: vmad has no broker")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def helper(name: str, *argv) -> dict:
    done = subprocess.run([found(name), *map(str, argv)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"broker.py: {name}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def introductions(folder: pathlib.Path, args: argparse.Namespace):
    with Vmad(folder) as vmad:
        for title, rate in (("one after another", 0), (f"{args.rate} a second", args.rate)):
            heard = helper("broker_load", vmad.path, vmad.process.pid, rate, args.seconds)
            print(f"{title}: " + ", ".join(f"{what} {value:g}" for what, value in heard.items()), flush=True)


def port_of_its_own() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Nginx:
    """On the last processor, a connection a request."""

    def __init__(self, folder: pathlib.Path):
        self._port = port_of_its_own()
        self.tie = ["taskset", "-c", str(max(os.sched_getaffinity(0)))]
        self.config = folder / "nginx.conf"
        self.config.write_text(f"""worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error;
            events {{ worker_connections 1024; }}
            http {{ access_log off; keepalive_timeout 0; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
                    uwsgi_temp_path {folder}; scgi_temp_path {folder};
                    server {{ listen 127.0.0.1:{self._port}; location / {{ return 200 "hello"; }} }} }}""", encoding="ascii")

    def __enter__(self):
        self._process = subprocess.Popen([*self.tie, find.program("nginx") or sys.exit("broker.py: no nginx"), "-c", self.config])
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", self._port)).close()
                break
            time.sleep(0.01)
        self._workers = pathlib.Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text(encoding="ascii").split()
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()

    def _spent(self) -> tuple[float, float]:
        """Microseconds of a processor: the server's, the client's."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        workers = (pathlib.Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii") for pid in self._workers)
        return sum(int(text.split()[0]) for text in workers) / 1e3, (usage.ru_utime + usage.ru_stime) * 1e6

    def cost(self) -> tuple[float, float]:
        """Of a connection."""
        before = self._spent()
        said = subprocess.run([*self.tie, find.program("wrk") or sys.exit("broker.py: no wrk"), "-t1", "-c8", "-d1s", "-H", "Connection: close",
                               f"http://127.0.0.1:{self._port}/"], capture_output=True, text=True, check=True).stdout
        requests = int(re.search(r"(\d+) requests in", said)[1])
        after = self._spent()
        return (after[0] - before[0]) / requests, (after[1] - before[1]) / requests


def connections(folder: pathlib.Path, rounds: int):
    costs: dict[bool, list] = {False: [], True: []}
    with Nginx(folder) as nginx:
        nginx.cost()
        for number in range(rounds):
            for with_vmad in (False, True) if number % 2 else (True, False):
                with Vmad(folder) if with_vmad else contextlib.nullcontext():
                    cost = nginx.cost()
                costs[with_vmad].append((*cost, sum(cost)))
    without, there = ([statistics.median(each) for each in zip(*costs[which])] for which in (False, True))
    ratios = sorted(one[2] / other[2] for one, other in zip(costs[True], costs[False]))
    quarter = len(ratios) // 4
    print(f"a connection to nginx, us of a processor: {without[0]:.1f} of nginx and {without[1]:.1f} of wrk; with vmad {there[0]:.1f} and {there[1]:.1f}: "
          f"times {statistics.median(ratios):.3f} (middle half of {rounds} rounds {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})")


def main(argv: Sequence[str] | None = None):
    args = arguments(argv)
    with tempfile.TemporaryDirectory(prefix="broker-") as folder:
        introductions(pathlib.Path(folder), args)
        connections(pathlib.Path(folder), args.rounds)


if __name__ == "__main__":
    main()
