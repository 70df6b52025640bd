# SPDX-License-Identifier: BSD-2-Clause
"""Multicast between sockets of one process, of one host, and over a wire: every member gets each datagram once, and
nobody else any. The members and senders are nodes (programs/datagrams/multicast.cpp) on two hosts of our own."""

import pytest

from lib import build, datagrams, netns
from lib.multicast import GROUP, PORT, Node

OTHER, SIX = "239.1.2.4", "ff15::1234"
LEFT, RIGHT = "10.99.0.1", "10.99.0.2"

# Who has the library, by the number of the node and whether it is one that sends.
WHO = {
    "kernel": lambda number, sends: False,
    "vma": lambda number, sends: True,
    "members": lambda number, sends: not sends,
    "senders": lambda number, sends: sends,
    "mixed": lambda number, sends: number % 2 == 0,
}
# Ways to be a member of GROUP on the loopback: (how, at, source).
FORMS = {
    "IP_ADD_MEMBERSHIP": ("mreq", "127.0.0.1"),
    "IP_ADD_MEMBERSHIP-mreqn": ("mreqn", "lo"),
    "MCAST_JOIN_GROUP": ("group", "lo"),
    "IP_ADD_SOURCE_MEMBERSHIP": ("source", "127.0.0.1", "127.0.0.1"),
    "MCAST_JOIN_SOURCE_GROUP": ("group_source", "lo", "127.0.0.1"),
}


class Stage:
    """The nodes of one test."""

    def __init__(self, run, hosts, who):
        self.run, self.hosts, self.who = run, hosts, who
        self.nodes, self.numbers = [], {}

    def node(self, name, host=None, sends=False) -> Node:
        vma = WHO[self.who](len(self.nodes), sends)
        self.nodes.append(Node(self.run, name, host or self.hosts.left, vma))
        return self.nodes[-1]

    def burst(self, sender, members, group=GROUP, port=PORT, out="out", count=50):
        """`members`: (node, socket) that get all of it, in order and once; what else comes to them is a fault."""
        first = self.numbers.get((group, port), 0)
        self.numbers[group, port] = first + count
        assert sender.ask("burst", out, group, port, first, count) == "sent"
        for node, name in members:
            assert node.ask("collect", name, first, count) == "all", f"{node.proc.name} {name}"

    def warm(self, sender, members, group=GROUP, port=PORT, out="out"):
        """Enough traffic for acceleration, and until it is there where it is to come."""
        def is_warm():
            self.burst(sender, members, group, port, out)
            self.nothing(members)
            return not self.expected() or self.accelerated(sender, members, group)
        for _ in range(4):
            is_warm()
        self.run.wait_until(is_warm, "acceleration", proc=sender.proc)

    def nothing(self, members):
        for node, name in members:
            assert node.ask("drain", name) == "", f"{node.proc.name} {name}"

    def expected(self):
        return datagrams.MULTICAST_IS_ACCELERATED and self.who == "vma"

    def accelerated(self, sender, members, group):
        return (any(to.startswith((group, f"[{group}")) for _, to in datagrams.routes(sender.proc.log()))
                and all(datagrams.receivers(node.proc.log()) for node, _ in members if node.host is sender.host))

    def finish(self):
        for node in self.nodes:
            node.control.close()
            if node.proc.alive():
                node.proc.ok()
            if not node.vma:
                assert not node.proc.log().lines, f"{node.proc.name} runs without the library, and yet it logged"


@pytest.fixture(scope="module")
def hosts():
    made = netns.hosts()
    yield made
    made.remove()


@pytest.fixture(params=WHO)
def stage(request, run, hosts):
    if request.param != "kernel" and not build.intercepts():
        pytest.skip("libvma.so of this build intercepts nothing")
    made = Stage(run, hosts, request.param)
    yield made
    made.finish()


@pytest.mark.parametrize("form", FORMS)
def test_members(stage, form):
    """Two in one process, one in another, one in the sender's own; each way to join, and to leave."""
    a, b, s = stage.node("a"), stage.node("b"), stage.node("s", sends=True)
    how = FORMS[form]
    members = [(a, a.member("one", how)), (a, a.member("two", how)), (b, b.member("one", how)),
               (s, s.member("own", how))]
    s.sender()
    stage.warm(s, members)
    # Who leaves gets no more (it must not take what others on this host are members of either: IP_MULTICAST_ALL).
    a.do("option", "one", "all", 0)
    a.do("leave", "one", how[0], GROUP, *how[1:])
    stage.burst(s, members[1:])
    stage.nothing(members)
    a.do("join", "one", how[0], GROUP, *how[1:])
    stage.burst(s, members)
    stage.nothing(members)


