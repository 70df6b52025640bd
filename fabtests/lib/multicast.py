# SPDX-License-Identifier: BSD-2-Clause
"""Nodes of multicast tests: processes that have sockets, and do with them what they are told (programs/datagrams/multicast.cpp)."""

import contextlib
import errno
import re
import socket
import struct

import pytest

from . import build, patience, tcp
from .wire import LEFT, LEFT6, RIGHT, RIGHT6, inside

PROGRAM = "sockets/programs/datagrams/multicast"
GROUP = "239.1.2.3"
PORT = 16100
CHUNK = 50


class Node:
    def __init__(self, run, name, host, vma, env=None):
        self.run, self.host, self.vma, self.far = run, host, vma, False
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(patience.seconds())
        self.proc = run.start(name, [build.program(PROGRAM), theirs.fileno()], vma=vma, mode="latency", env=env,
                              pass_fds=[theirs.fileno()], netns=host.file)
        theirs.close()

    def ask(self, *words) -> str:
        """One command; the answer as it is."""
        line = " ".join(map(str, words))
        self.control.send(line.encode())
        answer = self.control.recv(65536)
        assert answer[:1] == b"\0", f"{self.proc.name} is gone at {line!r}\n{self.proc.output()}"
        return answer[1:].decode()

    def do(self, *words):
        """One command that has to succeed."""
        assert self.ask(*words) == "0", f"{self.proc.name}: {words}"

    def member(self, name, how=("mreq", "127.0.0.1"), group=GROUP, port=PORT, bind="0.0.0.0", **options):
        """A socket that others may share the port with, bound, and a member."""
        self.do("socket", name, "6" if ":" in bind else "4")
        for option, value in {"reuseaddr": 1, **options}.items():
            self.do("option", name, option, value)
        self.do("bind", name, bind, port)
        if how:
            self.do("join", name, how[0], group, *how[1:])
        return name

    def sender(self, name="out", bind="127.0.0.1", port=PORT + 1, interface=None):
        self.do("socket", name, "6" if ":" in bind else "4")
        self.do("bind", name, bind, port)
        if interface:
            self.do("interface", name, *interface)
        return name


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
        made.far = far
        self.nodes.append(made)
        return made

    def finish(self):
        for node in self.nodes:
            node.control.close()
            if node.proc.alive():
                node.proc.ok()


def member(node, name, group=GROUP, port=PORT, bind=None, wire="wire", **options):
    """A socket that is in the group on the wire."""
    how = ("group", wire)
    options = {"reuseaddr": 1, "rcvbuf": 8 << 20, **options}
    return node, node.member(name, how, group, port, bind or ("::" if ":" in group else "0.0.0.0"), **options)


def sender(node, group=GROUP, name="out", bind=None, wire="wire", port=0):
    six = ":" in group
    here = (RIGHT6 if six else RIGHT) if node.far else LEFT6 if six else LEFT
    return node.sender(name, bind or here, port, ("index6" if six else "index", wire))


class Stream:
    """Numbered datagrams to a group, of one socket."""

    def __init__(self, node, group=GROUP, port=PORT, out="out"):
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
                sent = self.node.ask("burst", self.out, self.group, self.port, self.next, 1)
                self.next += sent == "sent"
                return node.ask("drain", name) != ""
            self.node.run.wait_until(heard, "the first datagram", proc=node.proc)
        self.send(1)
        for node, name in members:
            while f"number {self.next - 1} " not in node.ask("drain", name):
                node.ask("wait", name)

    def until_heard(self, node, name, what, members=()):
        """The socket hears of it; the members get each meanwhile."""
        def is_heard():
            self.burst(members, 5)
            return node.ask("drain", name) != ""
        self.node.run.wait_until(is_heard, what, proc=node.proc)

    def until(self, done, members, what):
        """Goes on sending; the members get each of them, once."""
        def is_done():
            self.burst(members)
            nothing(members)
            return done()
        self.node.run.wait_until(is_done, what, proc=self.node.proc)

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


def counter(host, file, part, name) -> int:
    """Of the kernel: /proc/net/FILE."""
    with inside(host), open(f"/proc/thread-self/net/{file}", encoding="ascii") as opened:
        text = opened.read()
    if file == "snmp6":
        return int(re.search(rf"^{part}{name}\s+(\d+)", text, re.MULTILINE)[1])
    names, values = [line.split() for line in text.splitlines() if line.startswith(f"{part}:")]
    return int(values[names.index(name)])


def multicasts(host, group) -> int:
    """Packets to groups that the kernel has sent."""
    return counter(host, "snmp6", "Ip6", "OutMcastPkts") if ":" in group else counter(host, "netstat", "IpExt", "OutMcastPkts")


def is_on_port(proc, port="wire") -> bool:
    return any(re.search(rf"UDP .*accelerated: port {port}\b", line) for line in proc.log().lines)


def takes_group(proc, group) -> int:
    """How often a port has begun to bring it to the process."""
    return sum(bool(re.search(r"group \[?" + re.escape(group) + r".*accelerated: port", line)) for line in proc.log().lines)


@contextlib.contextmanager
def router(host, interface):
    """A routing daemon's socket, which has the interface and no routes."""
    mrt_init, mrt_add_vif, use_ifindex = 200, 202, 8
    with inside(host):
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP) as made:
            try:
                made.setsockopt(socket.IPPROTO_IP, mrt_init, 1)
            except OSError as error:
                if error.errno != errno.ENOPROTOOPT:
                    raise
                pytest.skip(f"this kernel routes no multicast: {error}")
            # struct vifctl: number, flags, threshold, rate limit, interface, remote address
            made.setsockopt(socket.IPPROTO_IP, mrt_add_vif,
                            struct.pack("HBBIiI", 0, use_ifindex, 1, 0, socket.if_nametoindex(interface), 0))
            yield
