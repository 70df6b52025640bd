# SPDX-License-Identifier: BSD-2-Clause
"""Receivers of groups by Ethernet ports that share a UDP port: several sockets of a process, sockets of several processes, one socket on two
ports. What one host gets is the kernel's to say; what goes to a group, each member gets once."""

import pytest

from lib import build, expect, multicast, netns
from lib.multicast import GROUP as FOUR
from lib.multicast import PORT, Stream, is_on_port, member, nothing, sender, takes_group
from lib.wire import LEFT, RIGHT

OTHER, SIX = "239.1.2.4", "ff15::1234"
GROUPS = pytest.mark.parametrize("group", [FOUR, SIX], ids=["ipv4", "ipv6"])

SHARING = pytest.mark.parametrize("share", ["reuseaddr", "reuseport"])


def receive_by_port(stream, members, node, *groups):
    """Until the process has the groups by the port."""
    stream.reach(members)
    stream.until(lambda: all(takes_group(node.proc, group) for group in groups), members, "not by the port")


def frames(host, interface="wire") -> int:
    """UDP datagrams that the kernel has got."""
    return multicast.counter(host, "snmp", "Udp", "InDatagrams") + multicast.counter(host, "snmp6", "Udp6", "InDatagrams")


@GROUPS
@SHARING
def test_several_sockets(scene, group, share):
    """Three of any address in one process: all in the group, then one leaves, one closes, one comes back."""
    ours, far = scene.node("ours", port="wire"), scene.node("far", far=True)
    members = [member(ours, name, group, **{share: 1, "reuseaddr": int(share == "reuseaddr")}) for name in "abc"]
    sender(far, group)
    stream = Stream(far, group)
    receive_by_port(stream, members, ours, group)
    before = frames(ours.host)
    stream.burst(members, 500)
    assert frames(ours.host) - before < 500, "by the kernel"
    nothing(members)
    # A socket that has left still gets what others of this host are members of, unless it says otherwise.
    ours.do("option", "b", "all6" if ":" in group else "all", 0)
    ours.do("leave", "b", "group", group, "wire")
    stream.burst([members[0], members[2]], 300)
    nothing(members)
    ours.do("join", "b", "group", group, "wire")
    stream.burst(members, 300)
    ours.do("close", "a")
    stream.burst(members[1:], 500)
    nothing(members[1:])


@SHARING
def test_different_groups(scene, share):
    """Each socket one group of its own, bound to it or to any address; all of one port."""
    ours, far = scene.node("ours", port="wire"), scene.node("far", far=True)
    options = {share: 1, "reuseaddr": int(share == "reuseaddr")}
    first = member(ours, "first", FOUR, bind=FOUR, **options)
    second = member(ours, "second", OTHER, bind=OTHER, **options)
    both = member(ours, "both", FOUR, **options)
    ours.do("join", "both", "group", OTHER, "wire")
    one, two = sender(far, name="one"), sender(far, name="two")
    streams = Stream(far, FOUR, out=one), Stream(far, OTHER, out=two)
    for stream, members, group in ((streams[0], [first, both], FOUR), (streams[1], [second, both], OTHER)):
        receive_by_port(stream, members, ours, group)
    for _ in range(10):
        streams[0].burst([first, both])
        streams[1].burst([second, both])
    nothing([first, second, both])


def test_unicast_is_the_kernels(scene):
    """Of several sockets of any address with SO_REUSEADDR the last that was bound gets what is sent to the host; also when it comes later."""
    ours, far = scene.node("ours", port="wire"), scene.node("far", far=True)
    first = member(ours, "first")
    sender(far)
    stream, direct = Stream(far), Stream(far, LEFT)
    stream.reach([first])
    stream.until(lambda: is_on_port(ours.proc), [first], "not on the port")
    direct.burst([first], 200)
    last = member(ours, "last")

    direct.until_heard(ours, "last", "the last socket")
    ours.ask("drain", "first")
    for _ in range(20):
        direct.burst([last], 20)
        stream.burst([first, last], 20)
        nothing([first, last])
    ours.do("close", "last")
    direct.burst([first], 200)
    nothing([first])


@GROUPS
def test_two_processes(scene, group):
    """The port is one process's; with a member in another the kernel serves both, and the port again when that is gone."""
    ours, plain, far = scene.node("ours", port="wire"), scene.node("plain"), scene.node("far", far=True)
    here = member(ours, "in", group)
    sender(far, group)
    stream = Stream(far, group)
    receive_by_port(stream, [here], ours, group)
    there = member(plain, "in", group)
    stream.until_heard(plain, "in", "the member in the other process", [here])
    stream.burst([here, there], 500)
    nothing([here, there])
    plain.do("close", "in")
    before = takes_group(ours.proc, group)
    stream.until(lambda: takes_group(ours.proc, group) > before, [here], "not by the port again")
    stream.burst([here], 500)
    nothing([here])