def test_members_six(stage):
    a, b, s = stage.node("a"), stage.node("b"), stage.node("s", sends=True)
    members = [(node, node.member("in", ("six", "wire"), SIX, bind="::")) for node in (a, b)]
    members.append((b, b.member("again", ("group", "wire"), SIX, bind="::", pktinfo6=1)))
    s.sender(bind="fd99::1", interface=("index6", "wire"))
    stage.warm(s, members, SIX)
    assert s.ask("send", "out", SIX, PORT, "text") == "4"
    assert a.ask("drain", "in") == f"text from fd99::1:{PORT + 1}"
    assert b.ask("drain", "again") == f"text from fd99::1:{PORT + 1} with PKTINFO {SIX} at wire"
    assert b.ask("drain", "in") == f"text from fd99::1:{PORT + 1}"
    a.do("option", "in", "all6", 0)
    a.do("leave", "in", "six", SIX, "wire")
    stage.burst(s, members[1:], SIX)
    stage.nothing(members)


def test_addresses(stage):
    """The source's address, and the group's in IP_PKTINFO."""
    a, s = stage.node("a"), stage.node("s", sends=True)
    members = [(a, a.member("in"))]
    s.sender()
    stage.warm(s, members)
    a.do("option", "in", "pktinfo", 1)
    a.do("option", "in", "recvttl", 1)
    assert s.ask("send", "out", GROUP, PORT, "text") == "4"
    assert a.ask("drain", "in") == (f"text from 127.0.0.1:{PORT + 1} with PKTINFO {GROUP} local 127.0.0.1 at lo, TTL 1")
    s.do("option", "out", "ttl", 5)
    assert s.ask("send", "out", GROUP, PORT, "text") == "4"
    assert a.ask("drain", "in").endswith("TTL 5")


def test_wire(stage):
    """Members on both hosts; whoever is on the wire gets exactly one copy, however many are on this host."""
    a, b, s = stage.node("a"), stage.node("b", stage.hosts.right), stage.node("s", sends=True)
    members = [(a, a.member("one", ("mreqn", "wire"))), (a, a.member("two", ("mreq", LEFT))),
               (b, b.member("far", ("mreq", RIGHT)))]
    s.sender(bind=LEFT, interface=("address", LEFT))
    stage.warm(s, members)
    # The far one sends back: nobody on this host has it twice either.
    b.sender(bind=RIGHT, interface=("index", "wire"))
    stage.burst(b, members)
    stage.nothing(members)


def test_same_group_in_two_namespaces(stage):
    """A group on the loopbacks of two hosts is two groups."""
    hosts = (stage.hosts.left, stage.hosts.right)
    inside = [stage.node(f"in{i}", host) for i, host in enumerate(hosts)]
    outside = [stage.node(f"out{i}", host, sends=True) for i, host in enumerate(hosts)]
    members = [(node, node.member("in")) for node in inside]
    for sender, member in zip(outside, members):
        sender.sender()
        stage.warm(sender, [member])
    stage.nothing(members)


def test_loop_off(stage):
    """IP_MULTICAST_LOOP off: nobody on this host gets it, the other host does."""
    a, b, s = stage.node("a"), stage.node("b", stage.hosts.right), stage.node("s", sends=True)
    near, far = (a, a.member("near", ("mreq", LEFT))), (b, b.member("far", ("mreq", RIGHT)))
    own = (s, s.member("own", ("mreq", LEFT)))
    s.sender(bind=LEFT, interface=("address", LEFT))
    stage.warm(s, [near, far, own])
    s.do("option", "out", "loop", 0)
    stage.burst(s, [far])
    stage.nothing([near, far, own])
    s.do("option", "out", "loop", 1)
    stage.burst(s, [near, far, own])
    stage.nothing([near, far, own])


def test_mapped_group(stage):
    """A group of IPv4 from a socket of IPv6, whose own IPV6_MULTICAST_LOOP counts: each gets it once."""
    a, b, s = stage.node("a"), stage.node("b", stage.hosts.right), stage.node("s", sends=True)
    near, far = (a, a.member("near", ("mreq", LEFT))), (b, b.member("far", ("mreq", RIGHT)))
    s.sender(bind="::", interface=("index", "wire"))
    for _ in range(30):
        stage.burst(s, [near, far], f"::ffff:{GROUP}")
        stage.nothing([near, far])
    s.do("option", "out", "loop6", 0)
    stage.burst(s, [far], f"::ffff:{GROUP}")
    stage.nothing([near, far])


def test_control_data(stage):
    """What carries control data goes by the kernel: to members on this host as well, whatever went another way before."""
    a, b, s = stage.node("a"), stage.node("b", stage.hosts.right), stage.node("s", sends=True)
    members = [(a, a.member("near", ("mreq", LEFT))), (b, b.member("far", ("mreq", RIGHT)))]
    s.sender(bind=LEFT, interface=("address", LEFT))
    stage.warm(s, members)
    for _ in range(10):
        stage.burst(s, members, count=3)
        assert s.ask("control", "out", GROUP, PORT, "text", "wire") == "4"
        for node, name in members:
            node.ask("wait", name)
            assert node.ask("drain", name).startswith("text from ")
    stage.nothing(members)


