# SPDX-License-Identifier: BSD-2-Clause
"""UDP sockets of unmodified programs on an Ethernet port: the library on the left, the kernel's sockets on the right."""

import hashlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from lib import build, expect, patience
from lib.multicast import is_on_port
from lib.runner import open_input
from lib.wire import LEFT, LEFT6, RIGHT, RIGHT6, inside

PORT = 7001
PYTHON = "/usr/bin/python3"
PROGRAMS = pathlib.Path(__file__).parent / "programs"
FAMILIES = [(socket.AF_INET, "4", LEFT, RIGHT), (socket.AF_INET6, "6", LEFT6, RIGHT6)]
IDS = ["ipv4", "ipv6"]
# One frame, fragments, and both again: fragments come by the kernel, what is sent in one frame by the port.
_SO_RCVBUFFORCE = 33
SIZES = [1, 64, 1452, 1472, 1473, 9000, 60000, 100]


@pytest.fixture
def wire(run, hosts):
    for host in hosts.left, hosts.right:
        run.run("ethtool", [build.tool("ethtool"), "-K", "wire", "tx", "off"], netns=host.file)
    return hosts


def on_port(run, host, name, *argv, env=None, **options):
    return run.start(name, argv, vma=True, env={"VMA_ETHERNET": "wire", **(env or {})}, netns=host.file, **options)


class Peer:
    """A plain socket on the right."""

    def __init__(self, host, family, to):
        with inside(host):
            self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.settimeout(patience.seconds())
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        self.to = to

    def ask(self, data: bytes) -> dict:
        self.socket.sendto(data, self.to)
        answer, _source = self.socket.recvfrom(65536)
        return json.loads(answer)


def offload(run, peer, proc):
    """Asks until the other side is on the port: it looks for one after some calls, and opens it beside them."""
    def asked():
        peer.ask(b"offload")
        return is_on_port(proc)
    run.wait_until(asked, "the socket to be on the port", proc=proc)


def mirror(run, hosts, family, address, *more, **options):
    proc = on_port(run, hosts.left, "mirror", PYTHON, PROGRAMS / "udp_mirror.py", family, address, PORT, *more, **options)
    run.wait_until(lambda: "ready" in proc.stdout(), "the mirror", proc=proc)
    return proc


@pytest.mark.parametrize("bound", ["specific", "any"])
@pytest.mark.parametrize("family, number, left, right", FAMILIES, ids=IDS)
def test_what_is_told(run, wire, family, number, left, right, bound):
    """Bytes, address, interface, TTL and traffic class of each datagram, in one frame and in fragments."""
    proc = mirror(run, wire, number, left if bound == "specific" else {"4": "0.0.0.0", "6": "::"}[number])
    peer = Peer(wire.right, family, (left, PORT))
    offload(run, peer, proc)
    with inside(wire.left):
        interface = socket.if_nametoindex("wire")
    level, ttl, tos = ((socket.IPPROTO_IP, socket.IP_TTL, socket.IP_TOS) if number == "4" else
                       (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, socket.IPV6_TCLASS))
    peer.socket.setsockopt(level, ttl, 33)
    peer.socket.setsockopt(level, tos, 0x28)
    chance = random.Random(3)
    for size in SIZES:
        data = chance.randbytes(size)
        answer = peer.ask(data)
        answer.pop("pid")
        assert answer == {"sha": hashlib.sha256(data).hexdigest(), "length": size, "ttl": 33, "tos": 0x28, "to": left,
                          "interface": interface}
    peer.ask(b"quit")
    proc.ok()


_RX_HARDWARE, _RX_SOFTWARE, _SOFTWARE, _RAW_HARDWARE = 4, 8, 16, 64  # SOF_TIMESTAMPING_


def received_frames(host) -> int:
    shown = subprocess.run(["ip", "-n", host.name, "-j", "-s", "link", "show", "wire"], capture_output=True, check=True)
    return json.loads(shown.stdout)[0]["stats64"]["rx"]["packets"]


