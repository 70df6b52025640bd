# SPDX-License-Identifier: BSD-2-Clause
"""Whose memory it is that two containers share, as their control groups say."""

import pathlib

import pytest

from lib.machine import version
from lib.talk import PORT, PYTHON
from lib.users import Input

PROGRAM = pathlib.Path(__file__).parent / "programs/charged.py"
SERVER = "10.88.0.10"
CONNECTIONS = 8
RING = 1 << 18  # VMA_STREAM_RING's default
STAT = "memory/memory.stat" if version() == 1 else "memory.stat"


@pytest.fixture
def other_feed():
    made = Input()
    yield made
    made.close()


@pytest.fixture
def shared(machine, podman):
    """shared(name): bytes of memory with others that the container is charged for, as the kernel has last told: it is some seconds late."""
    def ask(name):
        stat = machine.file(f"/proc/{podman.process(name)}/root/sys/fs/cgroup/{STAT}")
        return next(int(line.split()[1]) for line in stat.read_text(encoding="ascii").splitlines() if line.startswith("shmem "))
    return ask


@pytest.fixture
def ends(run, vmad, podman, feed, other_feed):
    """Both ends, all connections accelerated and nothing in them. Input of the server: `other_feed`."""
    def start(connections, limit, has_all):
        server = podman.start("server", [PYTHON, "-B", PROGRAM, "serve", PORT], "--ip", SERVER, "--memory", "64m",
                              stdin=other_feed.file).wait_output("ready")
        client = podman.start("client", [PYTHON, "-B", PROGRAM, "fill", SERVER, PORT, connections], "--memory", limit, stdin=feed.file)
        for proc in server, client:
            proc.wait_log(has_all, f"the connections of {proc.name} to be accelerated")
        return server, client
    return start


def test_who_sends_is_charged(run, podman, ends, shared, feed, other_feed):
    """Memory is of who touches it first: a connection's ring of who writes into it, and not of who has made it and reads."""
    server, client = ends(CONNECTIONS, "64m", lambda log: log.accelerated(PORT) >= CONNECTIONS)
    before = {}

    def little():
        before.update({name: shared(name) for name in ("server", "client")})
        return all(0 < size < CONNECTIONS * RING // 4 for size in before.values())
    run.wait_until(little, "both to be charged for little")
    feed.go_on()
    client.wait_output("full")

    def by_the_client():
        more = {name: shared(name) - before[name] for name in before}
        return CONNECTIONS * RING * 3 // 4 < more["client"] < CONNECTIONS * RING * 3 // 2 and more["server"] < CONNECTIONS * RING // 4
    run.wait_until(by_the_client, "the client to be charged, and not the server", proc=client)
    other_feed.go_on()
    feed.go_on()
    client.ok()
    run.wait_until(lambda: shared("server") < before["server"], "memory of the connections to be given back", proc=server)
    other_feed.go_on()
    server.ok()


def test_more_than_the_limit(ends, feed, other_feed):
    """A container with little memory has as many accelerated as fit, and the others on the kernel; nobody is ended for what he shares."""
    connections = 64
    server, client = ends(connections, "18m", lambda log: log.accelerated(PORT) >= 4)
    client.wait_log(lambda log: any("others stay on the kernel" in line for line in log.lines), "the library to find that memory is short")
    feed.go_on()
    client.wait_output("full")
    assert 4 <= client.log().accelerated(PORT) < connections
    other_feed.go_on()
    feed.go_on()
    client.ok()
    other_feed.go_on()
    server.ok()
