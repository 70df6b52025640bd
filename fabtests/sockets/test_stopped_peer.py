# SPDX-License-Identifier: BSD-2-Clause
"""A peer that is stopped takes nothing: whoever waits for room waits, and gets no byte less for it."""

import pathlib
import signal

import pytest

pytestmark = pytest.mark.alone


PROGRAMS = pathlib.Path(__file__).parent / "programs"
PYTHON = "/usr/bin/python3"


@pytest.mark.parametrize("vma", [True, False], ids=["vma", "kernel"])
@pytest.mark.parametrize("way", ["poll", "select", "epoll"])
def test_no_room(run, port, feed, way, vma):
    server = run.start("server", [PYTHON, "-B", PROGRAMS / "users.py", "serve", "127.0.0.1", port], vma=vma, mode="latency").wait_output("ready")
    client = run.start("client", [PYTHON, "-B", PROGRAMS / "stopped.py", "127.0.0.1", port, way], vma=vma, mode="latency", stdin=feed.file)
    for proc in (server, client) if vma else ():
        proc.wait_log(lambda log: log.accelerated(port), f"{proc.name} to be accelerated")
    feed.go_on()
    client.wait_output("goes on")
    server.send_signal(signal.SIGSTOP)
    feed.go_on()
    client.wait_output("full")
    server.send_signal(signal.SIGCONT)
    feed.go_on()
    client.ok()
    server.ok()
    assert "all came back" in client.stdout()
