# SPDX-License-Identifier: BSD-2-Clause
"""Frames of several buffers behind the stack: TCP and UDP of ours against the kernel's where links have jumbo frames at both ends, at
one, or beyond a router that doesn't, and where the kernel leaves its checksums to a device. test_frames.py has the frames themselves,
test_sockets.py unmodified programs."""

import os
import socket

import pytest

from lib import build, netns
from lib.tcp import (FAMILIES, PORT, Talk, accepted, exchange, kernel_counters, kernel_listener, kernel_socket, no_offloads,
                     tcp_sysctl)
from lib.wire import LEFT, LEFT6, RIGHT, RIGHT6, Asked, set_sysctl, udp_socket, xdp_of

JUMBO, USUAL = 9000, 1500
SIZE = 8 << 20
DIRECTIONS = ["we_connect", "kernel_connects"]
UDP_PORT, UDP_PEER = 7100, 7200


def mtus(hosts, left, right):
    for host, mtu in ((hosts.left, left), (hosts.right, right)):
        host.ip("link", "set", "wire", "mtu", str(mtu))


def ends(talk, host, family, left, right, direction, port):
    """The kernel's end of a connection; talk has the other one."""
    if direction == "kernel_connects":
        talk.do(f"listen {left} {port}")
        sock = kernel_socket(host, family)
        sock.connect((left, port))
        talk.do("accept")
        return sock
    with kernel_listener(host, right, port) as listener:
        talk.do(f"connect {left} {30000 + port} {right} {port}", "wait established")
        return accepted(listener)


@pytest.fixture
def talk(run, hosts):
    """talk(): started when the links are as they shall be."""
    programs = []

    def started():
        programs.append(Talk(run, hosts.left))
        return programs[-1]

    yield started
    for program in programs:
        program.finish()


@pytest.mark.parametrize("ours, theirs", [(JUMBO, JUMBO), (USUAL, JUMBO), (JUMBO, USUAL)])
@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_tcp(run, hosts, talk, family, left, right, ours, theirs):
    """Streams both ways at once, with each set of options."""
    no_offloads(run, hosts.right, "tso", "gso")
    mtus(hosts, ours, theirs)
    program = talk()
    headers = 40 if family == socket.AF_INET else 60
    for number, (sack, stamps) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
        tcp_sysctl(hosts.right, tcp_sack=sack, tcp_timestamps=stamps)
        with ends(program, hosts.right, family, left, right, DIRECTIONS[number % 2], PORT + number) as sock:
            assert program.info()["mss"] == min(ours, theirs) - headers - 12 * stamps
            exchange(program, sock, SIZE)
        program.do("close")
    assert program.counters()["malformed"] == 0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_router_between_has_shorter_frames(run, af_xdp, direction):
    """Jumbo links at both ends, and a router that forwards no more than 1,500 bytes: each end is told, and goes on."""
    made = netns.hosts(middle=True)
    try:
        no_offloads(run, made.right, "tso", "gso")
        for host in made.all:
            set_sysctl(host, "ipv4/ip_forward", 1)
        router = made.middle
        for host, end, net, other in ((made.left, "left", "10.99.0", "10.98.0"), (made.right, "right", "10.98.0", "10.99.0")):
            mine = f"{net}.7"
            host.ip("addr", "flush", "dev", "wire")
            host.ip("addr", "add", f"{mine}/24", "dev", "wire")
            host.ip("link", "set", "wire", "mtu", str(JUMBO))
            router.ip("link", "set", end, "mtu", str(JUMBO))
            router.ip("addr", "add", f"{net}.1/24", "dev", end)
            router.ip("route", "replace", f"{mine}/32", "dev", end, "mtu", "lock", str(USUAL))
            host.ip("route", "add", f"{other}.0/24", "via", f"{net}.1")
        program = Talk(run, made.left)
        with ends(program, made.right, socket.AF_INET, "10.99.0.7", "10.98.0.7", direction, PORT) as sock:
            assert program.info()["mss"] == JUMBO - 52
            exchange(program, sock, SIZE)
            assert program.info()["mss"] == USUAL - 52
        program.do("close")
        program.close()
        program.proc.ok()
    finally:
        made.remove()


@pytest.mark.parametrize("mtu", [USUAL, JUMBO])
@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_kernel_leaves_sums_out(hosts, talk, family, left, right, mtu):
    """A wire as it comes: the peer's kernel computes no checksums over veth."""
    mtus(hosts, mtu, mtu)
    program = talk()
    for number, direction in enumerate(DIRECTIONS):
        with ends(program, hosts.right, family, left, right, direction, PORT + number) as sock:
            exchange(program, sock, SIZE)
        program.do("close")
    counters = program.counters()
    assert counters["malformed"] == 0 and counters["timeouts"] - counters["undone"] < 5  # those of a kernel that was late are undone


ENV = {"FI_PROVIDER_PATH": str(build.provider_dir()), "IPATH_NO_BACKTRACE": "1"}
DATAGRAMS = [(socket.AF_INET, LEFT, RIGHT, 28), (socket.AF_INET6, LEFT6, RIGHT6, 48)]


@pytest.mark.parametrize("offloads", ["off", "on"])
@pytest.mark.parametrize("family, left, right, headers", DATAGRAMS, ids=["ipv4", "ipv6"])
def test_udp(run, hosts, family, left, right, headers, offloads):
    """Datagrams of a whole jumbo frame, both ways, none of them in fragments; and longer ones, which are."""
    mtus(hosts, JUMBO, JUMBO)
    if offloads == "off":
        no_offloads(run, hosts.right)
    program = Asked(run, hosts.left, "echo", build.program("ether/programs/datagram_echo"), left, UDP_PORT, right, UDP_PEER, env=ENV)
    assert program.next_line() == "ready"
    whole = [1, 1472, 1473, 3798, 3799, 4096, 8191, JUMBO - headers] * 20
    with udp_socket(hosts.right, family) as sock:
        sock.bind((right, UDP_PEER))
        sock.connect((left, UDP_PORT))
        for size in whole:
            data = os.urandom(size)
            sock.send(data)
            assert sock.recv(65536) == data, size
        for host in hosts.all:
            counters = kernel_counters(host)
            assert counters["IpReasmReqds"] == 0
        for size in (JUMBO - headers + 1, 30_000, 65_000):
            data = os.urandom(size)
            sock.send(data)
            assert sock.recv(65536) == data, size
    program.close()
    program.proc.ok()
    assert program.next_line() == f"{len(whole) + 3} datagrams"
    assert not xdp_of(hosts.left)
