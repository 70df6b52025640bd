# SPDX-License-Identifier: BSD-2-Clause
"""vmad: the silent peer of a process that dies hears of it. The peers are the kernel's sockets on the right, without keep-alive."""

import errno
import os
import select
import signal
import socket
import struct
import sys

import pytest

from lib import build, patience
from lib.guardian import Vmad, killed
from lib.wire import LEFT, LEFT6, RIGHT, RIGHT6, Asked, inside, xdp_of

PORT = 7000
FAMILIES = [(socket.AF_INET, LEFT, RIGHT), (socket.AF_INET6, LEFT6, RIGHT6)]
IDS = ["ipv4", "ipv6"]


# Connects, and is echoed until a line comes: then it is silent, says so, and does what the next line says.
CLIENT = """
import os, select, socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as sock:
    while not select.select([sys.stdin], [], [], 0)[0]:
        sock.sendall(b"x" * 100)
        assert len(sock.recv(100, socket.MSG_WAITALL)) == 100
    sys.stdin.readline()
    print("silent", flush=True)
    told = sys.stdin.readline()
    if told == "recv\\n":
        try:
            print(sock.recv(1), flush=True)
        except ConnectionResetError:
            print("reset", flush=True)
    if told == "fork\\n":
        if os.fork() == 0:
            sock.close()
            print("child", flush=True)
            sys.stdin.readline()
            os._exit(0)
        sys.stdin.readline()
"""


@pytest.fixture
def env(run):
    return {"FI_PROVIDER_PATH": str(build.provider_dir()), "FI_LOG_LEVEL": "warn", "IPATH_NO_BACKTRACE": "1",
            "FI_VMA_GUARDIAN": str(run.work / "vmad.sock")}


@pytest.fixture
def wire(run, hosts):
    """The hosts, with checksums in the frames that the kernel sends: over veth it leaves them out."""
    for host in hosts.left, hosts.right:
        run.run("ethtool", [build.tool("ethtool"), "-K", "wire", "tx", "off"], netns=host.file)
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
    """A Python program with libvma.so on the left, silent since vmad knows its connection. `peer` is the kernel's end of that."""

    def __init__(self, run, wire, vmad, env, family, right):
        with inside(wire.right):
            listener = socket.create_server((right, PORT), family=family)
        with listener:
            listener.settimeout(patience.seconds())
            super().__init__(run, wire.left, "client", sys.executable, "-c", CLIENT, right, PORT,
                             env={**env, "LD_PRELOAD": build.preload(), "VMA_ETHERNET": "wire"})
            self.peer, _ = listener.accept()
        self.peer.settimeout(patience.seconds())
        self._echo_until(lambda: vmad.proc.stdout().count("process"), "vmad to know the connection")
        self.say("silent")
        self._echo_until(self.proc.stdout, "silence")
        assert self.next_line() == "silent"

    def _echo_until(self, condition, what):
        def echoed():
            if select.select([self.peer], [], [], 0.01)[0]:
                self.peer.sendall(self.peer.recv(1 << 16))
            return condition()
        self._run.wait_until(echoed, what, proc=self.proc)

    def say(self, line):
        os.write(self._write, f"{line}\n".encode())


def connected(wire, family, left):
    with inside(wire.right):
        sock = socket.socket(family, socket.SOCK_STREAM)
    sock.settimeout(patience.seconds())
    sock.connect((left, PORT))
    sock.sendall(b"x")
    assert sock.recv(1) == b"x"
    return sock


def hears_a_reset(sock):
    with sock, pytest.raises(ConnectionResetError):
        sock.recv(1)


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
        listener.settimeout(patience.seconds())
        client = run.start("client", [build.program("ether/programs/stream_echo"), "fd", "connect", RIGHT, PORT, 100, 1],
                           netns=wire.left.file, env=env)
        peer, _ = listener.accept()
    peer.settimeout(patience.seconds())
    assert peer.recv(100, socket.MSG_WAITALL) == bytes(i * 7 & 255 for i in range(100))
    assert peer.recv(1) == b""  # it has shut its half
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # nothing is left to be said
    vmad.says("process")
    killed(client)
    vmad.says("resets 1 connections")
    broken = select.poll()
    broken.register(peer, select.POLLERR)
    assert broken.poll(patience.seconds() * 1000), "the peer hears nothing"
    with peer:
        assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.EPIPE  # a reset after a FIN


def stray(host, source, target, seq):
    """A bare ACK that looks as if it came from the host's end of a connection."""
    tcp = struct.pack("!HHIIBBHHH", source[1], target[1], seq, 0, 5 << 4, 0x10, 1000, 0, 0)
    pseudo = socket.inet_aton(source[0]) + socket.inet_aton(target[0]) + struct.pack("!HH", socket.IPPROTO_TCP, len(tcp))
    total = sum(struct.unpack(f"!{len(pseudo + tcp) // 2}H", pseudo + tcp))
    total = (total >> 16) + (total & 0xFFFF)
    with inside(host):
        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    with sock:
        sock.bind((source[0], 0))
        sock.sendto(tcp[:16] + struct.pack("!H", ~((total >> 16) + total) & 0xFFFF) + tcp[18:], (target[0], 0))


