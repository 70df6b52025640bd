# SPDX-License-Identifier: BSD-2-Clause
"""Connections that are accelerated before their first byte: VMA_LIFT_AT_CONNECT, which VMA_SPEC=latency sets."""
import pathlib
import resource

import pytest

from lib import ports

PROGRAM = pathlib.Path(__file__).parent / "programs/first_byte.py"
COUNT = 20
LONG = {"VMA_LIFT_AT_CONNECT": "20000000"}  # as long as it takes, on a machine that is busy with other work
AT_ONCE = "after 0 sends and receives"


def start(run, role, port, who, host="127.0.0.1", how="epoll", vma=True, env=None):
    return run.start(role, ["/usr/bin/python3", "-B", PROGRAM, role, host, port, COUNT, who, how], vma=vma, env=env or LONG)


def at_once(proc):
    return sum(": accelerated: " in line and AT_ONCE in line for line in proc.log().lines)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("spec", ["none", "latency"])
@pytest.mark.parametrize("how", ["recv", "poll", "select", "epoll"])
def test_before_the_first_byte(run, port, how, spec, host):
    """Of each connection, at both ends, however the acceptor waits for it."""
    env = {**LONG, "VMA_SPEC": spec}
    server = start(run, "serve", port, "client", host, how, env=env).wait_output("listens")
    client = start(run, "call", port, "client", host, how, env=env).ok()
    for proc in (server.ok(), client):
        assert at_once(proc) == COUNT


@pytest.mark.parametrize("how", ["recv", "poll", "select", "epoll"])
def test_the_server_begins(run, port, how):
    """What it says unasked goes by the kernel once. From then on connectors attach before connect() comes back, and it waits for
    them; the connector's first call that moves bytes may come after that."""
    server = start(run, "serve", port, "server", how=how).wait_output("listens")
    client = start(run, "call", port, "server", how=how).ok()
    for proc in (server.ok(), client):
        assert at_once(proc) >= COUNT - 1


def test_the_server_begins_and_is_waited_for_in_vain(run, port):
    """One thread has both ends, and accepts after connect(): that is waited for once, not at each of twenty connections."""
    both = start(run, "both", port, "server", env={"VMA_LIFT_AT_CONNECT": "200000"}).ok()  # long enough for whoever is there
    assert sum("waited in vain" in line for line in both.log().lines) == 1


def test_both_ends_in_one_thread(run, port):
    """The helper thread takes what the connector brings."""
    assert at_once(start(run, "both", port, "client").ok()) == 2 * COUNT


def test_closed_at_once(run, port):
    """A connection without a byte leaves nothing behind."""
    server = start(run, "serve", port, "nobody").wait_output("listens")
    start(run, "call", port, "nobody").ok()
    server.ok()
    assert not list(run.shm.glob("o-*"))


@pytest.mark.parametrize("ours", ["serve", "call"])
def test_the_other_one_has_no_library(run, port, ours):
    """Then nobody waits: in this test it would be for longer than a test may take."""
    env = {"VMA_LIFT_AT_CONNECT": "60000000"}
    server = start(run, "serve", port, "client", vma=ours == "serve", env=env).wait_output("listens")
    client = start(run, "call", port, "client", vma=ours == "call", env=env).ok()
    for proc in (server.ok(), client):
        assert "done" in proc.stdout()


def test_a_server_that_was_killed(run, port):
    """Of what it said one connection waits in vain, not twenty."""
    stays = start(run, "serve", ports.free_port(), "client").wait_output("listens")  # else the words go with the killed one
    killed = start(run, "serve", port, "client").wait_output("listens")
    killed.kill()
    server = start(run, "serve", port, "client", vma=False).wait_output("listens")
    client = start(run, "call", port, "client", env={"VMA_LIFT_AT_CONNECT": "1000"}).ok()
    assert sum("waited in vain" in line for line in client.log().lines) == 1
    server.ok()
    stays.kill()


OPENED = """
import socket, sys
role, port = sys.argv[1], int(sys.argv[2])

def is_opened():
    with open("/proc/self/maps") as maps:
        return "libvma-fi.so" in maps.read()

if role == "call":
    sock = socket.create_connection(("127.0.0.1", port))
else:
    with socket.create_server(("127.0.0.1", port)) as listener:
        print("listens", flush=True)
        sock, _ = listener.accept()
before = is_opened()
sock.sendall(b"x")
print("opened before" if before else "opened by it" if is_opened() else "not opened")
"""


@pytest.mark.parametrize("env", [{"VMA_SPEC": "latency"}, {"VMA_LIFT_AFTER": "1"}], ids=lambda env: "_".join(env.values()))
@pytest.mark.parametrize("role", ["call", "serve"])
def test_the_provider_is_opened_before_the_first_send(run, port, role, env):
    """Where latency is asked for: it takes some milliseconds, which a message has not."""
    other = "serve" if role == "call" else "call"
    ends = {other: {"vma": False}, role: {"vma": True, "env": env}}
    server = run.start("serve", ["/usr/bin/python3", "-c", OPENED, "serve", port], **ends["serve"]).wait_output("listens")
    run.start("call", ["/usr/bin/python3", "-c", OPENED, "call", port], **ends["call"]).ok()
    server.ok()
    assert "opened before" in next(proc for proc in run.procs if proc.name == role).stdout()


@pytest.mark.parametrize("env", [{}, {"VMA_LIFT_AFTER": "2"}], ids=["default", "2"])
def test_the_provider_is_not_opened_where_nobody_asks(run, port, env):
    """Many connections end before they would have got anything of it."""
    server = run.start("serve", ["/usr/bin/python3", "-c", OPENED, "serve", port], vma=True, env=env).wait_output("listens")
    client = run.start("call", ["/usr/bin/python3", "-c", OPENED, "call", port], vma=True, env=env).ok()
    for proc in (server.ok(), client):
        assert "not opened" in proc.stdout()


def test_the_provider_is_not_opened_early_where_descriptors_are_few(run, port):
    """It has some of its own, which the program may need first."""
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    server = run.start("serve", ["/usr/bin/python3", "-c", OPENED, "serve", port]).wait_output("listens")
    client = run.start("call", ["/usr/bin/python3", "-c", OPENED, "call", port], vma=True, env={"VMA_LIFT_AFTER": "1"}, preexec=few).ok()
    assert "opened before" not in client.stdout()
    server.ok()
