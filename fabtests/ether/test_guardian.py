# SPDX-License-Identifier: BSD-2-Clause
"""vmad: the silent peer of a process that dies hears of it. The peers are the kernel's sockets on the right, without keep-alive."""

import contextlib
import os
import select
import signal
import socket
import struct
import sys

import pytest

from lib import build
from lib.wire import LEFT, LEFT6, PATIENCE, RIGHT, RIGHT6, Asked, inside, xdp_of

PORT = 7000
FAMILIES = [(socket.AF_INET, LEFT, RIGHT), (socket.AF_INET6, LEFT6, RIGHT6)]
IDS = ["ipv4", "ipv6"]
MAGIC = 0x564D4101
HELLO, ADD, REMOVE, FORGET = 1, 2, 3, 4

# Connects, is echoed until it is on the port, says so, and is silent: until a line comes, then it closes.
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as sock:
    for _ in range(200):
        sock.sendall(b"x" * 100)
        assert len(sock.recv(100, socket.MSG_WAITALL)) == 100
    print("silent", flush=True)
    if sys.stdin.readline() == "fork\\n":
        import os
        if os.fork() == 0:
            os.close(sock.detach())
            print("child", flush=True)
            sys.stdin.readline()
            os._exit(0)
        sys.stdin.readline()
"""


class Vmad:
    """A running vmad of its own path."""

    def __init__(self, run, *options):
        self.path = run.work / "vmad.sock"
        self._run = run
        self.proc = run.start("vmad", [build.build_dir() / "vmad", "--verbose", "--socket", self.path, *options])
        self.says("vmad listens at")

    def says(self, text: str, count: int = 1):
        self._run.wait_until(lambda: self.proc.stdout().count(text) >= count, f"vmad to say: {text}", PATIENCE, self.proc)

    def connect(self):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(PATIENCE)
        sock.connect(str(self.path))
        return sock


@pytest.fixture
def vmad(run):
    started = Vmad(run)
    yield started
    if started.proc.alive():
        assert started.proc.stop() == 0
        assert not started.path.exists()


@pytest.fixture
def env(run):
    return {"FI_PROVIDER_PATH": str(build.provider_dir()), "FI_LOG_LEVEL": "warn", "IPATH_NO_BACKTRACE": "1",
            "FI_VMA_GUARDIAN": str(run.work / "vmad.sock")}


@pytest.fixture
def wire(run, hosts):
    """The hosts, with checksums in the frames that the kernel sends: over veth it leaves them out."""
    for host in hosts.left, hosts.right:
        run.run("ethtool", [build.tool("ethtool"), "-K", "wire", "tx", "off"], preexec=host.enter)
    return hosts


@pytest.fixture
def listen(run, env, wire):
    """listen(address): our echo server on the left, a libfabric program."""
    servers = []

    def started(address):
        server = Asked(run, wire.left, "server", build.program("ether/programs/stream_echo"), "fd", "listen", address, PORT,
                       env=env)
        servers.append(server)
        assert server.next_line() == "listening"
        return server

    yield started
    for server in servers:
        server.close()
        if server.proc.alive():
            server.proc.ok()


class Preloaded(Asked):
    """A Python program with libvma.so on the left; `peer` is the kernel's end of its connection, on the right."""

    def __init__(self, run, wire, env, family, right):
        with inside(wire.right):
            listener = socket.create_server((right, PORT), family=family)
        with listener:
            listener.settimeout(PATIENCE)
            super().__init__(run, wire.left, "client", sys.executable, "-c", CLIENT, right, PORT, env={
                **env, "LD_PRELOAD": build.preload(), "VMA_ETHERNET": "wire", "VMA_TRACELEVEL": "DEBUG"})
            self.peer, self.address = listener.accept()
        self.peer.settimeout(PATIENCE)
        left = 200 * 100
        while left:
            data = self.peer.recv(1 << 16)
            left -= len(data)
            self.peer.sendall(data)
        assert self.next_line() == "silent"

    def say(self, line):
        os.write(self._write, f"{line}\n".encode())


def connected(wire, family, left):
    with inside(wire.right):
        sock = socket.socket(family, socket.SOCK_STREAM)
    sock.settimeout(PATIENCE)
    sock.connect((left, PORT))
    sock.sendall(b"x")
    assert sock.recv(1) == b"x"
    return sock


def hears_a_reset(sock):
    with sock, pytest.raises(ConnectionResetError):
        sock.recv(1)


def killed(proc, number=signal.SIGKILL):
    proc.may_fail = True
    proc.send_signal(number)
    proc.wait()


