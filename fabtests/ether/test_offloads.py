# SPDX-License-Identifier: BSD-2-Clause
"""Checksums that our stack leaves to the kernel when it sends by AF_XDP: what arrives at the other end of the wire, by a checksum
of the test's own, and what the kernel there makes of it."""

import contextlib
import hashlib
import os
import socket
import struct
import threading

import pytest

from lib import build
from lib.tcp import FAMILIES, PORT, echoed, no_offloads
from lib.wire import Asked, inside, udp_socket

_SOL_PACKET, _PACKET_AUXDATA = 263, 8
_SO_RCVBUFFORCE = 33
_ETH_P_ALL = 3
_CSUM_NOT_READY = 1 << 3  # TP_STATUS_CSUMNOTREADY
_TCP, _UDP = 6, 17


def _sum(data: bytes) -> int:
    """RFC 1071, 4.1."""
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


class Packet:
    """One that came over the wire, read by hand."""

    def __init__(self, frame: bytes, status: int):
        self.is_partial = bool(status & _CSUM_NOT_READY)
        ipv6 = frame[14] >> 4 == 6
        self.protocol = frame[20] if ipv6 else frame[23]
        at = 54 if ipv6 else 34
        length = struct.unpack("!H", frame[18:20] if ipv6 else frame[16:18])[0] + (40 if ipv6 else 0)
        self._transport = frame[at:14 + length]
        addresses = frame[22:54] if ipv6 else frame[26:34]
        self._pseudo = addresses + struct.pack("!II", len(self._transport), self.protocol)
        self.header_is_right = ipv6 or _sum(frame[14:34]) == 0xffff
        self.source_port = struct.unpack("!H", self._transport[:2])[0]
        header = (self._transport[12] >> 4) * 4 if self.protocol == _TCP else 8
        self.data = self._transport[header:]

    @property
    def is_right(self) -> bool:
        return _sum(self._pseudo + self._transport) == 0xffff

    @property
    def has_pseudo_sum(self) -> bool:
        at = 16 if self.protocol == _TCP else 6
        return struct.unpack("!H", self._transport[at:at + 2])[0] == _sum(self._pseudo)


@contextlib.contextmanager
def captured(host):
    """What comes from our port over the host's wire, in a list that is whole at the end."""
    with inside(host):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        sock.bind(("wire", _ETH_P_ALL))
    sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
    sock.settimeout(0.1)
    packets, ended = [], threading.Event()

    def read():
        while True:
            try:
                frame, more, _flags, address = sock.recvmsg(1 << 16, 256)
            except TimeoutError:
                if ended.is_set():
                    return
                continue
            status = next(struct.unpack("=I", data[:4])[0] for level, kind, data in more
                          if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA))
            is_ip = frame[12:14] in (b"\x08\x00", b"\x86\xdd")
            if address[2] != socket.PACKET_OUTGOING and is_ip and frame[23 if frame[12] == 8 else 20] in (_TCP, _UDP):
                packets.append(Packet(frame, status))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield packets
    finally:
        ended.set()
        reader.join()
        sock.close()


def judge(packets, protocol, partial: bool):
    ours = [packet for packet in packets if packet.protocol == protocol and packet.source_port == PORT]
    with_data = [packet for packet in ours if packet.data]
    assert with_data
    assert all(packet.header_is_right for packet in ours)
    assert all(packet.is_partial == partial for packet in with_data)
    for packet in ours:
        assert packet.has_pseudo_sum if packet.is_partial else packet.is_right


def listening(run, host, program, *argv, offloads="on", **env):
    server = Asked(run, host, "server", build.program(f"ether/programs/{program}"), "wire", *argv,
                   env={"FI_VMA_ETHERNET_OFFLOADS": offloads, "FI_LOG_LEVEL": "debug", **env})
    assert server.next_line() == {"tcp_echo": "listening", "udp_echo": "ready"}[program]
    return server


