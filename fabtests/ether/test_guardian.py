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

from lib import build
from lib.wire import LEFT, LEFT6, PATIENCE, RIGHT, RIGHT6, Asked, inside, xdp_of

PORT = 7000
FAMILIES = [(socket.AF_INET, LEFT, RIGHT), (socket.AF_INET6, LEFT6, RIGHT6)]
IDS = ["ipv4", "ipv6"]
MAGIC = 0x564D4101
HELLO, ADD, REMOVE, FORGET = 1, 2, 3, 4

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


class Vmad:
    """A running vmad of its own path."""

    def __init__(self, run, *prefix):
        self.path = run.work / "vmad.sock"
        self._run = run
        self.proc = run.start("vmad", [*prefix, build.build_dir() / "vmad", "--console", "--verbose", "5",
                                        "--agent-socket", "", "--socket", self.path])
        self.says("vmad listens at")

    def says(self, text: str, count: int = 1):
        self._run.wait_until(lambda: self.proc.stdout().count(text) >= count, f"vmad to say: {text}", PATIENCE, self.proc)

    def connect(self):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(str(self.path))  # waits while others are in the queue, if there is no time-out
        sock.settimeout(PATIENCE)
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
            listener.settimeout(PATIENCE)
            super().__init__(run, wire.left, "client", sys.executable, "-c", CLIENT, right, PORT,
                             env={**env, "LD_PRELOAD": build.preload(), "VMA_ETHERNET": "wire"})
            self.peer, _ = listener.accept()
        self.peer.settimeout(PATIENCE)
        self._echo_until(lambda: vmad.proc.stdout().count("process"), "vmad to know the connection")
        self.say("silent")
        self._echo_until(self.proc.stdout, "silence")
        assert self.next_line() == "silent"

    def _echo_until(self, condition, what):
        def echoed():
            if select.select([self.peer], [], [], 0.01)[0]:
                self.peer.sendall(self.peer.recv(1 << 16))
            return condition()
        self._run.wait_until(echoed, what, PATIENCE, self.proc)

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
                           netns=wire.left.file, env=env)
        peer, _ = listener.accept()
    peer.settimeout(PATIENCE)
    assert peer.recv(100, socket.MSG_WAITALL) == bytes(i * 7 & 255 for i in range(100))
    assert peer.recv(1) == b""  # it has shut its half
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # nothing is left to be said
    vmad.says("process")
    killed(client)
    vmad.says("resets 1 connections")
    broken = select.poll()
    broken.register(peer, select.POLLERR)
    assert broken.poll(PATIENCE * 1000), "the peer hears nothing"
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
        sock.settimeout(PATIENCE)
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


# ---- vmad itself -------------------------------------------------------------------------------------------------------


def message(call, *, magic=MAGIC, timestamps=0, local=(LEFT, 1), remote=(RIGHT, 2), reserved=0):
    def mapped(address):
        return b"\0" * 10 + b"\xff\xff" + socket.inet_pton(socket.AF_INET, address) if "." in address else socket.inet_pton(
            socket.AF_INET6, address)
    return struct.pack("=IBBHHH16s16sIIII", magic, call, timestamps, local[1], remote[1], reserved, mapped(local[0]),
                       mapped(remote[0]), 1, 2, 3, 4)


def greet(sock, *passed):
    socket.send_fds(sock, [message(HELLO)], [each.fileno() for each in passed])


