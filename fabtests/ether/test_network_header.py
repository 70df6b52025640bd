# SPDX-License-Identifier: BSD-2-Clause
"""get_socket_network_header(): what it says is what the frames of the socket on the wire begin with."""

import contextlib
import json
import socket
import struct
import subprocess
import threading

import pytest

from lib import build, patience
from lib.wire import LEFT, LEFT6, RIGHT, RIGHT6, inside

PORT = 7001
ETH_P_IP, ETH_P_IPV6 = 0x0800, 0x86dd


@pytest.fixture
def wire(run, hosts):
    for host in hosts.left, hosts.right:
        run.run("ethtool", [build.tool("ethtool"), "-K", "wire", "tx", "off"], netns=host.file)
    return hosts


def mac_of(host) -> bytes:
    shown = subprocess.run(["ip", "-n", host.name, "-j", "link", "show", "wire"], capture_output=True, check=True)
    return bytes.fromhex(json.loads(shown.stdout)[0]["address"].replace(":", ""))


def echo(host, family, kind, address):
    """An echo of the kernel's; the ports that it was sent to from."""
    with inside(host):
        s = socket.socket(family, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, PORT))
    s.settimeout(patience.seconds())
    ports = set()

    def answer():
        with s:
            while True:
                data, source = s.recvfrom(2000)
                ports.add(source[1])
                s.sendto(data, source)

    def answer_stream():
        with s:
            stream, source = s.accept()
            ports.add(source[1])
            with stream:
                stream.settimeout(patience.seconds())
                while data := stream.recv(2000):
                    stream.sendall(data)

    def run():
        with contextlib.suppress(OSError):
            (answer if kind == socket.SOCK_DGRAM else answer_stream)()

    if kind == socket.SOCK_STREAM:
        s.listen()
    threading.Thread(target=run, daemon=True).start()
    return ports


def checksum(header: bytes) -> int:
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return total


def check_ipv4(header: bytes, protocol: int, behind: int):
    assert header[0] == 0x45 and struct.unpack(">H", header[2:4])[0] == 20 + behind
    assert header[8] == 64 and header[9] == protocol and checksum(header) == 0xffff
    assert header[12:16] == socket.inet_aton(LEFT) and header[16:20] == socket.inet_aton(RIGHT)


def check_ipv6(header: bytes, protocol: int, behind: int):
    assert header[0] >> 4 == 6 and struct.unpack(">H", header[4:6])[0] == behind and header[6:8] == bytes((protocol, 64))
    assert header[8:24] == socket.inet_pton(socket.AF_INET6, LEFT6)
    assert header[24:40] == socket.inet_pton(socket.AF_INET6, RIGHT6)


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["udp", "tcp"])
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["ipv4", "ipv6"])
def test_header(run, wire, family, kind):
    v4, stream = family == socket.AF_INET, kind == socket.SOCK_STREAM
    peer = RIGHT if v4 else RIGHT6
    ports = echo(wire.right, family, kind, peer)
    done = run.run("program", [build.program("extra/programs/extra_api"), "header", str(PORT)], vma=True,
                   env={"VMA_ETHERNET": "wire", "VMA_LIFT_AFTER": "4", "HEADER_HOST": peer,
                        **({"HEADER_STREAM": "1"} if stream else {})}, netns=wire.left.file)
    header = bytes.fromhex(done.stdout().strip())
    assert header[:6] == mac_of(wire.right) and header[6:12] == mac_of(wire.left)
    assert struct.unpack(">H", header[12:14])[0] == (ETH_P_IP if v4 else ETH_P_IPV6)
    transport = header[34 if v4 else 54:]
    (check_ipv4 if v4 else check_ipv6)(header[14:len(header) - len(transport)],
                                       socket.IPPROTO_TCP if stream else socket.IPPROTO_UDP, len(transport))
    assert {struct.unpack(">H", transport[:2])[0]} == ports and struct.unpack(">H", transport[2:4])[0] == PORT
    assert transport[4:] == (bytes(8) + b"\x50" + bytes(7) if stream else b"\0\x08\0\0")