@pytest.fixture
def second_wire(run, hosts):
    netns.veth(hosts.left, "more", hosts.right, "more")
    for number, host in enumerate(hosts.all, 1):
        host.ip("addr", "add", f"10.98.0.{number}/24", "dev", "more")
        host.ip("link", "set", "more", "up")
        run.run("ethtool", [build.tool("ethtool"), "-K", "more", "tx", "off"], netns=host.file)
    yield "10.98.0.1", "10.98.0.2"
    hosts.left.ip("link", "del", "more")


def test_two_ports(scene, second_wire):
    """One socket of any address on both: groups and what is sent to the host come by either, and answers leave by the right one."""
    more_left, more_right = second_wire
    ours, far = scene.node("ours", port="wire,more"), scene.node("far", far=True)
    here = member(ours, "in")
    ours.do("join", "in", "group", FOUR, "more")
    sender(far, name="one", bind=RIGHT, port=PORT + 1)
    sender(far, name="two", bind=more_right, wire="more", port=PORT + 2)
    one, two = Stream(far, out="one"), Stream(far, out="two")
    for stream in one, two:
        stream.reach([here])
    one.until(lambda: all(is_on_port(ours.proc, port) for port in ("wire", "more")), [here], "not on both ports")
    for _ in range(20):
        one.burst([here])
        two.burst([here])
    Stream(far, LEFT, out="one").burst([here], 200)
    Stream(far, more_left, out="two").burst([here], 200)
    for to, port, name in ((RIGHT, PORT + 1, "one"), (more_right, PORT + 2, "two")):
        back = Stream(ours, to, port, "in")

        def is_by_port(back=back, name=name):
            before = multicast.counter(ours.host, "snmp", "Udp", "OutDatagrams")
            back.burst([(far, name)], 40)
            return multicast.counter(ours.host, "snmp", "Udp", "OutDatagrams") == before
        back.until(is_by_port, [(far, name)], "not by the port")
    nothing([here])


@pytest.mark.usefixtures("second_wire")
def test_two_ports_to_groups(scene):
    """IP_MULTICAST_IF says by which."""
    ours, far = scene.node("ours", port="wire,more"), scene.node("far", far=True)
    members = {"wire": member(far, "wire", port=PORT, all=0), "more": member(far, "more", wire="more", all=0)}
    sender(ours, bind="0.0.0.0")
    stream = Stream(ours)
    for _ in range(3):
        for wire, there in members.items():
            ours.do("interface", "out", "index", wire)
            stream.reach([there])
            stream.until_by_port([there])
            stream.burst([there], 200)
            nothing(members.values())


@pytest.mark.parametrize("server", [True, False], ids=["server", "client"])
def test_sockperf(scene, server):
    """Both roles; requests and answers go to the group."""
    tool = build.tool("sockperf")

    def begin(left, *argv):
        at = LEFT if left else RIGHT
        host = scene.hosts.left if left else scene.hosts.right
        return scene.run.start("left" if left else "right", [tool, *argv, "-i", FOUR, "-p", PORT, "--mc-rx-if", at, "--mc-tx-if", at],
                               vma=left, netns=host.file, env={"VMA_ETHERNET": "wire"} if left else None)

    def ask(seconds):
        client = begin(not server, "ping-pong", "-t", seconds, *build.SOCKPERF_MANY).ok()
        assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in client.stdout()
        ours = listener if server else client
        return takes_group(ours, FOUR) and is_on_port(ours)

    listener = begin(server, "server")
    scene.run.wait_until(lambda: "[tid" in listener.stdout(), "the server", proc=listener)
    expect.in_time(scene.run, ask, "the left to be on the port", listener)
    listener.stop()


@GROUPS
def test_all_are_members_and_senders(scene, group):
    """Of the process with the port, of another here, and of the far host: whoever sends, each member gets it once, the sender's own, too."""
    ours, plain, far = scene.node("ours", port="wire"), scene.node("plain"), scene.node("far", far=True)
    here, there = member(ours, "in", group), member(far, "in", group)
    nodes = {"far": far, "ours": ours, "plain": plain}
    streams = {name: Stream(node, group, out=sender(node, group)) for name, node in nodes.items()}
    streams["ours"].reach([here, there])
    receive_by_port(streams["far"], [here, there], ours, group)
    streams["ours"].until_by_port([here, there])
    for _ in range(10):
        for stream in streams.values():
            stream.burst([here, there])
            nothing([here, there])