# "computed": the interface can't, so the kernel does it before the frame leaves.
@pytest.mark.parametrize("how", ["left", "computed", "off"])
@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_tcp(run, hosts, family, left, right, how):
    if how == "computed":
        no_offloads(run, hosts.left)
    server = listening(run, hosts.left, "tcp_echo", "listen", left, PORT, offloads="off" if how == "off" else "on")
    data = os.urandom(300_001)
    with captured(hosts.right) as packets:
        assert echoed(hosts.right, left, data) == hashlib.sha256(data).digest()
    server.finish()
    judge(packets, _TCP, how == "left")
    assert server.proc.stderr().count("checksums of frames to send are left to the kernel") == (how != "off")


@pytest.mark.parametrize("how", ["left", "computed", "off"])
@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_udp(run, hosts, family, left, right, how):
    """Datagrams of one frame are left to the kernel, those of several have their sums."""
    if how == "computed":
        no_offloads(run, hosts.left)
    server = listening(run, hosts.left, "udp_echo", left, PORT, offloads="off" if how == "off" else "on")
    server_address = (left, PORT)
    with captured(hosts.right) as packets, udp_socket(hosts.right, family) as sock:
        for size in (0, 1, 2, 1451, 1452):
            data = os.urandom(size)
            sock.sendto(data, server_address)
            assert sock.recv(1 << 16) == data
    server.finish()
    judge(packets, _UDP, how == "left")
    assert len(packets) == 5


@pytest.mark.parametrize("size", [1, 300_001])
def test_a_kernel_without_metadata(run, hosts, size):
    """All is as before there was any, and a line says so."""
    runtimes = build.preload().split()[:-1]  # of a sanitizer
    shim = build.build_dir() / "fabtests/ether/programs/old_kernel.so"
    server = listening(run, hosts.left, "tcp_echo", "listen", FAMILIES[0][1], PORT, offloads="on",
                       LD_PRELOAD=" ".join([*runtimes, str(shim)]))
    data = os.urandom(size)
    with captured(hosts.right) as packets:
        assert echoed(hosts.right, FAMILIES[0][1], data) == hashlib.sha256(data).digest()
    server.finish()
    judge(packets, _TCP, False)
    assert server.proc.stderr().count("checksums of frames to send are computed here: the kernel has no metadata") == 1


def test_mtu_of_several_buffers(run, hosts):
    """The kernel would want room before each of them."""
    for host in (hosts.left, hosts.right):
        host.ip("link", "set", "wire", "mtu", "9000")
    server = listening(run, hosts.left, "tcp_echo", "listen", FAMILIES[0][1], PORT, offloads="on")
    data = os.urandom(300_001)
    with captured(hosts.right) as packets:
        assert echoed(hosts.right, FAMILIES[0][1], data) == hashlib.sha256(data).digest()
    server.finish()
    judge(packets, _TCP, False)


@pytest.mark.parametrize("name, word, said", [
    ("OFFLOADS", "perhaps", 'FI_VMA_ETHERNET_OFFLOADS: "perhaps" is none of on and off: on is taken'),
    ("XDP", "perhaps", 'FI_VMA_ETHERNET_XDP: "perhaps" is none of auto, native and generic: auto is taken')])
def test_a_word_that_means_nothing(run, hosts, name, word, said):
    server = listening(run, hosts.left, "udp_echo", FAMILIES[0][1], PORT, **{f"FI_VMA_ETHERNET_{name}": word})
    server.finish()
    assert server.proc.stderr().count(said) == 1


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_where_frames_are_taken(run, hosts, mode):
    server = listening(run, hosts.left, "tcp_echo", "listen", FAMILIES[0][1], PORT, FI_VMA_ETHERNET_XDP=mode)
    data = os.urandom(300_001)
    assert echoed(hosts.right, FAMILIES[0][1], data) == hashlib.sha256(data).digest()
    server.finish()
    assert f" queues, {mode} XDP, " in server.proc.stderr()


