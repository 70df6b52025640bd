# SPDX-License-Identifier: BSD-2-Clause
"""Our TCP on AF_XDP at one end of a wire, the kernel's at the other: streams both ways, connections that come and go, and who
opens them. The kernel's socket is the judge."""

import concurrent.futures
import hashlib
import os
import socket

import pytest

from lib import build
from lib.tcp import FAMILIES, PORT, bridged, echoed, echoing, no_offloads
from lib.wire import LEFT, Asked, inside, xdp_of


@pytest.fixture
def wire(run, hosts):
    """The hosts, with checksums in the frames that the kernel sends: over veth it leaves them out."""
    no_offloads(run, hosts.right)
    return hosts


@pytest.fixture
def listen(run):
    """listen(host, address): our echo server. Its end is orderly, and says what it has seen."""
    servers = []

    def started(host, address):
        program = Asked(run, host, "server", build.program("ether/programs/tcp_echo"), "wire", "listen", address, PORT)
        servers.append(program)
        assert program.next_line() == "listening"
        return program

    yield started
    for program in servers:
        program.finish()


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("size", [0, 1, 1448, 20 << 20], ids=str)
def test_kernel_connects(wire, listen, family, left, right, size):
    server = listen(wire.left, left)
    data = os.urandom(size)
    assert echoed(wire.right, left, data) == hashlib.sha256(data).digest()
    server.close()
    server.proc.ok()
    assert server.next_line().startswith(f"1 connections, {size} bytes")


def test_many_connections(wire, listen):
    server = listen(wire.left, LEFT)
    for number in range(300):
        data = os.urandom(number * 7)
        assert echoed(wire.right, LEFT, data) == hashlib.sha256(data).digest()
    server.close()
    server.proc.ok()
    assert server.next_line().startswith("300 connections")


def test_refused(wire, listen):
    """A port of ours that nobody listens on is the kernel's; one that was ours is again when we are gone."""
    server = listen(wire.left, LEFT)
    with inside(wire.right):
        sock = socket.socket()
    with sock:
        with pytest.raises(ConnectionRefusedError):
            sock.connect((LEFT, PORT + 1))
    server.close()
    server.proc.ok()
    assert not xdp_of(wire.left)
    with inside(wire.right):
        sock = socket.socket()
    with sock:
        with pytest.raises(ConnectionRefusedError):
            sock.connect((LEFT, PORT))


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_we_connect(run, wire, family, left, right):
    with echoing(wire.right, right, 20):
        client = run.run("client", [build.program("ether/programs/tcp_echo"), "wire", "connect", left, 30000, right, PORT,
                                    1_000_000, 20], netns=wire.left.file)
    assert client.stdout() == "ok\n"


@pytest.fixture
def bad_wire(run, af_xdp):
    """The hosts with a bridge between them that drops, doubles and holds back a hundredth of all frames each."""
    with bridged(run, loss=1, duplicates=1, held_back=1) as (hosts, bridge):
        yield hosts
    assert bridge.done["lost"] > 0, bridge.done  # it has been bad


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_bad_wire(bad_wire, listen, family, left, right):
    listen(bad_wire.left, left)
    data = os.urandom(8 << 20)
    assert echoed(bad_wire.right, left, data) == hashlib.sha256(data).digest()


def test_many_connections_on_a_bad_wire(bad_wire, listen):
    listen(bad_wire.left, LEFT)

    def some():
        for number in range(10):
            data = os.urandom(number * 1000)
            assert echoed(bad_wire.right, LEFT, data) == hashlib.sha256(data).digest()

    with concurrent.futures.ThreadPoolExecutor(10) as pool: # a lost SYN takes a second: side by side
        for done in [pool.submit(some) for _ in range(10)]:
            done.result()