def test_the_peer_answers_rarely(wire, vmad, listen):
    """It has just answered another segment outside of its window, and so leaves the first of vmad's unanswered."""
    server = listen(LEFT)
    sock = connected(wire, socket.AF_INET, LEFT)
    vmad.says("process")
    server.proc.send_signal(signal.SIGSTOP)
    for seq in 0, 1 << 31:  # one of them is outside
        stray(wire.left, (LEFT, PORT), sock.getsockname(), seq)
    killed(server.proc)
    hears_a_reset(sock)


def test_the_addresses_are_used_again(wire, vmad, listen):
    """By a connection of another process, while vmad still sends for that of the dead one."""
    first = listen(LEFT)
    sock = connected(wire, socket.AF_INET, LEFT)
    name = sock.getsockname()
    vmad.says("process")
    killed(first.proc)
    hears_a_reset(sock)
    listen(LEFT)
    with inside(wire.right):
        sock = socket.socket()
    with sock:
        sock.settimeout(patience.seconds())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(name)
        sock.connect((LEFT, PORT))
        while "that was all" not in vmad.proc.stdout():
            sock.sendall(b"x" * 100)
            assert sock.recv(100, socket.MSG_WAITALL) == b"x" * 100
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\1"  # TCP_ESTABLISHED


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
    vmad.says("has left")
    assert "has died" not in vmad.proc.stdout()


def test_without_vmad(run, wire, listen):
    """Nothing but that: the kernel resets a peer that says something."""
    server = listen(LEFT)
    sock = connected(wire, socket.AF_INET, LEFT)
    killed(server.proc)
    run.wait_until(lambda: not xdp_of(wire.left), "the steering program to be gone")
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


def test_stopped_vmad(wire, vmad, listen):
    """Nobody waits for it, and it makes up for it."""
    vmad.proc.send_signal(signal.SIGSTOP)
    server = listen(LEFT)
    socks = [connected(wire, socket.AF_INET, LEFT) for _ in range(50)]
    killed(server.proc)
    vmad.proc.send_signal(signal.SIGCONT)
    for sock in socks:
        hears_a_reset(sock)


def test_vmad_without_rights(run, wire, listen):
    """And in a network of its own, where nothing is."""
    vmad = Vmad(run, build.tool("unshare"), "--net", build.tool("setpriv"), "--bounding-set=-all", "--inh-caps=-all",
                "--no-new-privs")
    server = listen(LEFT)
    sock = connected(wire, socket.AF_INET, LEFT)
    vmad.says("process")
    killed(server.proc)
    hears_a_reset(sock)


# ---- preloaded programs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=IDS)
def test_killed_preloaded(run, wire, vmad, env, family, left, right):
    client = Preloaded(run, wire, vmad, env, family, right)
    killed(client.proc)
    hears_a_reset(client.peer)


def test_crashed_preloaded(run, wire, vmad, env):
    client = Preloaded(run, wire, vmad, env, socket.AF_INET, RIGHT)
    killed(client.proc, signal.SIGQUIT)
    hears_a_reset(client.peer)


def test_orderly_preloaded(run, wire, vmad, env):
    client = Preloaded(run, wire, vmad, env, socket.AF_INET, RIGHT)
    client.say("close")
    assert client.peer.recv(1) == b""
    client.peer.close()
    client.proc.ok()
    vmad.says("has left")
    assert "has died" not in vmad.proc.stdout()


def test_killed_beside_a_port(run, wire, vmad, env):
    """The silent peer is on a port of its own: our stack answers vmad, too, which takes a time stamp."""
    server = Asked(run, wire.right, "server", build.program("ether/programs/stream_echo"), "fd", "listen", RIGHT, PORT, env=env)
    assert server.next_line() == "listening"
    client = Asked(run, wire.left, "client", sys.executable, "-c", CLIENT, RIGHT, PORT, env={
        **env, "LD_PRELOAD": build.preload(), "VMA_ETHERNET": "wire"})
    vmad.says(f"process {client.proc.pid}: ")
    assert client.ask("silent") == "silent"
    killed(server.proc)
    assert client.ask("recv") == "reset"
    client.close()
    client.proc.ok()
    server.close()


def test_landed_and_killed(run, wire, vmad, env):
    """A fork lands the connection: it is the kernel's, who ends it when the last process is dead. The child lives on."""
    client = Preloaded(run, wire, vmad, env, socket.AF_INET, RIGHT)
    client.say("fork")
    assert client.next_line() == "child"
    vmad.says("is over")
    killed(client.proc)
    with client.peer as peer:
        assert peer.recv(1) == b""
    vmad.says("has left")  # although the child lives
    client.say("end")
