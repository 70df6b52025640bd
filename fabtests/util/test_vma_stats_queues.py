# SPDX-License-Identifier: BSD-2-Clause
"""What vma_stats shows of the completion queues of programs that run with libvma.so: polls, sleeps and what ended them."""

import re
import signal

import pytest

from lib.vmastats import file_of, read, script, tool

PROGRAM = """
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    s = socket.create_connection(listener.getsockname())
    while data := s.recv(4096):
        s.sendall(data)
    os._exit(0)
s, _ = listener.accept()
while True:
    ping(s)
"""


@pytest.fixture
def start(run):
    return lambda **env: script(run, "program", PROGRAM, env=env)


def told(run, proc, is_right):
    """The one queue and its ring, when the internal thread has told of both."""
    def look():
        if not file_of(run, proc).exists():
            return None
        seen = read(run, proc)
        return (seen["cqs"][0], seen["rings"][0]) if seen["cqs"] and seen["rings"] else None
    run.wait_until(lambda: (both := look()) and is_right(*both), "the queue's counts", proc=proc)
    proc.send_signal(signal.SIGSTOP)  # no number changes any more
    return look()


def test_who_polls(run, start):
    proc = start(VMA_RX_POLL="-1")
    queue, ring = told(run, proc, lambda queue, _: queue["polls"] >= queue["poll_hits"] > 0 and queue["most_drained"] >= 1)
    assert queue["name"] == ring["name"] == "local"
    assert queue["dropped"] == queue["frames"] == queue["buffer_pool"] == 0
    view = tool(run, "-F", "-p", proc.pid, "-v", 3, "-c", 1)
    assert re.search(r"\tCQ=\[0\]\nPackets dropped:     0    \nPackets queue len:   0\nDrained max:         \d+\nBuffer pool size:    0\n", view)
    assert "BUFFER_POOL" not in view
    proc.kill()


def test_who_sleeps(run, start):
    """Messages end its sleeps, by an interrupt of the device's kind, which is a peer's bell. How many is luck: one that is there already
    needs none."""
    proc = start(VMA_RX_POLL="0", VMA_RX_POLL_INIT="0")
    _, ring = told(run, proc, lambda _, ring: ring["interrupts_requested"] >= ring["interrupts_received"] > 0)
    asked, received = ring["interrupts_requested"], ring["interrupts_received"]
    assert f"\nInterrupts:          {asked} / {received} [requests/received]    \n" in tool(run, "-F", "-p", proc.pid, "-v", 3, "-c", 1)
    proc.kill()