# ---- libfabric programs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=IDS)
def test_killed_server(wire, vmad, listen, family, left, right):
    """Each of its peers is reset, those that have been silent since the beginning and those that have not."""
    server = listen(left)
    socks = [connected(wire, family, left) for _ in range(20)]
    for sock in socks[:10]:
        sock.sendall(b"y" * 100_000)
        got = 0
        while got < 100_000:
            got += len(sock.recv(1 << 16))
    vmad.says("process", 20)
    killed(server.proc)
    for sock in socks:
        hears_a_reset(sock)
    vmad.says("resets 20 connections")


def test_killed_client(run, wire, vmad, env):
    """A connection that the program has opened; its peer never says anything."""
    with inside(wire.right):
        listener = socket.create_server((RIGHT, PORT))
    with listener:
        listener.settimeout(PATIENCE)
        client = run.start("client", [build.program("ether/programs/stream_echo"), "fd", "connect", RIGHT, PORT, 100, 1],
                           preexec=wire.left.enter, env=env)
        peer, _ = listener.accept()
    peer.settimeout(PATIENCE)
    assert peer.recv(100, socket.MSG_WAITALL) == bytes(i * 7 & 255 for i in range(100))
    assert peer.recv(1) == b""  # it has shut its half
    vmad.says("process")
    killed(client)
    vmad.says("resets 1 connections")
    broken = select.poll()
    broken.register(peer, select.POLLERR)
    assert broken.poll(PATIENCE * 1000), "the peer hears nothing"
    hears_a_reset(peer)


def test_no_window_is_left(wire, vmad, listen):
    """A peer that has sent as much as it may: the server doesn't read any more, as it is stopped."""
    server = listen(LEFT)
    sock = connected(wire, socket.AF_INET, LEFT)
    vmad.says("process")
    server.proc.send_signal(signal.SIGSTOP)
    sock.sendall(b"y" * 1000)
    killed(server.proc)
    hears_a_reset(sock)


def test_orderly_ends_are_left_alone(run, wire, vmad, listen):
    server = listen(LEFT)
    with connected(wire, socket.AF_INET, LEFT) as sock:
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""
    with connected(wire, socket.AF_INET, LEFT) as sock:
        sock.shutdown(socket.SHUT_WR)
        server.close()
        assert sock.recv(1) == b""
    server.proc.ok()
    assert "has died" not in vmad.proc.stdout()


def test_without_vmad(run, wire, listen):
    """Nothing but that: the kernel resets a peer that says something."""
    server = listen(LEFT)
    sock = connected(wire, socket.AF_INET, LEFT)
    killed(server.proc)
    run.wait_until(lambda: not xdp_of(wire.left), "the steering program to be gone", PATIENCE)
    sock.sendall(b"y")
    hears_a_reset(sock)
    assert "guardian" not in server.proc.stderr()


def test_switched_off(run, wire, vmad, env):
    server = Asked(run, wire.left, "server", build.program("ether/programs/stream_echo"), "fd", "listen", LEFT, PORT,
                   env={**env, "FI_VMA_GUARDIAN": ""})
    assert server.next_line() == "listening"
    with connected(wire, socket.AF_INET, LEFT):
        pass
    server.close()
    server.proc.ok()
    assert "process" not in vmad.proc.stdout()


def test_vmad_dies_first(wire, vmad, listen):
    server = listen(LEFT)
    with connected(wire, socket.AF_INET, LEFT) as sock:
        vmad.says("process")
        killed(vmad.proc)
        with connected(wire, socket.AF_INET, LEFT):
            sock.sendall(b"z")
            assert sock.recv(1) == b"z"
    server.close()
    server.proc.ok()


# ---- preloaded programs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=IDS)
def test_killed_preloaded(run, wire, vmad, env, family, left, right):
    client = Preloaded(run, wire, env, family, right)
    vmad.says("process")
    killed(client.proc)
    hears_a_reset(client.peer)


def test_crashed_preloaded(run, wire, vmad, env):
    client = Preloaded(run, wire, env, socket.AF_INET, RIGHT)
    vmad.says("process")
    killed(client.proc, signal.SIGQUIT)
    hears_a_reset(client.peer)


def test_orderly_preloaded(run, wire, vmad, env):
    client = Preloaded(run, wire, env, socket.AF_INET, RIGHT)
    vmad.says("process")
    client.say("close")
    assert client.peer.recv(1) == b""
    client.peer.close()
    client.proc.ok()
    assert "has died" not in vmad.proc.stdout()


def test_landed_and_killed(run, wire, vmad, env):
    """A fork lands the connection: it is the kernel's, who ends it when the last process is dead. The child lives on."""
    client = Preloaded(run, wire, env, socket.AF_INET, RIGHT)
    vmad.says("process")
    client.say("fork")
    assert client.next_line() == "child"
    vmad.says("is over")
    killed(client.proc)
    with client.peer as peer:
        try:
            assert peer.recv(1) == b""
        except ConnectionResetError:
            pass
    client.say("end")