def test_ttl(stage):
    """TTL 0 stays on this host, 1 does not."""
    a, b, s = stage.node("a"), stage.node("b", stage.hosts.right), stage.node("s", sends=True)
    near, far = (a, a.member("near", ("mreq", LEFT))), (b, b.member("far", ("mreq", RIGHT)))
    s.sender(bind=LEFT, interface=("address", LEFT))
    stage.warm(s, [near, far])
    s.do("option", "out", "ttl", 0)
    stage.burst(s, [near])
    s.do("option", "out", "ttl", 1)
    stage.burst(s, [near, far])
    stage.nothing([near, far])


def test_interface(stage):
    """Members on the loopback and on the wire: IP_MULTICAST_IF says who gets it, also when it changes."""
    a, s = stage.node("a"), stage.node("s", sends=True)
    loop = (a, a.member("loop", ("mreq", "127.0.0.1"), all=0))
    wire = (a, a.member("wire", ("mreq", LEFT), all=0))
    s.sender(bind="0.0.0.0", interface=("address", "127.0.0.1"))
    stage.burst(s, [loop])  # a socket of the port that has received nothing yet keeps the group on the kernel
    stage.nothing([wire])
    s.do("interface", "out", "index", "wire")
    stage.burst(s, [wire])
    stage.nothing([loop])
    s.do("interface", "out", "index", "lo")
    stage.burst(s, [loop])
    stage.nothing([loop, wire])


def test_others_groups(stage):
    """IP_MULTICAST_ALL: a socket of any address gets the groups of others, unless it is off."""
    a, b, s = stage.node("a"), stage.node("b"), stage.node("s", sends=True)
    member, other = (a, a.member("in")), (b, b.member("in", how=None))
    s.sender()
    stage.warm(s, [member, other])
    b.do("option", "in", "all", 0)
    stage.burst(s, [member])
    stage.nothing([member, other])
    b.do("option", "in", "all", 1)
    stage.burst(s, [member, other])
    a.do("leave", "in", "mreq", GROUP, "127.0.0.1")  # the last of the host
    assert s.ask("burst", "out", GROUP, PORT, 0, 5) == "sent"
    stage.nothing([member, other])


def test_two_groups_on_one_port(stage):
    """Sockets bound to a group's address get that group alone, and no unicast; one of any address gets both."""
    a, b, s = stage.node("a"), stage.node("b"), stage.node("s", sends=True)
    first, second = (a, a.member("first", bind=GROUP)), (a, a.member("second", group=OTHER, bind=OTHER))
    s.sender()
    stage.warm(s, [first])
    stage.warm(s, [second], OTHER)
    stage.nothing([first, second])
    b.member("both")
    b.do("join", "both", "mreq", OTHER, "127.0.0.1")
    for group, member in ((GROUP, first), (OTHER, second)):
        stage.burst(s, [member, (b, "both")], group)
    assert s.ask("send", "out", "127.0.0.1", PORT, "unicast") == "7"
    assert b.ask("drain", "both") == f"unicast from 127.0.0.1:{PORT + 1}"
    stage.nothing([first, second])


def test_other_port(stage):
    """The group without the port is nothing."""
    a, s = stage.node("a"), stage.node("s", sends=True)
    here, there = (a, a.member("here")), (a, a.member("there", port=PORT + 2))
    s.sender()
    stage.warm(s, [here])
    stage.nothing([there])
    stage.warm(s, [there], port=PORT + 2)
    stage.nothing([here])


def test_sources(stage):
    """A source that was asked for, one that was not; one that is blocked."""
    a, b, s = stage.node("a"), stage.node("b"), stage.node("s", sends=True)
    only, everyone = (a, a.member("in", ("source", "127.0.0.1", "127.0.0.1"))), (b, b.member("in"))
    s.sender()
    s.sender("second", bind="127.0.0.2", port=PORT + 3, interface=("address", "127.0.0.1"))
    stage.warm(s, [only, everyone])
    stage.warm(s, [everyone], out="second")
    stage.nothing([only])
    a.do("join", "in", "source", GROUP, "127.0.0.1", "127.0.0.2")
    stage.burst(s, [only, everyone], out="second")
    a.do("leave", "in", "source", GROUP, "127.0.0.1", "127.0.0.1")
    stage.burst(s, [everyone])
    b.do("leave", "in", "block", GROUP, "127.0.0.1", "127.0.0.2")
    stage.burst(s, [only], out="second")
    stage.nothing([only, everyone])
    b.do("join", "in", "block", GROUP, "127.0.0.1", "127.0.0.2")
    stage.burst(s, [only, everyone], out="second")


