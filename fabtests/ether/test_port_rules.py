# SPDX-License-Identifier: BSD-2-Clause
"""Rules of libvma.conf on an Ethernet port: the library on the left, the kernel's sockets on the right. What a rule gives to the kernel
never takes the port, and what it does not takes it."""

import pathlib

import pytest

from lib import port, ports
from lib.multicast import GROUP, Stream, member, nothing, sender, takes_group
from lib.port import offloaded
from lib.wire import LEFT, RIGHT

PING = ["/usr/bin/python3", "-B", pathlib.Path(__file__).parents[1] / "sockets" / "programs" / "ping.py"]
REASON = "a rule of libvma.conf says os"
TURNS = 2000


@pytest.fixture
def lab(run, hosts):
    return port.Lab(run, hosts)


def talk(run, lab, kind, turns, *, serves):
    """The process with the library, which serves or asks; what its peer on the right has is the kernel's."""
    number = ports.free_port()
    at = LEFT if serves else RIGHT
    server = lab.program("server", [*PING, kind, "serve", at, number], ours=serves)
    server.wait_output("ready")
    client = lab.program("client", [*PING, kind, "ask", at, number, turns], ours=not serves)
    client.ok()
    server.ok()
    return server if serves else client


@pytest.mark.parametrize("kind, rule, serves", [
    ("tcp", f"use os tcp_client {RIGHT}/32:*", False),
    ("tcp", f"use os tcp_client *:*:{LEFT}/24:*", False),
    ("tcp", f"use os tcp_server {LEFT}:*", True),
    ("udp", f"use os udp_receiver {LEFT}:*", True),
    ("connected", f"use os udp_connect {RIGHT}:*", False),
])
def test_the_kernel_has_it(run, lab, kind, rule, serves):
    run.rules.write_text(rule + "\n")
    turns = TURNS
    for _ in range(7):  # a receiver is asked for when the port is open, which it is not at first
        proc = talk(run, lab, kind, turns, serves=serves)
        assert offloaded(proc) == 0, "\n".join(proc.log().lines)
        if REASON in " ".join(proc.log().lines):
            return
        turns *= 4
    raise AssertionError("no rule was followed\n" + "\n".join(proc.log().lines))


@pytest.mark.parametrize("kind, rule, serves", [
    ("tcp", f"use vma tcp_client {RIGHT}:*:{LEFT}:*\nuse os tcp_client *:*", False),
    ("tcp", f"use os tcp_server {RIGHT}:*\nuse os tcp_client *:*", True),
    ("udp", f"use vma udp_receiver {LEFT}:*\nuse os udp_receiver *:*", True),
])
def test_others_take_the_port(run, lab, kind, rule, serves):
    run.rules.write_text(rule + "\n")
    port.until_offloaded(lambda turns: talk(run, lab, kind, turns, serves=serves), TURNS)


def test_what_is_sent_to_an_address(run, lab):
    """The socket is on the port, which brings what it is sent; what it sends to the ruled address is the kernel's."""
    run.rules.write_text(f"use os udp_sender {RIGHT}:*\n")
    procs = []

    def attempt(turns):
        procs.append(talk(run, lab, "udp", turns, serves=True))
        return procs[-1]
    port.until_offloaded(attempt, TURNS)
    assert f"{RIGHT}:" in " ".join(line for line in procs[-1].log().lines if REASON in line)


def test_one_group_of_two(run, scene):
    """The port brings the group that a rule leaves to it, and the kernel the other one, to one socket; and nothing but groups."""
    ruled, other = "239.1.2.3", "239.9.9.9"
    run.rules.write_text(f"use vma udp_receiver {ruled}/24:*\nuse os udp_receiver *:*\n")
    ours, far = scene.node("ours", port="wire"), scene.node("far", far=True)
    _node, name = here = member(ours, "in", ruled)
    ours.do("join", name, "group", other, "wire")
    sender(far, ruled)
    sender(far, other, "out2")
    by_port, by_kernel = Stream(far, ruled), Stream(far, other, out="out2")
    by_port.reach([here])
    by_port.until(lambda: takes_group(ours.proc, ruled), [here], "not by the port")
    by_kernel.next = by_port.next
    by_kernel.burst([here], 200)
    by_port.next = by_kernel.next
    by_port.burst([here], 200)
    nothing([here])
    assert not takes_group(ours.proc, other)
    assert "accelerated: port wire, groups alone" in " ".join(ours.proc.log().lines)


def test_group_of_the_kernel(run, scene):
    """Local senders and the port leave it to the kernel, and each datagram comes once."""
    run.rules.write_text(f"use os udp_receiver {GROUP}:*\n")
    ours, near, far = scene.node("ours", port="wire"), scene.node("near", vma=True), scene.node("far", far=True)
    here, there = member(ours, "in"), member(near, "in")
    for node in far, near:
        sender(node)
        stream = Stream(node)
        stream.reach([here, there])
        stream.burst([here, there], 300)
    nothing([here, there])
    assert not takes_group(ours.proc, GROUP)
    assert "receivers of the group" not in " ".join(near.proc.log().lines)