def is_refused(sock):
    """Whether vmad has hung up."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture
def raw():
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as made:
            yield made
    except PermissionError as error:
        pytest.skip(f"no raw sockets: {error}")


GREETINGS = {"empty": b"\1", "short": message(HELLO)[:-1], "long": message(HELLO) + b"\0", "other": message(HELLO, magic=1),
             "early": message(ADD), "none": message(0), "naked": message(HELLO)}


@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=GREETINGS.keys())
def test_bad_greetings(vmad, raw, greeting):
    with vmad.connect() as sock:
        if greeting == message(HELLO):
            sock.send(greeting)
        else:
            socket.send_fds(sock, [greeting], [raw.fileno()])
        assert is_refused(sock)
    assert vmad.proc.alive()


@pytest.mark.parametrize("bad", ["tcp", "icmp", "file", "many"])
def test_bad_sockets(run, vmad, raw, bad):
    with (socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as icmp,
          open(os.devnull, "rb") as file, vmad.connect() as sock):
        greet(sock, *{"tcp": [tcp], "icmp": [raw, icmp], "file": [file, raw], "many": [tcp] * 100}[bad])
        assert is_refused(sock)
    fds = f"/proc/{vmad.proc.pid}/fd"
    run.wait_until(lambda: not any("socket" in os.readlink(f"{fds}/{fd}") for fd in os.listdir(fds)[6:]), "sockets to be closed")


MESSAGES = {"short": message(ADD)[:-1], "long": message(ADD) + b"\0", "magic": message(ADD, magic=0),
            "again": message(HELLO), "call": message(77), "stamps": message(ADD, timestamps=2),
            "reserved": message(ADD, reserved=1), "port": message(ADD, local=(LEFT, 0)),
            "mixed": message(ADD, remote=(RIGHT6, 2)), "any": message(ADD, remote=("0.0.0.0", 2)),
            "group": message(ADD, remote=("ff02::1", 2), local=(LEFT6, 1))}


@pytest.mark.parametrize("bad", MESSAGES.values(), ids=MESSAGES.keys())
def test_bad_messages(vmad, raw, bad):
    """Whoever sends one is not guarded any more, and nothing is sent in its name."""
    with vmad.connect() as sock:
        greet(sock, raw)
        sock.send(message(ADD))
        vmad.says("process")
        sock.send(bad)
        assert is_refused(sock)
    assert "has died" not in vmad.proc.stdout()


def test_most_connections(run, vmad, raw):
    """65,536 of a process; what is more is said once, and not guarded. What is removed has room."""
    with vmad.connect() as sock:
        greet(sock, raw)
        for port in range(1, 65536):
            sock.send(message(ADD, remote=(LEFT, port)))
        for port in range(1, 12):
            sock.send(message(ADD, remote=(RIGHT, port)))
        run.wait_until(lambda: "more connections than are guarded" in vmad.proc.stderr(), "vmad to be full")
        sock.send(message(REMOVE, remote=(RIGHT, 1)))
        sock.send(message(ADD, remote=(RIGHT, 65535)))
        vmad.says(f"{RIGHT}:65535")
        sock.send(message(FORGET))
    with vmad.connect() as sock:
        greet(sock, raw)
        sock.send(message(ADD, remote=("10.99.0.3", 3)))
        vmad.says("10.99.0.3:3")
        sock.send(message(FORGET))
    assert "has died" not in vmad.proc.stdout()


def test_many_clients(run, vmad, raw):
    """More than it takes: the last are refused, the others are guarded, and there is room again."""
    socks = [vmad.connect() for _ in range(1100)]
    refused = [sock for sock in socks[1024:] if is_refused(sock)]
    assert len(refused) == 76
    greet(socks[0], raw)
    socks[0].send(message(ADD))
    vmad.says("process")
    socks[0].send(message(REMOVE))
    for sock in socks:
        sock.close()
    run.wait_until(lambda: len(os.listdir(f"/proc/{vmad.proc.pid}/fd")) < 20, "vmad to close them", PATIENCE)


def test_second_vmad(run, vmad):
    second = run.start("second", [build.build_dir() / "vmad", "--socket", vmad.path])
    assert second.fails() == 1
    assert "another vmad" in second.stderr()
    vmad.connect().close()


def test_after_a_killed_vmad(run, vmad):
    """What it leaves behind is not in the way."""
    killed(vmad.proc)
    assert vmad.path.exists()
    again = Vmad(run)
    again.connect().close()
    assert again.proc.stop(number=signal.SIGINT) == 0


def test_no_socket_is_overwritten(run):
    path = run.work / "file"
    path.write_text("precious")
    proc = run.start("vmad", [build.build_dir() / "vmad", "--socket", path])
    assert proc.fails() == 1
    assert "no socket" in proc.stderr() and path.read_text() == "precious"


@pytest.mark.parametrize("options, status, says", [
    (["--help"], 0, "usage"), (["--version"], 0, "vmad 0"), (["--wrong"], 2, "unrecognized"), (["more"], 2, "no arguments"),
    (["--socket", "/" + "x" * 200], 1, "bytes"), (["--socket", "/proc/x/y"], 1, "No such")])
def test_options(run, options, status, says):
    proc = run.start("vmad", [build.build_dir() / "vmad", *options])
    proc.may_fail = True
    assert proc.wait() == status
    assert says in proc.output()


def test_another_user(run, vmad):
    """Neither is another user's process guarded by this vmad, nor are our sockets given to another user's."""
    os.chmod(vmad.path, 0o777)
    os.chmod(run.work, 0o755)
    script = "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1]); print(s.recv(1))"
    proc = run.start("other", [build.tool("setpriv"), "--reuid=65534", "--clear-groups", sys.executable, "-c", script,
                               vmad.path])
    proc.ok()
    assert proc.stdout() == "b''\n"
    assert "65534" in vmad.proc.stderr()
