# SPDX-License-Identifier: BSD-2-Clause
"""Two ends that are apart: of different users, or in different network namespaces and introduced by vmad: on a veth pair, as two containers on
a bridge, and by a published port. sockperf's ping-pong, redis-benchmark and wrk, against the kernel and, for users, against one user's two ends;
between users also messages of 1 MiB and pgbench."""
from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchlib import parsers, procs
from benchlib.bench import Bench
from benchlib.model import ACCELERATED, KERNEL, Case, Metric, Mode, times_better

from . import postgres
from .nginx import prefix
from .sockperf_latency import SPINNING, SockperfLatency
from .wire import FAR, PORT, command, wire

SERVER, CLIENT = 33, 65534
LATENCY = {"VMA_SPEC": "latency"}
UNLOGGED = {**LATENCY, "VMA_LOG_FILE": "/dev/null"}
ONE_USER = Mode("one", "accelerated, one user", preload=True, env=UNLOGGED)
TWO_USERS = Mode(ACCELERATED.key, "accelerated, two users", preload=True, env=UNLOGGED)
INTRODUCED = Mode(ACCELERATED.key, "accelerated, introduced by vmad", preload=True, env=LATENCY)
P50 = Metric("p50", "TCP 64 B, half round trip p50", "us", lower_is_better=True)
GET = Metric("get", "redis GET, 50 clients", "requests/s")
GET_ONE = Metric("get1", "redis GET, 1 client", "requests/s")
SET = Metric("set16k", "redis SET of 16 KiB, 50 clients", "requests/s")
METRICS = (P50, GET, GET_ONE, SET)
WRK = Metric("wrk", "nginx + wrk, 1 KiB, keep-alive", "requests/s")
MIB_P50 = Metric("mib_p50", "TCP 1 MiB, half round trip p50", "us", lower_is_better=True)
MIB_RATE = Metric("mib_rate", "TCP 1 MiB, one way", "Gbit/s")
PGBENCH = Metric("pgbench", "pgbench, SELECT, prepared, 4 clients", "1/s")
OF_USERS = (*METRICS, MIB_P50, MIB_RATE, PGBENCH)


def _ping(bench: Bench, address: str, mode: Mode, port: int = PORT) -> list[str]:
    return [bench.program("sockperf"), "ping-pong", "--tcp", *mode.options, "-i", address, "-p", str(port), "-m", "64", "-t",
            str(bench.size(2, 1)), *SockperfLatency.RATE]


def _sockperf(bench: Bench, address: str, mode: Mode) -> list[str]:
    return [bench.program("sockperf"), "server", "--tcp", *mode.options, "-i", address, "-p", str(PORT)]


def _redis(bench: Bench, address: str) -> list[str]:
    return [bench.program("redis-server"), "--port", str(PORT), "--bind", address, "--save", "", "--protected-mode", "no"]


LOADS = ((GET, "GET", ("-t", "get", "-c", "50"), (400_000, 60_000)), (GET_ONE, "GET", ("-t", "get", "-c", "1"), (50_000, 15_000)),
         (SET, "SET", ("-t", "set", "-c", "50", "-d", "16384"), (60_000, 15_000)))


def _load(bench: Bench, address: str, options: tuple[str, ...], requests: tuple[int, int], port: int = PORT) -> list[str]:
    return [bench.program("redis-benchmark"), "-h", address, "-p", str(port), "--csv", *options, "-n", str(bench.size(*requests))]


class _Apart(Case):
    needs_root = True
    only_by_name = True  # others take their time already
    seconds = 20
    needs = ("sockperf", "redis-server", "redis-benchmark")
    metrics = METRICS


