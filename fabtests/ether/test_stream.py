# SPDX-License-Identifier: BSD-2-Clause
"""FI_EP_VMA_STREAM through libfabric.so at one end of a wire, the kernel's TCP at the other, and streams with each other."""

import hashlib
import os
import socket
import threading

import pytest

from lib import build, patience, tcp
from lib.wire import LEFT, LEFT6, RIGHT, RIGHT6, Asked, inside, xdp_of

PORT = 7000
FAMILIES = [(socket.AF_INET, LEFT, RIGHT), (socket.AF_INET6, LEFT6, RIGHT6)]
IDS = ["ipv4", "ipv6"]
WAITS = ["spin", "fd"]


def program(*argv):
    return [build.program("ether/programs/stream_echo"), *argv]


@pytest.fixture
def env():
    return {"FI_PROVIDER_PATH": str(build.provider_dir()), "FI_LOG_LEVEL": "warn", "IPATH_NO_BACKTRACE": "1"}


@pytest.fixture
def wire(run, hosts):
    """The hosts, with checksums in the frames that the kernel sends: over veth it leaves them out."""
    for host in hosts.left, hosts.right:
        run.run("ethtool", [build.tool("ethtool"), "-K", "wire", "tx", "off"], netns=host.file)
    return hosts


@pytest.fixture
def listen(run, env):
    """listen(host, address, wait): our echo server. Its end is orderly, and says what it has seen."""
    servers = []

    def started(host, address, wait="fd"):
        server = Asked(run, host, "server", *program(wait, "listen", address, PORT), env=env)
        servers.append(server)
        assert server.next_line() == "listening"
        return server

    yield started
    for server in servers:
        server.close()
        if server.proc.alive():
            server.proc.ok()


@pytest.fixture
def kernel_echo(wire):
    """kernel_echo(family, address, count): so many connections are echoed by the kernel's sockets on the right."""
    threads = []

    def started(family, address, count):
        with inside(wire.right):
            listener = socket.create_server((address, PORT), family=family, backlog=1024)
        listener.settimeout(patience.seconds())

        def one(sock):
            with sock:
                sock.settimeout(patience.seconds())
                while data := sock.recv(1 << 16):
                    sock.sendall(data)

        def serve():
            with listener:
                for _ in range(count):
                    threads.append(threading.Thread(target=one, args=(listener.accept()[0],)))
                    threads[-1].start()

        threads.append(threading.Thread(target=serve))
        threads[-1].start()

    yield started
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("family, left, right", FAMILIES, ids=IDS)
def test_kernel_connects(wire, listen, family, left, right, wait):
    del family, right
    server = listen(wire.left, left, wait)
    sizes = [0, 1, 1448, 4 << 20]
    for size in sizes:
        data = os.urandom(size)
        assert tcp.echoed(wire.right, left, data) == hashlib.sha256(data).digest()
    server.close()
    server.proc.ok()
    assert server.next_line() == f"{len(sizes)} connections, {sum(sizes)} bytes"
    assert not xdp_of(wire.left)


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("family, left, right", FAMILIES, ids=IDS)
def test_we_connect(run, env, wire, kernel_echo, family, left, right, wait):
    kernel_echo(family, right, 20)
    client = run.run("client", program(wait, "connect", right, PORT, 500_000, 20), netns=wire.left.file, env=env)
    assert client.stdout() == "ok\n"


def test_streams_with_each_other(run, env, wire, listen):
    """Frames without the kernel at either end; the port's address is the one that is meant by any."""
    server = listen(wire.left, "0.0.0.0")
    client = run.run("client", program("fd", "connect", LEFT, PORT, 300_000, 50), netns=wire.right.file, env=env)
    assert client.stdout() == "ok\n"
    server.close()
    server.proc.ok()
    assert server.next_line() == "50 connections, 15000000 bytes"


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=IDS)
def test_addresses_that_are_strings(run, env, wire, listen, family, left, right):
    """FI_ADDR_STR, at the server, its endpoints, and the client, which checks the names."""
    del right
    scheme, host = ("fi_sockaddr_in", left) if family == socket.AF_INET else ("fi_sockaddr_in6", f"[{left}]")
    address = f"{scheme}://{host}:{PORT}"
    server = listen(wire.left, address)
    client = run.run("client", program("fd", "connect", address, "-", 300_000, 5), netns=wire.right.file, env=env)
    assert client.stdout() == "ok\n"
    server.close()
    server.proc.ok()
    assert server.next_line() == "5 connections, 1500000 bytes"


def test_the_port_is_reserved(wire, listen):
    """The kernel's sockets can't have a port that is ours, and we none of theirs."""
    listen(wire.left, LEFT)
    with inside(wire.left):
        with socket.socket() as sock, pytest.raises(OSError, match="in use"):
            sock.bind((LEFT, PORT))


def test_the_port_is_taken(run, env, wire):
    with inside(wire.left):
        sock = socket.create_server((LEFT, PORT))
    with sock:
        client = run.start("server", program("fd", "listen", LEFT, PORT), netns=wire.left.file, env=env)
        client.fails()
        assert "Address already in use" in client.stderr()


def test_refused(run, env, wire):
    client = run.start("client", program("fd", "connect", RIGHT, PORT, 1, 1), netns=wire.left.file, env=env)
    client.fails()
    assert "Connection refused" in client.stderr()


@pytest.mark.parametrize("nobody", ["10.99.0.77", "fd99::77"], ids=IDS)
def test_nobody_there(run, env, wire, nobody):
    """The neighbour does not answer the kernel: connecting fails as the kernel's would."""
    client = run.start("client", program("fd", "connect", nobody, PORT, 1, 1), netns=wire.left.file, env=env)
    client.fails()
    assert "No route to host" in client.stderr()


def test_killed(run, wire, listen):
    """Nothing is left of a server that is killed: the kernel resets what its peers send then."""
    server = listen(wire.left, LEFT)
    with inside(wire.right):
        sock = socket.create_connection((LEFT, PORT), timeout=patience.seconds())
    with sock:
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"
        server.proc.kill()
        run.wait_until(lambda: not xdp_of(wire.left), "the steering program to be gone")
        with pytest.raises(ConnectionResetError):
            sock.sendall(b"y")
            sock.recv(1)
