# SPDX-License-Identifier: BSD-2-Clause
"""No byte lost, doubled or out of its place where that has happened once: bytes that are sent again when the kernel has no room for
them, bytes that a started program moves, bytes that a call moves which nobody thought of. (programs/conserve)"""

import itertools
import sys

import pytest

from lib import pairing, peers

PROGRAM = "sockets/programs/conserve/conserve"
BUFFERS = {"small": (4096, 4096), "default": (0, 0), "small send": (16384, 0), "small receive": (0, 4096)}
BACK = ("fork", "pin", "ask")
ENDS = ("shutdown", "close", "exit", "kill", "stop-kill", "stop-continue")
SOME = (pairing.KERNEL, pairing.VMA_DEFAULT, pairing.VMA_LATENCY)


def unread(run, pair, back, end, buffers, pace=0):
    server, client = peers.start(run, pair, PROGRAM, "unread", back, end, *BUFFERS[buffers], pace, offload=True)
    server.may_fail = client.may_fail = True  # what each ends with is looked at here
    server.ok()
    assert client.wait() == (-9 if "kill" in end else 0), client.output()
    print(server.stdout())


@pytest.mark.pairs(pairing.VMA_DEFAULT)
@pytest.mark.parametrize("back, end, buffers", itertools.product(BACK, ENDS, BUFFERS))
def test_unread_bytes(run, pair, back, end, buffers):
    unread(run, pair, back, end, buffers)


@pytest.mark.pairs(pairing.KERNEL)
@pytest.mark.parametrize("back, end", itertools.product(BACK, ENDS))
def test_unread_bytes_of_the_kernel(run, pair, back, end):
    unread(run, pair, back, end, "small")


@pytest.mark.pairs(pairing.KERNEL, pairing.VMA_DEFAULT)
@pytest.mark.parametrize("back, end", itertools.product(BACK, ("kill", "stop-kill", "close")))
def test_unread_bytes_at_a_limited_rate(run, pair, back, end):
    """The kernel of a killed process goes on sending, slowly."""
    unread(run, pair, back, end, "small", pace=200000)


def both(run, pair, *args):
    peers.run_both(run, pair, PROGRAM, *args)


@pytest.mark.pairs(*SOME)
@pytest.mark.parametrize("role", ["writes", "reads", "streams"])
@pytest.mark.parametrize("way", ["posix_spawn", "vfork", "fork"])
def test_handed_to_a_program(run, pair, way, role):
    both(run, pair, "handed", way, role)


CALLS = ["mmsg", "trunc", "truncnull", "zerocopy", "zcrecv", "sendfile", "splice", "pwritev2", "dprintf", "stdio", "peekall",
         "tfo", "tfomsg", "tfommsg", "tfoconnect"]


@pytest.mark.pairs(*SOME)
@pytest.mark.parametrize("call", CALLS)
def test_moved_by_a_call(run, pair, call):
    both(run, pair, "uncounted", call)


SUBPROCESS = """
import socket, subprocess, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
sock, _ = listener.accept()
for i in range(40):
    for j in range(10):
        sock.sendall(b"%8d" % (i * 10 + j))
        assert sock.recv(8, socket.MSG_WAITALL) == b"%8d" % (i * 10 + j)
    subprocess.run(["/bin/echo", "line", "%2d" % i], stdout=sock, check=True)
"""

ASKER = """
import os, socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sock.settimeout(60 * float(os.environ["FABTESTS_PATIENCE"]))
for i in range(40):
    for j in range(10):
        assert sock.recv(8, socket.MSG_WAITALL) == b"%8d" % (i * 10 + j), (i, j)
        sock.sendall(b"%8d" % (i * 10 + j))
    assert sock.recv(8, socket.MSG_WAITALL) == b"line %2d\\n" % i, i
assert sock.recv(8) == b""
"""


@pytest.mark.pairs(*SOME)
def test_subprocess_of_python(run, pair):
    """subprocess.run(stdout=sock), and the server goes on."""
    server = run.start("server", [sys.executable, "-c", SUBPROCESS], vma=pair.server, mode=pair.mode)
    run.wait_until(lambda: server.stdout().endswith("\n"), "the port", proc=server)
    client = run.start("client", [sys.executable, "-c", ASKER, server.stdout().strip()], vma=pair.client, mode=pair.mode)
    client.ok()
    server.ok()
