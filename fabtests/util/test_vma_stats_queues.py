# SPDX-License-Identifier: BSD-2-Clause
"""What vma_stats shows of the completion queues of programs that run with libvma.so: polls, sleeps and what ended them."""

import json
import re
import signal
import subprocess

import pytest

from lib import build, patience

PYTHON = "/usr/bin/python3"

PROGRAM = """
import os, signal, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    s = socket.create_connection(listener.getsockname())
    while data := s.recv(4096):
        s.sendall(data)
    os._exit(0)
s, _ = listener.accept()
for _ in range(3000):
    s.sendall(b"x" * 100)
    left = 100
    while left:
        left -= len(s.recv(left))
print("done", flush=True)
signal.pause()
"""


@pytest.fixture
def start(run):
    def started(**env):
        path = run.work / "program.py"
        path.write_text(PROGRAM)
        return run.start("program", [PYTHON, "-u", path], vma=True, env=env).wait_output("done")
    return started


def tool(run, proc, *arguments):
    done = subprocess.run([build.build_dir() / "vma_stats", "-F", "-k", run.log_dir, "-p", str(proc.pid), "-c", "1", *arguments],
                          capture_output=True, text=True, timeout=patience.seconds(), check=True)
    return done.stdout


def told(run, proc):
    """The one queue and its ring, when the internal thread has told of both."""
    def look():
        seen = json.loads(tool(run, proc, "--json"))
        return (seen["cqs"], seen["rings"]) if seen["cqs"] and seen["cqs"][0]["poll_hits"] else None
    run.wait_until(look, "the queue's counts", proc=proc)
    proc.send_signal(signal.SIGSTOP)  # no number changes any more
    (queue,), (ring,) = look()
    return queue, ring


def test_who_polls(run, start):
    proc = start(VMA_RX_POLL="-1")
    queue, ring = told(run, proc)
    assert queue["name"] == ring["name"] == "local"
    assert queue["polls"] >= queue["poll_hits"] > 0 and queue["most_drained"] >= 1
    assert queue["dropped"] == queue["frames"] == queue["buffer_pool"] == 0
    view = tool(run, proc, "-v", "3")
    assert re.search(r"\tCQ=\[0\]\nPackets dropped:     0    \nPackets queue len:   0\nDrained max:         \d+\nBuffer pool size:    0\n", view)
    assert "BUFFER_POOL" not in view
    proc.kill()


def test_who_sleeps(run, start):
    """Messages end its sleeps, by an interrupt of the device's kind, which is a peer's bell. How many is luck: one that is there already
    needs none."""
    proc = start(VMA_RX_POLL="0", VMA_RX_POLL_INIT="0")
    _, ring = told(run, proc)
    asked, received = ring["interrupts_requested"], ring["interrupts_received"]
    assert asked >= received > 0
    assert f"\nInterrupts:          {asked} / {received} [requests/received]    \n" in tool(run, proc, "-v", "3")
    proc.kill()
