# SPDX-License-Identifier: BSD-2-Clause
"""Nodes of multicast tests: processes that have sockets, and do with them what they are told (programs/datagrams/multicast.cpp)."""

import contextlib
import socket
import struct

from . import build
from .wire import inside

PROGRAM = "sockets/programs/datagrams/multicast"
GROUP = "239.1.2.3"
PORT = 16100


class Node:
    def __init__(self, run, name, host, vma, env=None):
        self.run, self.host, self.vma = run, host, vma
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(20)
        self.proc = run.start(name, [build.program(PROGRAM), theirs.fileno()], vma=vma, mode="latency", env=env,
                              pass_fds=[theirs.fileno()], preexec=host.enter)
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


@contextlib.contextmanager
def router(host, interface):
    """A routing daemon's socket, which has the interface and no routes."""
    mrt_init, mrt_add_vif, use_ifindex = 200, 202, 8
    with inside(host):
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP) as made:
            made.setsockopt(socket.IPPROTO_IP, mrt_init, 1)
            # struct vifctl: number, flags, threshold, rate limit, interface, remote address
            made.setsockopt(socket.IPPROTO_IP, mrt_add_vif,
                            struct.pack("HBBIiI", 0, use_ifindex, 1, 0, socket.if_nametoindex(interface), 0))
            yield
