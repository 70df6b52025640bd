# SPDX-License-Identifier: BSD-2-Clause
"""vma_dump beside a program on an Ethernet port, whose peer is the kernel's: both directions of a stream, and datagrams."""

import pytest

from lib import build, vmadump
from lib.vmastats import PYTHON, script, wait_for
from lib.wire import LEFT, RIGHT

ENV = {"VMA_ETHERNET": "wire"}

SERVE = """
listener = socket.create_server(("{left}", {port}))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(("{left}", {port}))
print("ready", flush=True)
s, _ = listener.accept()
while data := s.recv(4096):
    s.sendall(data)
    got, peer = u.recvfrom(4096)
    u.sendto(got, peer)
"""

ASK = """
import os, socket
s = socket.create_connection(("{left}", {port}))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.connect(("{left}", {port}))
i = 0
last = None
while i != last:
    message = i.to_bytes(4, "big") * 25
    s.sendall(message)
    left = 100
    u.send(message)
    while left:
        left -= len(s.recv(left))
    u.recv(1000)
    i += 1
    if last is None and os.path.exists("go"):
        last = i + 500
print("sent", i, flush=True)
"""


@pytest.fixture
def wire(run, hosts):
    for host in hosts.left, hosts.right:
        run.run("ethtool", [build.tool("ethtool"), "-K", "wire", "tx", "off"], netns=host.file)
    return hosts


def test_port(run, port, wire):
    server = script(run, "server", SERVE.format(left=LEFT, port=port), env=ENV, netns=wire.left.file).wait_output("ready")
    (run.work / "ask.py").write_text(ASK.format(left=LEFT, port=port))
    client = run.start("client", [PYTHON, "-u", run.work / "ask.py"], netns=wire.right.file)
    for protocol in "tcp", "udp":
        wait_for(run, server, lambda one, protocol=protocol: one["protocol"] == protocol and one["tx"]["bytes"] > 0,
                 f"{protocol} by the port")
    dump = vmadump.start(run, "-w", "port", "-p", server.pid, "-i", "port")
    (run.work / "go").touch()
    client.ok()
    server.ok()
    captured, _, dropped = vmadump.end(dump)
    packets = vmadump.parse((run.work / "port").read_bytes())
    assert dropped == 0 and captured == len(packets) == len(vmadump.tcpdump(run.work / "port"))
    whole = b"".join(i.to_bytes(4, "big") * 25 for i in range(int(client.stdout().split()[1])))
    for out in True, False:
        stream = [one for one in packets if one.out == out and not one.udp]
        datagrams = [one for one in packets if one.out == out and one.udp]
        start, data = vmadump.stream(stream)
        assert data == whole[start:] and len(data) >= 500 * 100
        assert b"".join(one.data for one in datagrams) == whole[-100 * len(datagrams):] and len(datagrams) >= 500
        for one in *stream, *datagrams:
            here, there = (one.source, one.target) if out else (one.target, one.source)
            assert here == (LEFT, port) and there[0] == RIGHT
            assert one.interface == f"wire@{server.pid}"
