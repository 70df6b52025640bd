# SPDX-License-Identifier: BSD-2-Clause
"""vma_lat, end to end on loopback: every mode, and its files against its summary. How fast it is, is no matter here."""

import csv
import json
import math
import os
import pathlib
import re
import socket

import pytest

from lib import build, expect, ports
from lib.vmalat import all_arrived, program

WAITS = ["recvfrom", "spin", "select", "poll", "epoll"]
COUNT = 201  # fewer than the default receive buffer holds: a server that is not scheduled loses none


# ---- sockets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("wait", WAITS)
def test_ping_pong(serve, client, wait, host):
    serve()
    _, result = client("--udp", "--tcp", "--wait", wait, "--count", COUNT, "--check", "--size", "14,1472", host=host)
    assert [(t["transport"], t["size"]) for t in result["tests"]] == [("udp", 14), ("tcp", 14), ("udp", 1472),
                                                                     ("tcp", 1472)]
    for test in result["tests"]:
        all_arrived(test, COUNT)
        assert test["wait"] == wait


@pytest.mark.parametrize("wait", WAITS[1:])
def test_several_sockets(serve, client, run, wait):
    serve()
    _, result = client("--udp", "--tcp", "--wait", wait, "--count", COUNT, "--check", "--sockets", 5, "--csv",
                       run.work / "samples.csv")
    for test in result["tests"]:
        all_arrived(test, COUNT)
    with open(run.work / "samples.csv") as file:
        rows = list(csv.DictReader(file))
    for transport in ("udp", "tcp"):
        mine = [(int(r["channel"]), int(r["sequence"])) for r in rows if r["transport"] == transport]
        assert mine == [(i % 5, i // 5) for i in range(COUNT)]


@pytest.mark.parametrize("wait", WAITS)
def test_throughput_tcp(serve, client, wait):
    serve()
    _, result = client("--tcp", "--test", "throughput", "--wait", wait, "--count", 5000, "--size", "12,100,70000",
                       "--check")
    for test in result["tests"]:
        all_arrived(test, 5000, replies=False)


@pytest.mark.parametrize("wait", WAITS)
def test_throughput_udp(serve, client, wait):
    """What did not arrive is counted as lost, exactly."""
    serve()
    _, result = client("--udp", "--test", "throughput", "--wait", wait, "--count", 2000, "--check")
    (test,) = result["tests"]
    server = test["servers"][0]
    assert test["client"]["sent"] == 2000 and 0 < server["received"] <= 2000
    assert test["lost"] == 2000 - server["received"]
    assert server["damaged"] == server["duplicates"] == server["foreign"] == 0


@pytest.mark.parametrize("wait", WAITS)
def test_under_load(serve, client, wait):
    serve()
    _, result = client("--tcp", "--udp", "--test", "under-load", "--wait", wait, "--mps", 5000, "--count", COUNT,
                       "--check", "--reply-every", 3)
    for test in result["tests"]:
        server = test["servers"][0]
        assert test["client"]["sent"] == COUNT and test["asked"] == COUNT // 3
        assert server["received"] == COUNT and server["sent"] == COUNT // 3
        assert test["client"]["received"] == COUNT // 3 and test["lost"] == 0
        assert test["rtt_ns"]["count"] == COUNT // 3


def test_largest_messages(serve, client):
    serve()
    _, result = client("--udp", "--count", 20, "--size", 65507, "--check")
    all_arrived(result["tests"][0], 20)
    _, result = client("--tcp", "--count", 3, "--size", 16777216, "--check", "--warm-up", 1)
    all_arrived(result["tests"][0], 3)


@pytest.mark.parametrize("mode", ["default", "latency"])
@pytest.mark.parametrize("test, wait, sockets", [("ping-pong", "recvfrom", 1), ("ping-pong", "epoll", 3),
                                                 ("throughput", "poll", 2), ("under-load", "select", 2),
                                                 ("ping-pong", "spin", 1)])
def test_preloaded(run, serve, client, test, wait, sockets, mode):
    """The library's own sockets under the tool: accelerated, and nothing is lost or damaged."""
    if not build.intercepts():
        pytest.skip("libvma.so of this build intercepts nothing")
    server = serve(vma=True, mode=mode)

    def ask(times):
        proc, result = client("--tcp", "--test", test, "--wait", wait, "--sockets", sockets, "--count", 2000 * times, "--check",
                              "--warm-up", 300, vma=True, mode=mode)
        assert result["tests"][0]["lost"] == 0
        assert result["tests"][0]["servers"][0]["received"] == 2000 * times
        return any("accelerated: device local" in line and "not accelerated" not in line for p in (server, proc)
                   for path in p.log_paths() for line in path.read_text().splitlines())
    expect.in_time(run, ask, "it to be accelerated")


# ---- multicast ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", WAITS)
def test_multicast(serve, client, port, wait):
    serve()
    _, result = client("--group", "239.255.77.1", "--data-port", port + 1, "--wait", wait, "--count", COUNT, "--check",
                       "--ttl", 0)
    all_arrived(result["tests"][0], COUNT)
    assert result["tests"][0]["group"] == "239.255.77.1"


def test_multicast_three_receivers(serve, client, port, run):
    """Each of three servers gets each message once. Slowly: a full receiver drops."""
    others = [ports.free_port() for _ in range(3)]
    for at in others:
        serve(at=at)
    out = run.work / "three.json"
    run.run("sender", [program(), "client", "--group", "239.255.77.2", "--data-port", port, "--test", "throughput", "--mps",
                       2000, "--count", COUNT, "--check", "--warm-up", 10, "--json", out, "--interface", "lo", "--ttl", 0,
                       *(f"127.0.0.1:{at}" for at in others)])
    (test,) = json.loads(out.read_text())["tests"]
    assert [s["received"] for s in test["servers"]] == [COUNT] * 3
    assert [s["duplicates"] for s in test["servers"]] == [0] * 3
    assert test["lost"] == 0


def ipv6_interface():
    """One that IPv6 multicast leaves by, with its address: loopback has no such route."""
    try:
        routes = pathlib.Path("/proc/net/ipv6_route").read_text().splitlines()
        names = {line.split()[-1] for line in routes if line.startswith("ff000000000000000000000000000000 08")}
        for line in pathlib.Path("/proc/net/if_inet6").read_text().splitlines():
            address, index, _, scope, flags, name = line.split()
            if name in names and scope == "00" and int(flags, 16) & 0x40 == 0:
                return name, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address))
    except OSError:
        pass
    return pytest.skip("no interface with an IPv6 address and a route for multicast")