@pytest.mark.parametrize("stamps", ["off", "software", "hardware"])
@pytest.mark.parametrize("family, number, left, right", FAMILIES, ids=IDS)
def test_time_stamps(run, wire, family, number, left, right, stamps):
    """SO_TIMESTAMPNS and SO_TIMESTAMPING: the same time in both, and none of the device, as a veth stamps nothing. With
    FI_VMA_ETHERNET_STAMPS it is when the datagram arrived, however late it is read. VMA_HW_TS_CONVERSION=1: a veth has no clock
    that could be brought to the system's time."""
    flags = _RX_SOFTWARE | _SOFTWARE | (_RX_HARDWARE | _RAW_HARDWARE if stamps == "hardware" else 0)
    proc = mirror(run, wire, number, left, f"stamps={flags}", env={"FI_VMA_ETHERNET_STAMPS": stamps, "VMA_HW_TS_CONVERSION": "1"})
    peer = Peer(wire.right, family, (left, PORT))
    offload(run, peer, proc)
    for size in (1, 100, 1400):
        before = time.time_ns()
        answer = peer.ask(b"x" * size)
        assert before < answer["time"] < time.time_ns()
        assert answer["times"] == [answer["time"], 0, 0]
    if stamps != "off":
        proc.send_signal(signal.SIGSTOP)
        frames, before = received_frames(wire.left), time.time_ns()
        peer.socket.sendto(b"late", peer.to)
        run.wait_until(lambda: received_frames(wire.left) > frames, "the frame")
        there = time.time_ns()
        proc.send_signal(signal.SIGCONT)
        assert before < json.loads(peer.socket.recv(65536))["time"] < there
    peer.ask(b"quit")
    proc.ok()


@pytest.mark.parametrize("when", ["before", "after"])
def test_device_times_are_the_kernels_where_the_port_has_none(run, wire, when):
    """A socket that asks for a NIC's time stamps stays with the kernel, which may have them, or returns to it, unless the port has
    them too."""
    flags = _RX_HARDWARE | _RAW_HARDWARE
    proc = mirror(run, wire, "4", LEFT, *([f"stamps={flags}"] if when == "before" else []))
    peer = Peer(wire.right, socket.AF_INET, (LEFT, PORT))
    if when == "after":
        offload(run, peer, proc)
        peer.ask(b"stamps%d" % flags)

    def refused():
        assert "times" not in peer.ask(b"offload")
        return any("wants the device's time stamps" in line for line in proc.log().lines)
    run.wait_until(refused, "the port to be looked at", proc=proc)
    assert peer.ask(b"again")["length"] == 5
    assert is_on_port(proc) == (when == "after")  # once


def test_device_times_are_the_kernels_where_no_clock_tells_them(run, wire):
    """A veth says that it stamps, and has no PTP clock: there is nothing to convert by, and one line says so."""
    proc = mirror(run, wire, "4", LEFT, f"stamps={_RX_HARDWARE | _RAW_HARDWARE}", env={"VMA_HW_TS_CONVERSION": "3"})
    peer = Peer(wire.right, socket.AF_INET, (LEFT, PORT))

    def refused():
        assert "times" not in peer.ask(b"offload")
        return any("wants the device's time stamps" in line for line in proc.log().lines)
    run.wait_until(refused, "the port to be looked at", proc=proc)
    told = [line for line in proc.log().lines if "VMA WARNING" in line and "does not tell its clock" in line]
    assert len(told) == 1 and "VMA_HW_TS_CONVERSION=3: port wire" in told[0]
    assert not is_on_port(proc)
    peer.ask(b"quit")
    proc.ok()


def test_width_of_rules(run, wire):
    """The variables of VMA for it are known, and said to have no effect."""
    env = {"VMA_ETHERNET": "wire", "VMA_UDP_3T_RULES": "1", "VMA_TCP_3T_RULES": "1"}
    proc = run.start("mirror", [PYTHON, PROGRAMS / "udp_mirror.py", "4", LEFT, PORT], vma=True, env=env,
                     netns=wire.left.file)
    run.wait_until(lambda: "ready" in proc.stdout(), "the mirror", proc=proc)
    peer = Peer(wire.right, socket.AF_INET, (LEFT, PORT))
    offload(run, peer, proc)
    for name in "VMA_UDP_3T_RULES", "VMA_TCP_3T_RULES":
        assert sum(f"{name}: No effect here" in line for line in proc.log().lines) == 1
    peer.ask(b"quit")
    proc.ok()


