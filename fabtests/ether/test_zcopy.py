# SPDX-License-Identifier: BSD-2-Clause
"""Zero-copy receive on an Ethernet port: frames are held while others come, and go back to the kernel's ring in any order; what streams have
received is lent out of the stack's memory."""

import re

import pytest

from lib import build
from lib.wire import LEFT

PORT = 7001


@pytest.fixture
def wire(run, hosts):
    for host in hosts.left, hosts.right:
        run.run("ethtool", [build.tool("ethtool"), "-K", "wire", "tx", "off"], netns=host.file)
    return hosts


def test_datagrams_without_a_copy(run, wire):
    program = build.program("extra/programs/extra_api")
    receiver = run.start("receiver", [program, "udp_zcopy", str(PORT)], vma=True, env={"VMA_ETHERNET": "wire"},
                         netns=wire.left.file)
    sender = run.start("sender", [program, "send", LEFT, str(PORT)], netns=wire.right.file)
    found = re.search(r"lent (\d+), copied \d+, held (\d+)", receiver.ok().stdout())
    sender.stop()
    assert found and int(found[1]) == 20000 and int(found[2]) > 100
    assert any(re.search(r"UDP .*accelerated: port wire", line) for line in receiver.log().lines)


@pytest.mark.parametrize("gives", [True, False], ids=["gives", "nothing"])
def test_frames_of_the_programs_own(run, wire, gives):
    """The allocator of ioctl() gives their memory, or the library goes on with its own, and says so."""
    program = build.program("extra/programs/extra_api")
    receiver = run.start("receiver", [program, "own_frames", str(PORT)], vma=True, netns=wire.left.file,
                         env={"VMA_ETHERNET": "wire", **({} if gives else {"OWN_FRAMES_NONE": "1"})})
    sender = run.start("sender", [program, "send", LEFT, str(PORT)], netns=wire.right.file)
    receiver.ok()
    sender.stop()
    told = "frames lie in" if gives else "the program's allocator has no"
    assert sum(told in line for line in receiver.log().lines) >= 1


def receive_stream(run, wire, scenario):
    """(lent, copied, bytes): a stream of the right host's kernel, received by extra_api on the left one."""
    program = build.program("extra/programs/extra_api")
    receiver = run.start("receiver", [program, scenario, str(PORT)], vma=True, netns=wire.left.file,
                         env={"VMA_ETHERNET": "wire", "VMA_LIFT_AFTER": "8"})
    receiver.wait_output("listening")
    sender = run.start("sender", [program, "send_stream", LEFT, str(PORT)], netns=wire.right.file)
    output = receiver.ok().stdout()
    sender.stop()
    assert any(re.search(r"accelerated: port wire", line) for line in receiver.log().lines)
    found = re.search(r"lent (\d+), copied (\d+), bytes (\d+)", output)
    return [int(number) for number in found.groups()] if found else None


def test_a_stream_without_a_copy(run, wire):
    """From the first loan on all is lent: the receiver waits for input before each receive, and gives back at once. Before that the
    kernel has the connection, and the sender sends little until it is told of a loan."""
    lent, copied, length = receive_stream(run, wire, "tcp_zcopy")
    assert copied == 0 and lent > length / 4096 / 2


def test_a_stream_that_is_kept(run, wire):
    """A quarter of the stack's memory, 16,384 blocks of 4 KiB, is lent at most; the rest is copied."""
    lent, copied, length = receive_stream(run, wire, "tcp_kept")
    assert lent >= 4096 and copied > 100 and length > 16384 * 4096


def test_a_stream_that_is_held_over_a_fork(run, wire):
    receive_stream(run, wire, "tcp_held_over_fork")