class Users(_Apart):
    name = "users"
    title = "the two ends are of one user, or of two"
    by_hand = ("setpriv --reuid=33 --clear-groups env LD_PRELOAD=libvma.so sockperf server --tcp -i 127.0.0.1 -p 7100 &\n"
               "setpriv --reuid=65534 --clear-groups env LD_PRELOAD=libvma.so sockperf ping-pong --tcp -i 127.0.0.1 -p 7100 -m 64")
    seconds = 36
    needs = (*_Apart.needs, "psql", "setpriv")
    helpers = ("vma_lat",)
    modes = (SPINNING, ONE_USER, TWO_USERS)
    metrics = OF_USERS
    compare = tuple((metric, base.key) for metric in OF_USERS for base in (SPINNING, ONE_USER))
    targets = (*(times_better(f"{metric.title} against one user", metric, ONE_USER.key, at_least=0.9) for metric in OF_USERS),
               *(times_better(f"{metric.title} against the kernel", metric, SPINNING.key, at_least=1.5) for metric in (MIB_P50, MIB_RATE)))

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        postgres.open_to_all(bench.scratch)  # where the programs log, of whichever user

        def of(user: int, argv: list[str]) -> list[str]:
            # setpriv has the library, too, but not the rights of who comes after it: a log of its own would be in the way.
            log = ["env", f"VMA_LOG_FILE={bench.scratch}/vma.%d.log"] if mode.preload else []
            return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *log, *argv]

        client = SERVER if mode is ONE_USER else CLIENT
        here = "127.0.0.1"
        with bench.server(mode, of(SERVER, _sockperf(bench, here, mode)), PORT):
            figures = {P50.key: parsers.sockperf_percentiles(bench.client(mode, of(client, _ping(bench, here, mode)), 4))[50]}
        with bench.server(mode, of(SERVER, _redis(bench, here)), PORT):
            for metric, key, options, requests in LOADS:
                figures[metric.key] = parsers.redis_rates(bench.client(mode, of(client, _load(bench, here, options, requests)), 15))[key]
        with bench.server(mode, of(SERVER, [bench.helper("vma_lat"), "server", "--port", str(PORT)]), PORT):
            for test, wait in ("ping-pong", "spin" if mode is SPINNING else "recvfrom"), ("throughput", "recvfrom"):
                result = bench.scratch / f"{test}.json"
                bench.client(mode, of(client, _mebibytes(bench, here, test, wait, result)), 4)
                figures.update(_of_mebibytes(test, result.read_text()))
        return {**figures, PGBENCH.key: _pgbench(bench, mode, of)}


def _mebibytes(bench: Bench, address: str, test: str, wait: str, result: Path) -> list[str]:
    return [bench.helper("vma_lat"), "client", "--port", str(PORT), "--tcp", "--test", test, "--wait", wait, "--size", str(2**20),
            "--warm-up", "100", "--duration", str(bench.size(2, 1)), "--json", str(result), address]


def _of_mebibytes(test: str, text: str) -> dict[str, float]:
    if test == "ping-pong":
        return {MIB_P50.key: parsers.vma_lat_half_round_trip(text)}
    return {MIB_RATE.key: parsers.vma_lat_received_rate(text) * 2**20 * 8 / 1e9}


def _pgbench(bench: Bench, mode: Mode, of: Callable[[int, list[str]], list[str]]) -> float:
    """By default, as it is used: with four clients there are more threads than processors that could spin."""
    try:
        owner = pwd.getpwnam("postgres").pw_uid
    except KeyError:
        raise procs.RunError("there is no user postgres") from None
    usual = Mode(mode.key, mode.title, mode.preload, {name: value for name, value in mode.env.items() if name != "VMA_SPEC"})
    return postgres.select_rate(bench, usual, lambda argv: of(owner, argv), lambda argv: of(owner if mode is ONE_USER else CLIENT, argv), owner)


