# SPDX-License-Identifier: BSD-2-Clause
"""FI_EP_DGRAM of an Ethernet port, against the kernel's UDP on the other end of the wire and libfabric's own provider of it."""

import errno
import os
import socket
import struct

import pytest

from lib import build
from lib.wire import LEFT, LEFT6, RIGHT, RIGHT6, Asked, inside, is_listening, udp_socket, xdp_of

PORT, PEER_PORT = 7100, 7200
FAMILIES = [(socket.AF_INET, LEFT, RIGHT, "239.1.2.3", "239.1.2.4"),
            (socket.AF_INET6, LEFT6, RIGHT6, "ff15::1:2:3", "ff15::1:2:4")]
ENV = {"FI_PROVIDER_PATH": str(build.provider_dir()), "IPATH_NO_BACKTRACE": "1"}


@pytest.fixture
def wire(run, hosts):
    """The hosts, with checksums in the frames that the kernel sends: over veth it leaves them out."""
    for host in hosts.left, hosts.right:
        run.run("ethtool", [build.tool("ethtool"), "-K", "wire", "tx", "off"], netns=host.file)
    return hosts


@pytest.fixture
def echo(run, wire):
    """echo(argument...): datagram_echo on the left host. Its end is orderly."""
    programs = []

    def started(*argv):
        program = Asked(run, wire.left, "echo", build.program("ether/programs/datagram_echo"), *argv, env=ENV)
        programs.append(program)
        assert program.next_line() == "ready"
        return program

    yield started
    for program in programs:
        program.finish()
    assert not xdp_of(wire.left)


def peer_socket(host, family, address):
    made = udp_socket(host, family)
    made.bind((address, PEER_PORT))
    return made


@pytest.mark.parametrize("family, left, right, _in, _out", FAMILIES, ids=["ipv4", "ipv6"])
def test_echo(wire, echo, family, left, right, _in, _out):
    """From nothing to the longest; what takes several frames comes as fragments."""
    program = echo(left, PORT, right, PEER_PORT)
    sizes = [0, 1, 100, 1452, 1472, 1473, 3000, 30000, 65487 if family == socket.AF_INET6 else 65507]
    with peer_socket(wire.right, family, right) as sock:
        sock.connect((left, PORT))
        for size in sizes:
            data = os.urandom(size)
            sock.send(data)
            assert sock.recv(65536) == data, size
        for number in range(500):
            sock.send(struct.pack("!I", number))
            assert struct.unpack("!I", sock.recv(65536)) == (number,)
    program.close()
    program.proc.ok()
    assert program.next_line() == f"{len(sizes) + 500} datagrams"


def test_strangers(wire, echo):
    """Another port of the same host is another source, which the address vector doesn't know."""
    program = echo(LEFT, PORT, RIGHT, PEER_PORT)
    with udp_socket(wire.right) as stranger, peer_socket(wire.right, socket.AF_INET, RIGHT) as sock:
        stranger.sendto(b"stranger", (LEFT, PORT))
        sock.sendto(b"friend", (LEFT, PORT))
        assert sock.recv(100) == b"friend"
    program.close()
    program.proc.ok()
    assert program.next_line() == "1 datagrams"


@pytest.mark.parametrize("family, left, right, group_in, group_out", FAMILIES, ids=["ipv4", "ipv6"])
def test_groups(run, wire, echo, family, left, right, group_in, group_out):
    """What the kernel sends to a group arrives once, and what we send to one reaches its members; others hear nothing."""
    program = echo(left, PORT, right, PEER_PORT, group_in, group_out)
    with inside(wire.right):
        index = socket.if_nametoindex("wire")
    level, interface, join = ((socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.IPV6_JOIN_GROUP)
                              if family == socket.AF_INET6 else
                              (socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.IP_ADD_MEMBERSHIP))
    packed = socket.inet_pton(family, group_out)
    with peer_socket(wire.right, family, right) as sock:
        sock.setsockopt(level, interface, struct.pack("@i", index) if family == socket.AF_INET6 else
                        struct.pack("@4s4si", bytes(4), socket.inet_aton(right), index))
        listener = udp_socket(wire.right, family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with listener:
            listener.bind((group_out, PEER_PORT))
            listener.setsockopt(level, join, packed + struct.pack("@i", index) if family == socket.AF_INET6 else
                                struct.pack("@4s4si", packed, socket.inet_aton(right), index))
            for number in range(50):
                data = struct.pack("!I", number)
                run.wait_until(lambda: reaches(sock, data, (group_in, PORT)), "the route of groups")
                assert listener.recv(100) == data
            sock.sendto(b"nobody's", (group_out, PORT))
    program.close()
    program.proc.ok()
    assert program.next_line() == "50 datagrams"


@pytest.mark.parametrize("server, client", [("vma", "udp"), ("vma", "vma")])
@pytest.mark.parametrize("size", [64, 1400])
def test_pingpong(run, wire, server, client, size):
    """Debian's fi_pingpong, with the kernel's UDP under libfabric's provider `udp` at the other end or with us at both. The
    server is ours: the provider `udp` offers a fresh host's loopback to its clients."""
    def start(name, host, provider, *more):
        return run.start(name, [build.tool("fi_pingpong"), "-p", provider, "-d", "wire", "-e", "dgram", "-I", "200", "-S",
                                str(size), *more], netns=host.file, env=ENV)

    listening = start("server", wire.right, server)
    run.wait_until(lambda: is_listening(wire.right, 47592), "the server to listen", proc=listening)
    start("client", wire.left, client, RIGHT).ok()
    listening.ok()


def reaches(sock, data, address) -> bool:
    """False as long as a fresh interface has no way to groups."""
    try:
        sock.sendto(data, address)
    except OSError as error:
        if error.errno != errno.ENETUNREACH:
            raise
        return False
    return True
