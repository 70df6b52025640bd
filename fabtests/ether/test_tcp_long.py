# SPDX-License-Identifier: BSD-2-Clause
"""Much by our TCP against the Linux kernel's: seconds of it in the check, and minutes by hand, with FABTESTS_LONG=1 (FABTESTS_GIB: how
many GiB a stream then has, 10). What the long ones said is in doc/inet.md."""

import concurrent.futures
import contextlib
import hashlib
import os
import resource
import socket
import threading
import time

import pytest

from lib import build, limits, patience
from lib.tcp import FAMILIES, PORT, bridged, no_offloads
from lib.wire import LEFT, Asked, inside

LONG = bool(os.environ.get("FABTESTS_LONG"))
GIB = int(os.environ.get("FABTESTS_GIB", "10")) << 30
BULK = GIB if LONG else 128 << 20
BULK_ON_A_BAD_WIRE = GIB if LONG else 32 << 20
IN_TURN = 100_000 if LONG else 10_000 # connections
AT_ONCE = 5000 if LONG else 1000

PIECE = 1 << 20
IP_BIND_ADDRESS_NO_PORT = 24 # Linux; Python 3.11 has no name for it


@pytest.fixture
def serve(run):
    """serve(host, address): our echo server; its words at the end are those of `served`."""
    servers = []

    def started(host, address):
        program = Asked(run, host, "server", build.program("ether/programs/tcp_echo"), "wire", "listen", address, PORT)
        servers.append(program)
        assert program.next_line() == "listening"
        return program

    yield started
    for server in servers:
        server.close()


def served(server) -> tuple[int, int, int]:
    """Connections, bytes, and connections that are still open."""
    server.close()
    server.proc.ok()
    words = server.next_line().split()
    return int(words[0]), int(words[2]), int(words[4])


def hashed_both_ways(host, family, address, size):
    """`size` bytes to our server and back, hashed on both ways; seconds."""
    with inside(host):
        sock = socket.socket(family, socket.SOCK_STREAM)
    sent, got = hashlib.sha256(), hashlib.sha256()
    with sock:
        sock.settimeout(patience.seconds(120))
        sock.connect((address, PORT))

        def send():
            piece = bytearray(os.urandom(PIECE))
            for number in range(size // PIECE):
                piece[:8] = number.to_bytes(8, "big")
                sent.update(piece)
                sock.sendall(piece)
            sock.shutdown(socket.SHUT_WR)

        start = time.monotonic()
        sender = threading.Thread(target=send)
        sender.start()
        room = bytearray(PIECE)
        count = 0
        while n := sock.recv_into(room):
            got.update(memoryview(room)[:n])
            count += n
        sender.join()
        took = time.monotonic() - start
    assert count == size
    assert got.digest() == sent.digest()
    return took


def bulk(serve, hosts, family, left, size):
    server = serve(hosts.left, left)
    took = hashed_both_ways(hosts.right, family, left, size)
    assert served(server) == (1, size, 0)
    print(f"{size / (1 << 30):.1f} GiB there and back in {took:.1f} s: {size * 8 / took / 1e9:.2f} Gbit/s each way")


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_bulk(run, hosts, serve, family, left, right):
    no_offloads(run, hosts.right)
    bulk(serve, hosts, family, left, BULK)


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_bulk_on_a_bad_wire(run, af_xdp, serve, family, left, right):
    with bridged(run, loss=1, duplicates=1, held_back=1) as (hosts, bridge):
        bulk(serve, hosts, family, left, BULK_ON_A_BAD_WIRE)
    print(bridge.done)


def to_the_end(sock) -> bytes:
    return b"".join(iter(lambda: sock.recv(PIECE), b""))


def test_short_connections(run, hosts, serve):
    """Some at a time, each with a request and its answer. Four source addresses, else the kernel runs out of ports."""
    count, workers, size = IN_TURN, 4, 200
    no_offloads(run, hosts.right)
    server = serve(hosts.left, LEFT)
    sources = [f"10.99.0.{number}" for number in range(11, 11 + workers)]
    for source in sources:
        hosts.right.ip("addr", "add", f"{source}/24", "dev", "wire")

    def some(source):
        data = os.urandom(size)
        with inside(hosts.right):
            for _ in range(count // workers):
                with socket.socket() as sock:
                    sock.settimeout(patience.seconds(120))
                    sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
                    sock.bind((source, 0))
                    sock.connect((LEFT, PORT))
                    sock.sendall(data)
                    sock.shutdown(socket.SHUT_WR)
                    assert to_the_end(sock) == data

    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(some, source) for source in sources]:
            done.result()
    took = time.monotonic() - start
    assert served(server) == (count, count * size, 0)
    print(f"{count} connections in {took:.0f} s")


@pytest.fixture
def descriptors():
    """As many as the machine lets us have."""
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield most
    resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))


def test_many_at_once(run, descriptors, hosts, serve):
    """All open at the same time, and each has sent before the first one reads."""
    count, size = AT_ONCE, 20_000
    limits.needs_descriptors(count + 100)
    no_offloads(run, hosts.right)
    server = serve(hosts.left, LEFT)
    data = os.urandom(size)
    start = time.monotonic()
    with contextlib.ExitStack() as stack, inside(hosts.right):
        sockets = []
        for _ in range(count):
            sock = stack.enter_context(socket.socket())
            sock.settimeout(patience.seconds(120))
            sock.connect((LEFT, PORT))
            sockets.append(sock)
        for sock in sockets:
            sock.sendall(data)
        with open("/proc/thread-self/net/sockstat", encoding="ascii") as file:
            assert f"TCP: inuse {count} " in file.read()
        for sock in sockets:
            sock.shutdown(socket.SHUT_WR)
            assert to_the_end(sock) == data
    took = time.monotonic() - start
    assert served(server) == (count, count * size, 0)
    print(f"{count} connections at once, {size} bytes there and back each: {took:.1f} s")