@contextlib.contextmanager
def _vmad(bench: Bench) -> Iterator[Path]:
    if bench.lib is None or not (vmad := bench.lib.parent.parent / "vmad").exists():
        raise procs.RunError("vmad is not built")
    tree, path = bench.scratch / "tree", bench.scratch / "broker"
    tree.mkdir(exist_ok=True)
    script = 'mount -t cgroup2 none "$0" && exec "$@"'
    process = subprocess.Popen(["unshare", "-m", "sh", "-c", script, tree, vmad, "--console", "--agent-socket", "", "--socket", "",
                                "--broker", path, "--cgroup", tree], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 10
        while not path.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        if not path.exists():
            raise procs.RunError("vmad has no broker here")
        yield path
    finally:
        process.terminate()
        process.wait(10)


@dataclass(frozen=True)
class Network:
    near: procs.Namespace  # where clients run
    far: procs.Namespace  # and servers, which listen at FAR, PORT
    address: str = FAR  # what clients ask
    port: int = PORT


@contextlib.contextmanager
def _veth() -> Iterator[Network]:
    with wire() as (near, far):
        yield Network(near, far)


PUBLISHED = 80
HOST, ON_BRIDGE, OTHER_HOST, OTHER = "10.99.0.254", "10.99.0.1", "10.98.0.254", "10.98.0.1"
TRANSLATION = """table ip published {{
    chain in {{ type nat hook prerouting priority -100; ip daddr {host} tcp dport {published} dnat to {far}:{port}; }}
}}"""


def _container(host: procs.Namespace, inside: procs.Namespace, bridge: str, gateway: str, address: str) -> None:
    """On a bridge of the host's, made for it if there is none, as container engines do it."""
    end = f"to-{address}"
    if subprocess.run(["ip", "link", "show", bridge], capture_output=True, check=False, preexec_fn=host.enter).returncode != 0:
        command(host, "ip", "link", "add", bridge, "type", "bridge")
        command(host, "ip", "address", "add", f"{gateway}/24", "dev", bridge)
        command(host, "ip", "link", "set", bridge, "up")
    command(host, "ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", f"/proc/{os.getpid()}/fd/{inside.fd}")
    command(host, "ip", "link", "set", end, "master", bridge, "up")
    command(inside, "ip", "address", "add", f"{address}/24", "dev", "eth0")
    command(inside, "ip", "link", "set", "eth0", "up")
    command(inside, "ip", "route", "add", "default", "via", gateway)


@contextlib.contextmanager
def _one_bridge() -> Iterator[Network]:
    with procs.network_namespace() as host, procs.network_namespace() as near, procs.network_namespace() as far:
        for inside, address in (near, ON_BRIDGE), (far, FAR):
            _container(host, inside, "bridge0", HOST, address)
        yield Network(near, far)


@contextlib.contextmanager
def _published() -> Iterator[Network]:
    """The client is on another bridge of the host's, and asks the host."""
    with procs.network_namespace() as host, procs.network_namespace() as near, procs.network_namespace() as far:
        _container(host, far, "bridge0", HOST, FAR)
        _container(host, near, "bridge1", OTHER_HOST, OTHER)
        command(host, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        command(host, "nft", TRANSLATION.format(host=OTHER_HOST, published=PUBLISHED, far=FAR, port=PORT))
        yield Network(near, far, OTHER_HOST, PUBLISHED)


class _Introduced(_Apart):
    seconds = 24
    needs = (*_Apart.needs, "nginx", "wrk")
    modes = (KERNEL, SPINNING, INTRODUCED)
    metrics = (*METRICS, WRK)
    compare = tuple((metric, base.key) for metric in (*METRICS, WRK) for base in (SPINNING, KERNEL))
    targets = (times_better("TCP p50 against the spinning kernel", P50, SPINNING.key, at_least=10),
               times_better("redis GET against the kernel", GET, KERNEL.key, at_least=4),
               times_better("nginx and wrk against the kernel", WRK, KERNEL.key, at_least=2))
    network: Callable[[], contextlib.AbstractContextManager[Network]]

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        with _vmad(bench) as path, type(self).network() as net:
            told = Mode(mode.key, mode.title, mode.preload, {**mode.env, "VMA_BROKER": str(path)}, mode.options)
            usual = Mode(mode.key, mode.title, mode.preload, {name: value for name, value in told.env.items() if name != "VMA_SPEC"})

            @contextlib.contextmanager
            def server(how: Mode, argv: list[str], cpus: procs.Cpus) -> Iterator[None]:
                with bench.stepped(how, argv, cpus, net.far) as process:
                    procs.wait_port(process, PORT, False)
                    yield

            with server(told, _sockperf(bench, FAR, told), bench.server_cpu):
                output = bench.client(told, _ping(bench, net.address, told, net.port), 4, namespace=net.near)
            figures = {P50.key: parsers.sockperf_percentiles(output)[50]}
            with server(told, _redis(bench, FAR), bench.server_cpu):
                for metric, key, options, requests in LOADS:
                    output = bench.client(told, _load(bench, net.address, options, requests, net.port), 15, namespace=net.near)
                    figures[metric.key] = parsers.redis_rates(output)[key]
            home, seconds = prefix(bench.scratch, f"{FAR}:{PORT}"), bench.size(2, 1)
            with server(usual, [bench.program("nginx"), "-p", str(home), "-c", "nginx.conf"], bench.both_cpus):
                wrk = [bench.program("wrk"), "-t", "1", "-c", "32", "-d", f"{seconds}s", f"http://{net.address}:{net.port}/page.html"]
                figures[WRK.key] = parsers.wrk_rate(bench.client(usual, wrk, seconds, bench.both_cpus, namespace=net.near))
        return figures


class Namespaces(_Introduced):
    name = "namespaces"
    title = "the two ends are in two network namespaces on a veth pair"
    by_hand = ("vmad --console --agent-socket '' & # then, in two network namespaces\n"
               "LD_PRELOAD=libvma.so sockperf server --tcp -i 10.99.0.2 -p 7100 &\n"
               "LD_PRELOAD=libvma.so sockperf ping-pong --tcp -i 10.99.0.2 -p 7100 -m 64")
    network = _veth


class Bridge(_Introduced):
    name = "bridge"
    title = "the two ends are in two network namespaces on a bridge, as two containers are"
    by_hand = Namespaces.by_hand
    network = _one_bridge


class Published(_Introduced):
    name = "published"
    title = "the far end is a container's port that its host publishes (address translation), the near one in a container on another bridge"
    by_hand = Namespaces.by_hand.replace("ping-pong --tcp -i 10.99.0.2 -p 7100", f"ping-pong --tcp -i {OTHER_HOST} -p {PUBLISHED}")
    needs = (*_Introduced.needs, "nft", "sysctl")
    network = _published