def test_any_address_hears_both_families(run, wire):
    proc = mirror(run, wire, "6", "::")
    six = Peer(wire.right, socket.AF_INET6, (LEFT6, PORT))
    four = Peer(wire.right, socket.AF_INET, (LEFT, PORT))
    offload(run, six, proc)
    for _ in range(20):
        assert six.ask(b"six")["to"] == LEFT6
        assert four.ask(b"four!")["length"] == 5
    four.ask(b"quit")
    proc.ok()


def test_many_peers(run, wire):
    proc = mirror(run, wire, "4", LEFT)
    peers = [Peer(wire.right, socket.AF_INET, (LEFT, PORT)) for _ in range(100)]
    offload(run, peers[0], proc)
    for turn in range(3):
        for i, peer in enumerate(peers):
            peer.socket.sendto(f"count{i}.{turn}".encode(), peer.to)
        for i, peer in enumerate(peers):
            assert json.loads(peer.socket.recv(1000))["number"] == f"{i}.{turn}"
    peers[0].ask(b"quit")
    proc.ok()


def test_backlog_in_order(run, wire):
    """What waits in the kernel's socket when the port is attached is read before what comes by the port."""
    read, write = os.pipe()
    with os.fdopen(read) as gate:
        proc = mirror(run, wire, "4", LEFT, "wait", stdin=gate)
    peer = Peer(wire.right, socket.AF_INET, (LEFT, PORT))
    for i in range(500):
        peer.socket.sendto(b"count%d" % i, peer.to)
    os.write(write, b"\n")
    os.close(write)
    got = []
    while len(got) < 500:
        got.append(int(json.loads(peer.socket.recv(1000))["number"]))
    offload(run, peer, proc)
    assert got == list(range(500))
    peer.ask(b"quit")
    proc.ok()


def test_fork(run, wire):
    """A child goes on with the socket: it is the kernel's, and on the port again in the child alone."""
    proc = mirror(run, wire, "4", LEFT)
    peer = Peer(wire.right, socket.AF_INET, (LEFT, PORT))
    offload(run, peer, proc)
    parent = peer.ask(b"who")["pid"]
    peer.ask(b"fork")  # the child answers: what came before, and was not read, would stay with the parent
    for i in range(200):
        assert peer.ask(b"count%d" % i)["number"] == str(i)
    assert peer.ask(b"who")["pid"] != parent
    peer.ask(b"quit")
    proc.ok()


def test_shared_port_stays_with_the_kernel(run, wire):
    """Who of several sockets with SO_REUSEPORT gets a datagram is the kernel's to say."""
    proc = mirror(run, wire, "4", LEFT, "reuseport")
    peer = Peer(wire.right, socket.AF_INET, (LEFT, PORT))
    for i in range(200):
        assert peer.ask(b"count%d" % i)["number"] == str(i)
    assert not is_on_port(proc)
    peer.ask(b"quit")
    proc.ok()


GROUPS = {"4": "239.9.9.9", "6": "ff15::9:9:9"}


def to_group(peer, host, number):
    """What the peer sends to its group leaves by the wire."""
    with inside(host):
        interface = socket.if_nametoindex("wire")
    if number == "4":
        peer.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, bytes(8) + struct.pack("i", interface))
    else:
        peer.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface)
        peer.to = (*peer.to, 0, interface)


def reaches(peer) -> bool:
    """A new interface has its route for IPv6's groups a moment later."""
    try:
        peer.socket.sendto(b"offload", peer.to)
    except OSError:
        return False
    peer.socket.recv(1000)
    return True


def group_is_on_port(proc) -> bool:
    return any(re.search(r"group .*accelerated: port wire", line) for line in proc.log().lines)


