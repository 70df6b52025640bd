# SPDX-License-Identifier: BSD-2-Clause
"""vmad's own socket: who is served, what is refused, and what is borne of those that speak the protocol badly."""

import os
import signal
import socket
import struct
import sys

import pytest

from lib import build
from lib.guardian import Vmad, killed
from lib.users import only_root
from lib.wire import LEFT, LEFT6, RIGHT, RIGHT6

MAGIC = 0x564D4101
HELLO, ADD, REMOVE, FORGET = 1, 2, 3, 4


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
    run.wait_until(lambda: len(os.listdir(f"/proc/{vmad.proc.pid}/fd")) < 20, "vmad to close them")


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


@only_root
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
