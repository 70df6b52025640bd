# SPDX-License-Identifier: BSD-2-Clause
"""Sockets over an Ethernet port: two network namespaces on a veth pair, the kernel's sockets at the far end in every mode. TCP and
UDP ping-pong by sockperf, how many datagrams of 64 B a receiver takes, and a TCP stream received with GRO and without."""
from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

from benchlib import find, parsers, procs, stats
from benchlib.bench import Bench
from benchlib.model import ACCELERATED, KERNEL, Case, Metric, Mode, times_better

from .nginx import RATE, prefix
from .sockperf_latency import BLOCKING, SPINNING, SockperfLatency

PORT = 7100
NEAR, FAR = "10.99.0.1", "10.99.0.2"
ON_PORT = Mode(ACCELERATED.key, "accelerated, Ethernet port", preload=True,
               env={"VMA_SPEC": "latency", "VMA_ETHERNET": "wire"})
ON_PORT_GENERIC = Mode("generic", "the same, generic XDP", preload=True, env={**ON_PORT.env, "FI_VMA_ETHERNET_XDP": "generic"})
SPINS = ("--nonblocked",)


def command(namespace: procs.Namespace, *argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, preexec_fn=namespace.enter,
                          pass_fds=(namespace.fd,))
    if done.returncode != 0:
        raise procs.RunError(f"{' '.join(argv)}: {done.stderr.strip()}")


@contextlib.contextmanager
def wire() -> Iterator[tuple[procs.Namespace, procs.Namespace]]:
    """The near and the far end. Frames have their checksums, which veth leaves out otherwise."""
    ethtool = find.program("ethtool")
    if not ethtool:
        raise procs.RunError("ethtool is not installed")
    with procs.network_namespace() as near, procs.network_namespace() as far:
        command(near, "ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns",
                 f"/proc/{os.getpid()}/fd/{far.fd}")
        for end, address in ((near, NEAR), (far, FAR)):
            command(end, "ip", "address", "add", f"{address}/24", "dev", "wire")
            command(end, "ip", "link", "set", "wire", "up")
            command(end, str(ethtool), "-K", "wire", "tx", "off", "gro", "on")  # NAPI for frames of udp_flood
        yield near, far


class _Wire(Case):
    needs_root = True
    only_by_name = True  # all of the others take their time already
    seconds = 25
    needs = ("sockperf", "ethtool")


LATENCIES = tuple(Metric(f"{kind}_{name}", f"{kind.upper()}, half round trip {name}", "us", lower_is_better=True)
                  for kind in ("tcp", "udp") for name in ("p50", "p99.9"))
MEDIANS = (LATENCIES[0], LATENCIES[2])


class WireLatency(_Wire):
    name = "wire-latency"
    title = "sockperf ping-pong with a plain server on a wire, 64 B"
    by_hand = ("sockperf server --tcp --nonblocked -i 10.99.0.2 & # in another network namespace\n"
               "VMA_ETHERNET=wire VMA_SPEC=latency LD_PRELOAD=libvma.so sockperf ping-pong --tcp -i 10.99.0.2 -m 64 -t 2 --mps 5000000")
    modes = (BLOCKING, SPINNING, ON_PORT, ON_PORT_GENERIC)
    metrics = LATENCIES
    targets = tuple(times_better(f"{metric.title} against the spinning kernel", metric, SPINNING.key, at_least=1, aim=1.67)
                    for metric in MEDIANS)
    compare = tuple((metric, base.key) for metric in MEDIANS for base in (SPINNING, BLOCKING))

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        figures: dict[str, float] = {}
        seconds = bench.size(2, 1)
        sockperf = bench.program("sockperf")
        log = bench.scratch / "full-log.csv"
        for kind, how in (("tcp", ("--tcp",)), ("udp", ())):
            server = [sockperf, "server", *how, *SPINS, "-i", FAR, "-p", str(PORT)]
            client = [sockperf, "ping-pong", *how, *mode.options, "-i", FAR, "-p", str(PORT), "-m", "64", "-t", str(seconds),
                      *SockperfLatency.RATE, "--full-log", str(log)]
            with wire() as (near, far), bench.stepped(KERNEL, server, bench.server_cpu, far) as process:
                procs.wait_port(process, PORT, kind == "udp")
                bench.client(mode, client, seconds, namespace=near)
            with log.open() as lines:
                histogram = parsers.sockperf_log(lines)
            log.unlink()
            p50, p999 = (ns / 1000 for ns in stats.percentiles(histogram, (50, 99.9)))
            figures |= {f"{kind}_p50": p50, f"{kind}_p99.9": p999}
        return figures


RECEIVED = Metric("received", "64 B, received", "messages/s")


