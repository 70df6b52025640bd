# SPDX-License-Identifier: BSD-2-Clause
"""What the log says of calls on sockets: at debug of those that carry no bytes, at fine of the others and of waits, at finer by which way
bytes went. All of it in libvma's form."""

import re
import sys

import pytest

from lib import vmastats
from lib.runner import open_input

PROGRAM = """
import select, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
a = socket.create_connection(listener.getsockname())
b, _ = listener.accept()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("127.0.0.1", 0))

def turn():
    a.sendall(b"x" * 64)
    b.recv(64)
    b.send(b"y")
    a.recv(1)
    u.sendto(b"d" * 32, u.getsockname())
    u.recvfrom(64)

for _ in range(20):
    turn()
a.setblocking(False)
try:
    a.recv(7)
    raise SystemExit(1)
except BlockingIOError:
    pass
a.setblocking(True)
waits = select.epoll()
waits.register(a, select.EPOLLIN)
b.send(b"z")
assert waits.poll(600) and select.select([a], [], [], 600)[0] and a.recv(1) == b"z"
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    turn()
a.getpeername()
a.shutdown(socket.SHUT_WR)
a.close()
"""
NO_BYTES = [rf"DEBUG: ENTER: ({call})\(" for call in (
    "socket", "bind", "listen", "connect", "accept", "setsockopt", "getsockname", "getpeername", "shutdown", "close", "fcntl|ioctl",
    "epoll_create", "epoll_ctl")] + [r"DEBUG: EXIT: accept\(\) returned with \d+", r"DEBUG: EXIT: close\(\) returned with 0"]
BYTES = [r"FINE: ENTER: send\(fd=\d+, nbytes=64, flags=0\)", r"FINE: EXIT: send\(\) returned with 64",
         r"FINE: ENTER: recv\(fd=\d+, nbytes=7, flags=0\)", r"FINE: EXIT: recv\(\) failed \(errno=11 Resource temporarily unavailable\)",
         r"FINE: ENTER: sendto\(fd=\d+, nbytes=32,", r"FINE: ENTER: epoll_wait\(epfd=\d+, maxevents=\d+, timeout=\(600000 milli-sec\)\)",
         r"FINE: ENTER: select\(nfds=\d+, timeout=\(600000 milli-sec\)\)"]
WAYS = [r"FINER: fd=\d+: Tx 64 bytes of TCP by the kernel", r"FINER: fd=\d+: Tx 64 bytes of TCP by shared memory",
        r"FINER: fd=\d+: Rx 64 bytes of TCP by shared memory", r"FINER: fd=\d+: Tx 32 bytes of UDP by shared memory",
        r"FINER: fd=\d+: Rx 32 bytes of UDP by shared memory"]


def missing(log, patterns):
    return [one for one in patterns if not any(re.search(" VMA " + one, line) for line in log.lines)]


@pytest.mark.parametrize("level, there", [("info", []), ("debug", NO_BYTES), ("fine", NO_BYTES + BYTES), ("finer", NO_BYTES + BYTES + WAYS)])
def test_levels(run, level, there):
    with open_input() as stdin:
        proc = run.start("program", [sys.executable, "-c", PROGRAM], vma=True, stdin=stdin,
                         env={"VMA_TRACELEVEL": level, "VMA_LIFT_AFTER": "8"})
        proc.wait_output("ready")
        if level == "finer":
            proc.wait_log(lambda log: missing(log, WAYS) == [], "bytes of all ways")
    log = proc.ok().log()
    everything = NO_BYTES + BYTES + WAYS
    assert missing(log, everything) == [one for one in everything if one not in there]


def test_level_of_a_process_that_runs(run):
    """vma_stats raises it, and lowers it again."""
    with open_input() as stdin:
        proc = run.start("program", [sys.executable, "-c", PROGRAM], vma=True, stdin=stdin,
                         env={"VMA_TRACELEVEL": "info", "VMA_LIFT_AFTER": "8"})
        proc.wait_output("ready")
        assert missing(proc.log(), BYTES) == BYTES
        vmastats.tool(run, "-p", proc.pid, "-l", "finer", "-c", 1)
        proc.wait_log(lambda log: missing(log, WAYS[1:]) == [], "the ways of its bytes")
        vmastats.tool(run, "-p", proc.pid, "-l", "info", "-c", 1)

        def is_silent():
            before = len(proc.log().lines)
            vmastats.wait_for(run, proc, lambda one: True, "counters")
            return len(proc.log().lines) == before
        run.wait_until(is_silent, "no more lines", proc=proc)
    proc.ok()