def test_multicast_ipv6(serve, client, port):
    name, address = ipv6_interface()
    serve()
    _, result = client("--group", "ff11::77:1", "--data-port", port + 1, "--wait", "poll", "--count", COUNT, "--check",
                       "--interface", name, host=address)
    all_arrived(result["tests"][0], COUNT)


def looping_interface():
    """One that heeds IP_MULTICAST_LOOP: the loopback interface does not, what it sends it receives."""
    for _, name in socket.if_nameindex():
        flags = int(pathlib.Path(f"/sys/class/net/{name}/flags").read_text(), 16)
        if flags & 0x1009 == 0x1001:  # up and multicast, not loopback
            return name
    return pytest.skip("no interface with multicast but loopback")


def test_multicast_without_loop(serve, client, port):
    """Nobody on this host hears it, and the message says what may be wrong."""
    name = looping_interface()
    serve("--interface", name)
    _, result = client("--group", "239.255.77.3", "--data-port", port + 1, "--count", 5, "--ttl", 0, "--interface", name)
    all_arrived(result["tests"][0], 5)
    proc, _ = client("--group", "239.255.77.3", "--data-port", port + 1, "--no-loop", "--count", 5, "--timeout", 100,
                     "--ttl", 0, "--interface", name, status=3)
    assert "no reply to 3 messages" in proc.stderr() and "--interface" in proc.stderr()


# ---- libfabric ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", WAITS)
def test_fabric_msg(serve, client, wait):
    serve()
    _, result = client("--fabric", "msg", "--wait", wait, "--count", COUNT, "--check", "--sockets", 3, "--size",
                       "14,1000,100000")
    for test in result["tests"]:
        all_arrived(test, COUNT)
        assert test["provider"] == "vma"


@pytest.mark.parametrize("test", ["throughput", "under-load"])
def test_fabric_msg_loads(serve, client, test):
    serve()
    _, result = client("--fabric", "msg", "--test", test, "--count", 1000, "--check", "--sockets", 2)
    assert result["tests"][0]["servers"][0]["received"] == 1000
    assert result["tests"][0]["lost"] == 0


def test_sockets_and_endpoints_in_one_run(serve, client):
    serve()
    proc, result = client("--tcp", "--udp", "--fabric", "msg", "--count", COUNT)
    assert [t["transport"] for t in result["tests"]] == ["tcp", "udp", "msg"]
    for test in result["tests"]:
        all_arrived(test, COUNT)
    assert re.search(r"^comparison", proc.stdout(), re.M)


@pytest.mark.parametrize("kind, provider", [("msg", "tcp"), ("dgram", "udp")])
def test_other_providers(serve, client, kind, provider):
    serve()
    _, result = client("--fabric", kind, "--provider", provider, "--wait", "spin", "--count", COUNT, "--check",
                       "--sockets", 2)
    all_arrived(result["tests"][0], COUNT)


