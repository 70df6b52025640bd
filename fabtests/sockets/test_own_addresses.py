# SPDX-License-Identifier: BSD-2-Clause
"""Two addresses of one host, neither of which is a loopback one: programs that talk from one to the other are on one host."""

import pytest

from lib import echo, netns

ADDRESSES = {"4": ("192.0.2.1", "192.0.2.2"), "6": ("2001:db8::1", "2001:db8::2")}

CLIENT = """
import os, select, socket, sys
kind, here, there = sys.argv[1:]
family = socket.AF_INET6 if ":" in here else socket.AF_INET
s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.settimeout(60 * float(os.environ["FABTESTS_PATIENCE"]))
s.bind((here, 0))
s.connect((there, 7000))
while not select.select([sys.stdin], [], [], 0)[0]:
    s.send(b"x")
    assert s.recv(8) == b"x"
"""


@pytest.fixture
def host():
    made = netns.made(netns.Host)
    for address in (one for pair in ADDRESSES.values() for one in pair):
        made.ip("addr", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))
    yield made
    made.remove()


@pytest.mark.parametrize("family", ADDRESSES)
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_from_one_to_the_other(run, host, feed, kind, family):
    here, there = ADDRESSES[family]
    options = {"vma": True, "netns": host.file, "env": {"VMA_LIFT_AFTER": "8"}}
    python = "/usr/bin/python3"
    server = run.start("server", [python, "-c", echo.SCRIPT, kind, there, 7000], **options)
    server.wait_output("ready")
    client = run.start("client", [python, "-c", CLIENT, kind, here, there], stdin=feed.file, **options)
    client.wait_log(lambda log: log.accelerated() != 0, "it to be accelerated")
    assert not [line for line in client.log().lines if "another host" in line]
    feed.go_on()
    client.ok()
    server.ok() if kind == "tcp" else server.stop()
