# SPDX-License-Identifier: BSD-2-Clause
"""Multicast of unmodified programs on an Ethernet port: every member on either side of the wire gets each datagram once and in order,
whoever of them has the library. The nodes are those of sockets/test_multicast.py."""

import itertools
import re

import pytest

from lib import build, multicast, netns, tcp
from lib.multicast import PORT, Node
from lib.wire import LEFT, LEFT6, PATIENCE, RIGHT, inside

FOUR, SIX, OTHER = multicast.GROUP, "ff15::1234", "239.1.2.4"
CHUNK = 50
GROUPS = pytest.mark.parametrize("group", [FOUR, SIX], ids=["ipv4", "ipv6"])


class Scene:
    """On the left one process with the port, and others; on the right the kernel."""

    def __init__(self, run, hosts):
        self.run, self.hosts = run, hosts
        self.nodes, self.numbers = [], {}
        for host in hosts.all:
            tcp.no_offloads(run, host)

    def node(self, name, *, port=None, vma=False, far=False) -> Node:
        """`port`: interfaces that it takes."""
        made = Node(self.run, name, self.hosts.right if far else self.hosts.left, vma or port is not None,
                    {"VMA_ETHERNET": port} if port else None)
        self.nodes.append(made)
        return made

    def finish(self):
        for node in self.nodes:
            node.control.close()
            if node.proc.alive():
                node.proc.ok()


@pytest.fixture
def scene(run, hosts):
    if not build.intercepts():
        pytest.skip("libvma.so of this build intercepts nothing")
    made = Scene(run, hosts)
    yield made
    made.finish()


def member(node, name, group=FOUR, port=PORT, bind=None, wire="wire", **options):
    """A socket that is in the group on the wire."""
    how = ("group", wire)
    options = {"reuseaddr": 1, "rcvbuf": 8 << 20, **options}
    return node, node.member(name, how, group, port, bind or ("::" if ":" in group else "0.0.0.0"), **options)


def sender(node, group=FOUR, name="out", bind=None, wire="wire", port=0):
    six = ":" in group
    return node.sender(name, bind or (LEFT6 if six else LEFT), port, ("index6" if six else "index", wire))


class Stream:
    """Numbered datagrams to a group, of one socket."""

    def __init__(self, node, group=FOUR, port=PORT, out="out"):
        self.node, self.group, self.port, self.out = node, group, port, out
        self.next = 0

    def send(self, count=50, *shape):
        first, self.next = self.next, self.next + count
        assert self.node.ask("burst", self.out, self.group, self.port, first, count, *shape) == "sent"
        return first, count

    def burst(self, members, count=50, *shape):
        """Each of the members gets them all. No more at once than a receive buffer holds."""
        while count > 0:
            first, sent = self.send(min(count, CHUNK), *shape)
            count -= sent
            for node, name in members:
                assert node.ask("collect", name, first, sent) == "all", f"{node.proc.name} {name}"

    def reach(self, members):
        """New interfaces have what it takes a moment later."""
        for node, name in members:
            def heard(node=node, name=name):
                self.send(1)
                return node.ask("drain", name) != ""
            self.node.run.wait_until(heard, "the first datagram", PATIENCE, node.proc)
        self.send(1)
        for node, name in members:
            while f"number {self.next - 1} " not in node.ask("drain", name):
                node.ask("wait", name)

    def until(self, done, members, what):
        for turn in itertools.count():
            self.burst(members)
            nothing(members)
            if done():
                return
            assert turn < 2000, what

    def is_by_port(self) -> bool:
        """What was sent last left by the port: the kernel has not counted it."""
        before = multicasts(self.node.host, self.group)
        self.send(20)
        return multicasts(self.node.host, self.group) - before < 20

    def until_by_port(self, members):
        def by_port():
            before = multicasts(self.node.host, self.group)
            self.burst(members, 40)
            return multicasts(self.node.host, self.group) - before < 20
        if self.next == 0:
            self.reach(members)
        self.until(by_port, members, "not by the port")


def nothing(members):
    for node, name in members:
        assert node.ask("drain", name) == "", f"{node.proc.name} {name}"


def multicasts(host, group) -> int:
    """Packets to groups that the kernel has sent."""
    with inside(host), open("/proc/thread-self/net/" + ("snmp6" if ":" in group else "netstat"), encoding="ascii") as file:
        text = file.read()
    if ":" in group:
        return int(re.search(r"Ip6OutMcastPkts\s+(\d+)", text)[1])
    names, values = [line.split() for line in text.splitlines() if line.startswith("IpExt:")]
    return int(values[names.index("OutMcastPkts")])


def takes_group(proc, group) -> bool:
    return any(re.search(r"group \[?" + re.escape(group) + r".*accelerated: port", line) for line in proc.log().lines)


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
        before = multicasts(ours.host, group)
        assert ours.ask("send", "out", group, PORT, "text") == "4"
        assert multicasts(ours.host, group) == before, "by the kernel"
        far.ask("wait", "in")
        told = far.ask("drain", "in")
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
        def is_heard():
            stream.burst([there], 5)
            return near.ask("drain", "here") != ""
        scene.run.wait_until(is_heard, "the new member", PATIENCE, near.proc)
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