def test_source_filter(stage):
    """setipv4sourcefilter(): of the two sources one is left, then both are there again."""
    a, b, s = stage.node("a"), stage.node("b"), stage.node("s", sends=True)
    filtered, everyone = (a, a.member("in")), (b, b.member("in"))
    s.sender()
    s.sender("second", bind="127.0.0.2", port=PORT + 3, interface=("address", "127.0.0.1"))
    stage.warm(s, [filtered, everyone])
    stage.warm(s, [filtered, everyone], out="second")
    a.do("join", "in", "filter", GROUP, "127.0.0.1", "127.0.0.1")
    stage.burst(s, [everyone], out="second")
    stage.nothing([filtered])
    stage.burst(s, [filtered, everyone])
    a.do("leave", "in", "filter", GROUP, "127.0.0.1", "127.0.0.1")
    stage.burst(s, [filtered, everyone], out="second")


def test_members_come_and_go(stage):
    """One is killed, one closes, one comes: the others get everything, once."""
    a, b, s = stage.node("a"), stage.node("b"), stage.node("s", sends=True)
    stays, dies, closes = (a, a.member("stays")), (b, b.member("in")), (a, a.member("closes"))
    s.sender()
    stage.warm(s, [stays, dies, closes])
    b.proc.kill()
    stage.burst(s, [stays, closes])
    a.do("close", "closes")
    stage.burst(s, [stays])
    c = stage.node("c")
    comes = (c, c.member("in"))
    stage.warm(s, [stays, comes])
    a.do("close", "stays")
    stage.burst(s, [comes])


def test_connected(stage):
    """A sender that is connected to the group, and members that are connected to a sender: who was bound to the group's
    address still gets it, of this sender alone; who was bound to any address has got one that is not the group's."""
    a, s = stage.node("a"), stage.node("s", sends=True)
    members = [(a, a.member("any")), (a, a.member("group", bind=GROUP))]
    s.sender()
    s.sender("foreign", port=PORT + 4)
    s.do("connect", "out", GROUP, PORT)
    stage.warm(s, members)
    assert s.ask("write", "out", "text") == "4"
    for node, name in members:
        assert node.ask("drain", name) == f"text from 127.0.0.1:{PORT + 1}"
        node.do("connect", name, "127.0.0.1", PORT + 1)
    assert s.ask("send", "foreign", GROUP, PORT, "foreign") == "7"
    stage.nothing(members)
    stage.burst(s, members[1:])
    stage.nothing(members)


def test_shared_port(stage):
    """SO_REUSEPORT does not choose among members of a group: each gets its copy, while a unicast goes to one."""
    a, b, s = stage.node("a"), stage.node("b"), stage.node("s", sends=True)
    members = [(node, node.member(name, reuseaddr=0, reuseport=1)) for node in (a, b) for name in ("one", "two")]
    s.sender()
    stage.warm(s, members)
    assert s.ask("send", "out", "127.0.0.1", PORT, "unicast") == "7"
    got = [node.ask("drain", name) for node, name in members]
    assert sorted(got) == ["", "", "", f"unicast from 127.0.0.1:{PORT + 1}"]


def test_broadcast(stage):
    """The wire's broadcast address: everybody bound to any address on both hosts, once, with SO_BROADCAST only."""
    a, b, s = stage.node("a"), stage.node("b", stage.hosts.right), stage.node("s", sends=True)
    members = [(a, a.member("one", how=None)), (a, a.member("two", how=None)), (b, b.member("far", how=None))]
    s.sender(bind=LEFT)
    assert s.ask("send", "out", "10.99.0.255", PORT, "no") == "EACCES"
    s.do("option", "out", "broadcast", 1)
    for _ in range(5):
        stage.burst(s, members, "10.99.0.255")
        stage.nothing(members)


def test_wrong_memberships(stage):
    """What joining and leaving answer when it cannot be."""
    a = stage.node("a")
    a.member("in")
    assert a.ask("join", "in", "mreq", GROUP, "127.0.0.1") == "EADDRINUSE"
    assert a.ask("join", "in", "mreq", "10.1.2.3", "127.0.0.1") == "EINVAL"
    assert a.ask("join", "in", "mreq", OTHER, "10.77.0.1") == "ENODEV"
    assert a.ask("leave", "in", "mreq", OTHER, "127.0.0.1") == "EADDRNOTAVAIL"
    assert a.ask("interface", "in", "address", "10.77.0.1") == "EADDRNOTAVAIL"
    a.do("leave", "in", "mreq", GROUP, "127.0.0.1")
    assert a.ask("leave", "in", "mreq", GROUP, "127.0.0.1") == "EADDRNOTAVAIL"
