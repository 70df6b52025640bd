# SPDX-License-Identifier: BSD-2-Clause
"""UDP of ours against the Linux kernel's over a wire that loses, doubles and reorders: each datagram that comes back has the bytes that
it had, or does not come. What was lost is sent again until all of it has been there and back. FABTESTS_LONG=1 for FABTESTS_GIB GiB (10)."""

import collections
import os
import select
import socket
import struct
import time

import pytest

from lib import build, patience
from lib.tcp import FAMILIES, bridged
from lib.wire import Asked, inside

PORT, PEER_PORT = 7300, 7400
NUMBER = struct.Struct("!Q")
LENGTH = 1400
WINDOW = 128
ENV = {"FI_PROVIDER_PATH": str(build.provider_dir()), "IPATH_NO_BACKTRACE": "1"}
LONG = bool(os.environ.get("FABTESTS_LONG"))
TOTAL = int(os.environ.get("FABTESTS_GIB", "10")) << 30 if LONG else 4 << 20


class Sliding:
    """A window of numbered datagrams, sent until each has come back."""

    def __init__(self, sock, count):
        self.sock, self.count = sock, count
        self.block = os.urandom(1 << 20)
        self.under_way = collections.OrderedDict()
        self.next = self.sent = self.came = self.twice = 0

    def bytes_of(self, number: int) -> bytes:
        at = number * 7919 % (len(self.block) - LENGTH)
        return NUMBER.pack(number) + self.block[at:at + LENGTH - NUMBER.size]

    def send(self, number):
        self.sock.send(self.bytes_of(number))
        self.sent += 1

    def take(self):
        data = self.sock.recv(65536)
        (number,) = NUMBER.unpack_from(data)
        assert data == self.bytes_of(number), f"datagram {number} has other bytes than it was sent with"
        self.came += 1
        if self.under_way.pop(number, None) is None:
            self.twice += 1

    def fill(self):
        while self.next < self.count and len(self.under_way) < WINDOW:
            self.under_way[self.next] = True
            self.send(self.next)
            self.next += 1

    def run(self):
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        deadline = patience.Deadline()
        while self.next < self.count or self.under_way:
            self.fill()
            if poll.poll(20):
                deadline = patience.Deadline()
                self.take()
                continue
            assert not deadline.over(), "nothing comes back any more"
            for number in list(self.under_way):
                self.send(number)


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_there_and_back_on_a_bad_wire(run, af_xdp, family, left, right):
    with bridged(run, loss=1, duplicates=1, held_back=1) as (hosts, bridge):
        echo = Asked(run, hosts.left, "echo", build.program("ether/programs/datagram_echo"), left, PORT, right, PEER_PORT, env=ENV)
        assert echo.next_line() == "ready"
        with inside(hosts.right):
            sock = socket.socket(family, socket.SOCK_DGRAM)
        with sock:
            sock.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
            sock.bind((right, PEER_PORT))
            sock.connect((left, PORT))
            start = time.monotonic()
            window = Sliding(sock, TOTAL // LENGTH)
            window.run()
            took = time.monotonic() - start
        echo.close()
        echo.proc.ok()
        echoed = int(echo.next_line().split()[0])
    assert window.sent > window.count, "the wire loses nothing"
    assert window.came <= window.sent * 1.1
    print(f"{window.count * LENGTH / (1 << 30):.2f} GiB there and back in {took:.0f} s: {window.sent} datagrams sent, {echoed} echoed, "
          f"{window.came} back, {window.twice} of them twice; {bridge.done}")
