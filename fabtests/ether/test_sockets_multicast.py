# SPDX-License-Identifier: BSD-2-Clause
"""Multicast of unmodified programs on an Ethernet port: every member on either side of the wire gets each datagram once and in order,
whoever of them has the library. The nodes are those of sockets/test_multicast.py."""

import re

import pytest

from lib import multicast
from lib.multicast import PORT, Stream, member, multicasts, nothing, sender
from lib.wire import LEFT, LEFT6

FOUR, SIX = multicast.GROUP, "ff15::1234"
GROUPS = pytest.mark.parametrize("group", [FOUR, SIX], ids=["ipv4", "ipv6"])


# ---- sending ------------------------------------------------------------------------------------------------------------


@GROUPS
def test_to_the_wire(scene, group):
    """A sender that never receives; TTL, traffic class and source are seen at the far end."""
    ours, far = scene.node("ours", port="wire"), scene.node("far", far=True)
    six = ":" in group
    there = member(far, "in", group)
    sender(ours, group)
    stream = Stream(ours, group)
    stream.until_by_port([there])
    stream.burst([there], 500)
    nothing([there])
    for option in ("recvhops6", "recvtclass6") if six else ("recvttl", "recvtos"):
        far.do("option", "in", option, 1)
    address = ours.ask("send", "out", group, PORT, "text")
    assert address == "4"
    first = far.ask("wait", "in") and far.ask("drain", "in")
    for hops, tos in ((1, 0), (7, 0x28), (255, 0xb8)):
        ours.do("option", "out", "hops6" if six else "ttl", hops)
        ours.do("option", "out", "tclass6" if six else "tos", tos)
        told = ""

        def is_by_port():  # the look for the way, which options begin anew, may be the helper thread's for a moment
            nonlocal told
            before = multicasts(ours.host, group)
            assert ours.ask("send", "out", group, PORT, "text") == "4"
            far.ask("wait", "in")
            told = far.ask("drain", "in")
            return multicasts(ours.host, group) == before
        scene.run.wait_until(is_by_port, "one by the port")
        assert f"text from {LEFT6 if six else LEFT}:" in told
        assert re.search(rf"(TTL|HOPLIMIT) {hops}\b", told) and re.search(rf"(TOS|TCLASS) {tos}\b", told), (told, first)


@GROUPS
def test_sizes(scene, group):
    """What doesn't fit one frame goes by the kernel, between others by the port: the order holds."""
    ours, far = scene.node("ours", port="wire"), scene.node("far", far=True)
    there = member(far, "in", group)
    sender(ours, group)
    stream = Stream(ours, group)
    stream.until_by_port([there])
    for size in 1472, 1473, 3000, 20000:
        stream.burst([there], 300, 5, size)
    nothing([there])
    assert stream.is_by_port()


@GROUPS
def test_hops_zero(scene, group):
    """It stays on this host."""
    ours, far, near = scene.node("ours", port="wire"), scene.node("far", far=True), scene.node("near", vma=True)
    there, here = member(far, "in", group), member(near, "in", group)
    sender(ours, group)
    stream = Stream(ours, group)
    stream.until_by_port([there, here])
    ours.do("option", "out", "hops6" if ":" in group else "ttl", 0)
    stream.burst([here])
    nothing([there, here])
    ours.do("option", "out", "hops6" if ":" in group else "ttl", 1)
    stream.burst([there, here])
    nothing([there, here])


@GROUPS
@pytest.mark.parametrize("who", ["kernel", "vma", "own"])
def test_local_members(scene, group, who):
    """Members beside those on the wire: in a program without the library, in one with it, in the sender's own process. They come, and get
    each datagram once from some 50 ms later on; they leave."""
    ours, far = scene.node("ours", port="wire"), scene.node("far", far=True)
    near = ours if who == "own" else scene.node("near", vma=who == "vma")
    there = member(far, "in", group)
    sender(ours, group)
    stream = Stream(ours, group)
    stream.until_by_port([there])

    here = member(near, "here", group)
    if who == "kernel":  # nobody tells
        stream.until_heard(near, "here", "the new member", [there])
    stream.burst([there, here], 500)
    nothing([there, here])
    if who != "kernel":
        stream.until_by_port([there, here])  # shared memory to those here, the port to the wire
        stream.burst([there, here], 500, 7, 3000)
    near.do("close", "here")
    stream.until_by_port([there])


@GROUPS
def test_loop_off(scene, group):
    ours, far, near = scene.node("ours", port="wire"), scene.node("far", far=True), scene.node("near")
    there, here = member(far, "in", group), member(near, "in", group)
    sender(ours, group)
    stream = Stream(ours, group)
    stream.reach([there, here])
    stream.burst([there, here], 200)
    ours.do("option", "out", "loop6" if ":" in group else "loop", 0)
    stream.until_by_port([there])
    nothing([here])
    ours.do("option", "out", "loop6" if ":" in group else "loop", 1)
    stream.burst([there, here], 200)
    nothing([there, here])


def test_source_of_a_socket_without_address(scene):
    """Bound to none, and bound to the group: the kernel's choice."""
    ours, far = scene.node("ours", port="wire"), scene.node("far", far=True)
    there = member(far, "in")
    for number, bind in enumerate(("0.0.0.0", FOUR)):
        sender(ours, name=bind, bind=bind, port=PORT + 3 + number)
        stream = Stream(ours, out=bind)
        stream.until_by_port([there])
        assert ours.ask("send", bind, FOUR, PORT, "text") == "4"
        far.ask("wait", "in")
        assert far.ask("drain", "in") == f"text from {LEFT}:{PORT + 3 + number}"


@GROUPS
def test_control_data(scene, group):
    """The interface in control data is before that of the options: these go by the kernel, to members here and there."""
    ours, far, near = scene.node("ours", port="wire"), scene.node("far", far=True), scene.node("near", vma=True)
    there, here = member(far, "in", group), member(near, "in", group)
    sender(ours, group)
    stream = Stream(ours, group)
    stream.until_by_port([there, here])
    for i in range(20):
        stream.burst([there, here], 3, 3, 3000 if i % 2 else 20)
        assert ours.ask("control", "out", group, PORT, "text", "wire") == "4"
        for node, name in there, here:
            node.ask("wait", name)
            assert node.ask("drain", name).startswith("text from ")
    nothing([there, here])


def test_router_of_this_host(scene):
    """A routing daemon gets what the host itself sends: nothing goes past it. Here it is a socket that says it is one."""
    ours, far = scene.node("ours", port="wire"), scene.node("far", far=True)
    there = member(far, "in")
    sender(ours)
    stream = Stream(ours)
    stream.reach([there])
    with multicast.router(scene.hosts.left, "wire"):
        for _ in range(20):
            before = multicasts(ours.host, FOUR)
            stream.burst([there])
            assert multicasts(ours.host, FOUR) - before >= 50
            nothing([there])
    stream.until_by_port([there])


@GROUPS
def test_connected(scene, group):
    ours, far = scene.node("ours", port="wire"), scene.node("far", far=True)
    there = member(far, "in", group)
    sender(ours, group)
    Stream(ours, group).reach([there])
    ours.do("connect", "out", group, PORT)

    def is_by_port():
        before = multicasts(ours.host, group)
        for _ in range(20):
            assert ours.ask("write", "out", "text") == "4"
        got = 0
        while got < 20:
            far.ask("wait", "in")
            got += far.ask("drain", "in").count("text from ")
        assert got == 20
        return multicasts(ours.host, group) == before
    scene.run.wait_until(is_by_port, "the port", proc=ours.proc)
    nothing([there])