@pytest.mark.parametrize("bound", ["group", "any"])
@pytest.mark.parametrize("family, number, left, right", FAMILIES, ids=IDS)
def test_group(run, wire, family, number, left, right, bound):
    """The only member of this host gets the group by the port, each datagram once. When a program without the library joins it, too, both
    get each once, by the kernel."""
    group = GROUPS[number]
    proc = mirror(run, wire, number, group if bound == "group" else {"4": "0.0.0.0", "6": "::"}[number], f"group={group}")
    peer = Peer(wire.right, family, (group, PORT))
    to_group(peer, wire.right, number)
    run.wait_until(lambda: reaches(peer), "the route of groups", proc=proc)

    def asked():
        peer.ask(b"offload")
        return group_is_on_port(proc)

    run.wait_until(asked, "the group to be on the port", proc=proc)
    for i in range(300):
        answer = peer.ask(b"count%d" % i)
        assert answer["number"] == str(i) and answer["to"] == group

    with inside(wire.left):
        plain = socket.socket(family, socket.SOCK_DGRAM)
    with plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        plain.setblocking(False)
        plain.bind((group, PORT))
        with inside(wire.left):
            join(plain, family, group)

        def heard():
            peer.ask(b"again")
            try:
                return plain.recv(100)
            except BlockingIOError:
                return b""

        run.wait_until(heard, "the plain member to be heard", proc=proc)
        plain.settimeout(patience.seconds())
        for i in range(100):
            assert peer.ask(b"count%d" % i)["number"] == str(i)
        got = [plain.recv(100) for _ in range(100)]
        while got[0] == b"again":
            got = [*got[1:], plain.recv(100)]
        assert got == [b"count%d" % i for i in range(100)]
    peer.ask(b"quit")
    proc.ok()


def join(sock, family, group):
    interface = socket.if_nametoindex("wire")
    if family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                        socket.inet_aton(group) + bytes(4) + struct.pack("i", interface))
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP,
                        socket.inet_pton(socket.AF_INET6, group) + struct.pack("i", interface))


def echo(host, family, address):
    """An echo of the kernel's on the host; it ends with `quit`."""
    with inside(host):
        listening = socket.socket(family, socket.SOCK_DGRAM)
    listening.settimeout(patience.seconds())
    listening.bind((address, PORT))

    def answer():
        with listening:
            while True:
                try:
                    data, source = listening.recvfrom(65536)
                except TimeoutError:
                    return
                listening.sendto(data, source)
                if data == b"quit":
                    return

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return thread


def asker(run, wire, number, right, *options):
    """A client of the echo with the library, which has ended; it asked until it was on the port."""
    with open_input() as stdin:
        proc = on_port(run, wire.left, "asker", PYTHON, PROGRAMS / "udp_asker.py", number, right, PORT, 4000, *options, stdin=stdin)
        run.wait_until(lambda: is_on_port(proc), "to be on the port", proc=proc)
    return proc.ok()


@pytest.mark.parametrize("connected", ["connected", "unconnected"])
@pytest.mark.parametrize("family, number, left, right", FAMILIES, ids=IDS)
def test_client(run, wire, family, number, left, right, connected):
    echo(wire.right, family, right)
    assert asker(run, wire, number, right, connected).stdout() == "ok\n"


def test_refused(run, wire):
    """The peer's ICMP error reaches a connected socket that is on the port."""
    thread = echo(wire.right, socket.AF_INET, RIGHT)
    proc = asker(run, wire, "4", RIGHT, "connected", "quit")
    thread.join(patience.seconds())
    assert proc.stdout() == "refused\n"


@pytest.mark.parametrize("server", [True, False], ids=["server", "client"])
def test_sockperf(run, wire, server):
    """Both roles; every message comes back once, in order."""
    tool = build.tool("sockperf")

    def begin(at_left, *argv):
        argv = [tool, *argv, "-i", LEFT if server else RIGHT, "-p", PORT]
        return on_port(run, wire.left, "left", *argv) if at_left else run.start("right", argv, netns=wire.right.file)

    def ask(seconds):
        client = begin(not server, "ping-pong", "-t", seconds, *build.SOCKPERF_MANY).ok()
        assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in client.stdout()
        return is_on_port(listener if server else client)

    listener = begin(server, "server")
    run.wait_until(lambda: "[tid" in listener.stdout(), "the server", proc=listener)
    expect.in_time(run, ask, "the left to be on the port", listener)
    listener.stop()
