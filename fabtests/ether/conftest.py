# SPDX-License-Identifier: BSD-2-Clause
"""The wire lab: two hosts on one veth pair. On the left one programs take frames with AF_XDP, the right one has the kernel only."""

import socket

import pytest

from lib import build, guardian, multicast, netns, port
from lib.wire import FrameEcho, set_sysctl


@pytest.fixture(scope="session")
def af_xdp():
    try:
        socket.socket(44, socket.SOCK_RAW).close()
    except OSError as error:
        pytest.skip(f"no AF_XDP sockets: {error}")


@pytest.fixture
def hosts(af_xdp):
    made = netns.hosts()
    for host in made.all:  # tests count on each refusal
        set_sysctl(host, "ipv4/icmp_ratelimit", 0)
        set_sysctl(host, "ipv6/icmp/ratelimit", 0)
    yield made
    made.remove()


@pytest.fixture(scope="module")
def wired(af_xdp):
    """The hosts of all tests of a file."""
    made = netns.hosts()
    yield made
    made.remove()


@pytest.fixture
def lab(run, wired):
    """Programs on them, over the left one's port."""
    return port.Lab(run, wired)


@pytest.fixture
def start(run, hosts):
    """start(argument...): frame_echo on the left host's wire. Its end is orderly at the end of the test."""
    programs = []

    def started(*argv):
        programs.append(FrameEcho(run, hosts.left, *argv))
        return programs[-1]

    yield started
    for program in programs:
        program.finish()


@pytest.fixture
def scene(run, hosts):
    if not build.intercepts():
        pytest.skip("libvma.so of this build intercepts nothing")
    made = multicast.Scene(run, hosts)
    yield made
    made.finish()


@pytest.fixture
def vmad(run):
    started = guardian.Vmad(run)
    yield started
    if started.proc.alive():
        assert started.proc.stop() == 0
        assert not started.path.exists()
