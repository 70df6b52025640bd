# SPDX-License-Identifier: BSD-2-Clause
"""A container is killed, or stopped for a while: its peer hears what it would hear without the library, and no byte is lost."""

import os
import signal

import pytest

from lib import build
from lib.machine import version
from lib.talk import INTRODUCED, PORT, PYTHON, serve

PROGRAM = build.TOP / "fabtests/sockets/programs/stopped.py"
SERVER = "10.88.0.10"


@pytest.fixture
def ends(run, vmad, podman, feed):
    """ends(what, vma): a server and a client, accelerated if they have the library, the client at the place where it waits for a word."""
    def start(what, vma):
        server = serve(podman, "--ip", SERVER, vma=vma)
        client = podman.start("client", [PYTHON, "-B", PROGRAM, SERVER, PORT, what], stdin=feed.file, vma=vma)
        for proc in (server, client) if vma else ():
            proc.wait_log(lambda log: log.accelerated(PORT), f"{proc.name} to be accelerated")
            assert any(INTRODUCED in line for line in proc.log().lines)
        feed.go_on()
        client.wait_output("goes on")
        return server, client
    return start


@pytest.mark.parametrize("vma", [True, False], ids=["vma", "kernel"])
def test_killed(podman, ends, feed, vma):
    server, client = ends("idle", vma)
    feed.go_on()
    client.wait_output("waits")
    podman.do("kill", "--signal", "KILL", "server")
    assert server.fails() == 137
    client.ok()
    assert "heard 0 bytes\n" in client.stdout()


@pytest.mark.parametrize("vma", [True, False], ids=["vma", "kernel"])
def test_killed_with_unread_bytes(podman, ends, feed, vma):
    server, client = ends("unread", vma)
    podman.do("pause", "server")
    feed.go_on()
    client.wait_output("waits")
    os.kill(podman.process("server"), signal.SIGKILL)
    if version() == 1:  # who is stopped by those of version 2 ends at once
        podman.do("unpause", "server")
    assert server.fails() == 137
    client.ok()
    # The one difference: the bytes lie in memory, and the kernel, which would reset, has none (doc/stream-protocol.md).
    assert f"heard {'0 bytes' if vma else 'ConnectionResetError'}\n" in client.stdout()


@pytest.mark.parametrize("vma", [True, False], ids=["vma", "kernel"])
def test_stopped_for_a_while(podman, ends, feed, vma):
    server, client = ends("poll", vma)
    podman.do("pause", "server")
    feed.go_on()
    client.wait_output("full")
    podman.do("unpause", "server")
    feed.go_on()
    client.wait_output("all came back")
    client.ok()
    server.ok()