def test_domain(serve, client):
    serve()
    proc, _ = client("--fabric", "msg", "--domain", "nosuch", "--count", 5, status=3)
    assert "of provider vma, domain nosuch" in proc.stderr()
    _, result = client("--fabric", "msg", "--domain", "local", "--count", COUNT)
    all_arrived(result["tests"][0], COUNT)


# ---- files and text ----------------------------------------------------------------------------------------------------


def test_files_agree_with_the_summary(serve, client, run):
    serve()
    proc, result = client("--tcp", "--count", 1000, "--csv", run.work / "s.csv", "--rtt", "--histogram")
    with open(run.work / "s.csv") as file:
        rows = list(csv.DictReader(file))
    rtt = sorted(int(r["rtt_ns"]) for r in rows)
    sent = [int(r["sent_ns"]) for r in rows]
    assert sent == sorted(sent)
    said = result["tests"][0]["rtt_ns"]
    assert said["exact"] and said["count"] == said["kept"] == len(rtt) == 1000
    assert (said["min"], said["max"]) == (rtt[0], rtt[-1])
    assert math.isclose(said["mean"], sum(rtt) / len(rtt), abs_tol=0.001)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)):
        assert said[name] == rtt[math.ceil(round(share * 1000, 6)) - 1]
    for start, below, count in said["histogram"]:
        assert count == sum(start <= value < below for value in rtt)
    line = re.search(r"min (\S+)  mean (\S+)  p50 (\S+) .* p99.99 (\S+)  max (\S+)", proc.stdout())
    shown = [float(v) for v in line.groups()]
    assert shown == pytest.approx([v / 1000 for v in (rtt[0], said["mean"], said["p50"], said["p99.99"], rtt[-1])],
                                  abs=0.00051)
    bars = re.findall(r"^ +\S+ us  (#*) +(\d+)$", proc.stdout(), re.M)
    assert [int(n) for _, n in bars] == [count for _, _, count in said["histogram"]]
    assert all((len(bar) > 0) == (int(n) > 0) for bar, n in bars)


def test_half_round_trips_are_the_default(serve, client):
    serve()
    proc, result = client("--tcp", "--count", COUNT)
    assert "half of a round trip" in proc.stdout()
    shown = float(re.search(r"max (\S+)", proc.stdout())[1])
    assert shown == pytest.approx(result["tests"][0]["rtt_ns"]["max"] / 2000, abs=0.00051)


def test_more_samples_than_room(serve, client, run):
    serve()
    proc, result = client("--tcp", "--count", 1000, "--max-samples", 100, "--csv", run.work / "s.csv")
    said = result["tests"][0]["rtt_ns"]
    assert said["count"] == 1000 and said["kept"] == 100 and not said["exact"]
    assert len((run.work / "s.csv").read_text().splitlines()) == 101
    assert said["min"] <= said["p50"] <= said["p99"] <= said["max"]
    assert "not every sample was kept" in proc.stdout()


def test_clock_is_named(serve, client):
    serve()
    proc, result = client("--count", 10)
    assert "CLOCK_MONOTONIC" in proc.stdout()
    assert result["clock"] == "CLOCK_MONOTONIC" and result["clock_cost_ns"] > 0


def test_progress_on_a_terminal(serve, client):
    serve()
    leader, follower = os.openpty()
    try:
        client("--tcp", "--mps", 100, "--count", 210, pass_fds=[follower], preexec=lambda: os.dup2(follower, 2))
        assert re.search(rb"tcp ping-pong, 64 bytes: 1 s, \d+ messages", os.read(leader, 4096))
    finally:
        os.close(leader)
        os.close(follower)


def test_server_serves_several_and_ends(serve, client):
    server = serve("--clients", 2)
    client("--tcp", "--count", 10)
    client("--udp", "--count", 10)
    server.ok()
    assert "ends after 2 clients" in server.stdout()
    assert re.search(r"tcp ping-pong.*\n  received 10", server.stdout())
    assert re.search(r"udp ping-pong.*\n  received 10", server.stdout())


def test_help_names_every_option(run):
    text = run.run("help", [program(), "--help"]).stdout()
    source = (build.TOP / "util/vma_lat/options.cpp").read_text()
    options = re.findall(r'\{"([a-z-]+)", (?:no|required)_argument', source)
    assert len(options) > 25
    page = (build.TOP / "man/vma_lat.1").read_text()
    for option in options:
        assert f"--{option}" in text, option
        escaped = option.replace("-", "\\-")
        assert f"\\-\\-{escaped}" in page, option
    assert re.match(r"vma_lat \d", run.run("version", [program(), "--version"]).stdout())
