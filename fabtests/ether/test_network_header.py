# SPDX-License-Identifier: BSD-2-Clause
"""get_socket_network_header(): what it says is what the frames of the socket on the wire begin with."""

import json
import socket
import struct
import subprocess
import threading

import pytest

from lib import build
from lib.wire import LEFT, PATIENCE, RIGHT, inside

PORT = 7001
ETH_P_IP = 0x0800


@pytest.fixture
def wire(run, hosts):
    for host in hosts.left, hosts.right:
        run.run("ethtool", [build.tool("ethtool"), "-K", "wire", "tx", "off"], preexec=host.enter)
    return hosts


def mac_of(host) -> bytes:
    shown = subprocess.run(["ip", "-n", host.name, "-j", "link", "show", "wire"], capture_output=True, check=True)
    return bytes.fromhex(json.loads(shown.stdout)[0]["address"].replace(":", ""))


def echo(host):
    with inside(host):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((RIGHT, PORT))
    s.settimeout(PATIENCE)
    ports = set()

    def answer():
        with s:
            while True:
                try:
                    data, source = s.recvfrom(2000)
                except OSError:
                    return
                ports.add(source[1])
                s.sendto(data, source)

    threading.Thread(target=answer, daemon=True).start()
    return ports


def checksum(header: bytes) -> int:
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return total


def test_header_of_a_datagram_socket(run, wire):
    ports = echo(wire.right)
    done = run.run("program", [build.program("extra/programs/extra_api"), "header", str(PORT)], vma=True,
                   env={"VMA_ETHERNET": "wire", "VMA_LIFT_AFTER": "4", "HEADER_HOST": RIGHT}, preexec=wire.left.enter)
    header = bytes.fromhex(done.stdout().strip())
    assert header[:6] == mac_of(wire.right) and header[6:12] == mac_of(wire.left)
    assert struct.unpack(">H", header[12:14])[0] == ETH_P_IP
    ip = header[14:34]
    assert ip[0] == 0x45 and struct.unpack(">H", ip[2:4])[0] == 28 and ip[8] == 64 and ip[9] == socket.IPPROTO_UDP
    assert ip[12:16] == socket.inet_aton(LEFT) and ip[16:20] == socket.inet_aton(RIGHT)
    assert checksum(ip) == 0xffff
    source, target, length, _sum = struct.unpack(">HHHH", header[34:])
    assert {source} == ports and target == PORT and length == 8