class WireReceive(_Wire):
    name = "wire-udp-receive"
    title = "UDP of 64 B from a plain sender on a wire, as many as can be taken"
    seconds = 5
    by_hand = ("VMA_ETHERNET=wire LD_PRELOAD=libvma.so udp_flood receive 10.99.0.1 7100 1 & "
               "udp_flood send 10.99.0.1 7100 1 wire # in another network namespace")
    needs = ("ethtool",)
    helpers = ("udp_flood",)
    modes = (KERNEL, ON_PORT)
    metrics = (RECEIVED,)
    targets = (times_better("received", RECEIVED, KERNEL.key, at_least=1.5),)
    compare = ((RECEIVED, KERNEL.key),)

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        flood = bench.helper("udp_flood")
        arguments = [NEAR, str(PORT), "1"]
        with wire() as (near, far), bench.stepped(mode, [flood, "receive", *arguments], bench.server_cpu, near) as receiver:
            if procs.next_line(receiver, 10) != "ready":
                raise procs.RunError("udp_flood is not ready")
            bench.client(KERNEL, [flood, "send", *arguments, "wire"], 3, namespace=far)
            return {RECEIVED.key: float(parsers.json_line(procs.next_line(receiver, 10))["received"])}


STREAM = Metric("stream", "stream, received", "Gbit/s")
SMALL = Metric("small", "writes of 64 B, received", "Mbit/s")
NO_GRO = Mode("no-gro", "accelerated, VMA_GRO_STREAMS_MAX=0", preload=True,
              env={"VMA_ETHERNET": "wire", "VMA_GRO_STREAMS_MAX": "0"})
GRO = Mode(ACCELERATED.key, "accelerated", preload=True, env={"VMA_ETHERNET": "wire"})


class WireTcpReceive(_Wire):
    name = "wire-tcp-receive"
    title = "iperf3 received from a plain sender on a wire, with GRO and without"
    seconds = 20
    by_hand = ("VMA_ETHERNET=wire LD_PRELOAD=libvma.so iperf3 -s & "
               "iperf3 -c 10.99.0.1 -t 2; iperf3 -c 10.99.0.1 -t 2 -N -l 64 # in another network namespace")
    needs = ("iperf3", "ethtool")
    modes = (KERNEL, NO_GRO, GRO)
    metrics = (STREAM, SMALL)
    compare = tuple((metric, base.key) for metric in (STREAM, SMALL) for base in (NO_GRO, KERNEL))

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        figures: dict[str, float] = {}
        seconds = bench.size(2, 1)
        iperf = bench.program("iperf3")
        for metric, how, scale in ((STREAM, (), 1), (SMALL, ("-N", "-l", "64"), 1000)):
            server = [iperf, "-s", "-p", str(PORT)]
            client = [iperf, "-c", NEAR, "-p", str(PORT), "-t", str(seconds), "--json", *how]
            with wire() as (near, far), bench.stepped(mode, server, bench.server_cpu, near) as process:
                procs.wait_port(process, PORT, False)
                figures[metric.key] = parsers.iperf_bandwidth(bench.client(KERNEL, client, seconds, namespace=far)) * scale
        return figures


WORKERS = 4
CONNECTIONS = 64


class WireNginx(_Wire):
    name = "wire-nginx"
    title = "nginx with four workers on one port, wrk from a plain client on a wire, 1 KiB, keep-alive"
    seconds = 6
    by_hand = ("VMA_ETHERNET=wire LD_PRELOAD=libvma.so nginx -p PREFIX -c nginx.conf & "
               "wrk -t 1 -c 64 -d 3s http://10.99.0.1:7100/page.html # in another network namespace")
    needs = ("nginx", "wrk", "ethtool")
    modes = (KERNEL, GRO)
    metrics = (RATE,)
    targets = (times_better("requests", RATE, KERNEL.key, at_least=1),)
    compare = ((RATE, KERNEL.key),)

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        seconds = bench.size(3, 1)
        home = prefix(bench.scratch, f"{NEAR}:{PORT} reuseport", WORKERS)
        server = [bench.program("nginx"), "-p", str(home), "-c", "nginx.conf"]
        wrk = [bench.program("wrk"), "-t", "1", "-c", str(CONNECTIONS), "-d", f"{seconds}s", f"http://{NEAR}:{PORT}/page.html"]
        with wire() as (near, far), bench.stepped(mode, server, bench.both_cpus, near) as process:
            procs.wait_port(process, PORT, False)
            return {RATE.key: parsers.wrk_rate(bench.client(KERNEL, wrk, seconds, bench.both_cpus, namespace=far))}


SENT = Metric("sent", "64 B to a group, sent", "messages/s")
GROUP = "239.9.9.9"


class WireMulticast(_Wire):
    name = "wire-multicast"
    title = "sockperf, 64 B to a multicast group on a wire, nobody else in it"
    seconds = 5
    by_hand = ("VMA_ETHERNET=wire LD_PRELOAD=libvma.so sockperf throughput -i 239.9.9.9 --mc-tx-if 10.99.0.1 "
               "--mc-rx-if 10.99.0.1 -m 64 -t 2 # in a network namespace with a veth `wire`")
    modes = (KERNEL, ON_PORT)
    metrics = (SENT,)
    targets = (times_better("sent", SENT, KERNEL.key, at_least=1),)
    compare = ((SENT, KERNEL.key),)

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        seconds = bench.size(2, 1)
        with wire() as (near, _):
            output = bench.client(mode, [bench.program("sockperf"), "throughput", "-i", GROUP, "-p", str(PORT), "--mc-tx-if",
                                         NEAR, "--mc-rx-if", NEAR, "-m", "64", "-t", str(seconds)], seconds, namespace=near)
        sent, took = parsers.sockperf_sent(output)
        return {SENT.key: sent / took}
