# SPDX-License-Identifier: BSD-2-Clause
"""Zero-copy receive on an Ethernet port: frames are held while others come, and go back to the kernel's ring in any order."""

import re

import pytest

from lib import build
from lib.wire import LEFT

PORT = 7001


@pytest.fixture
def wire(run, hosts):
    for host in hosts.left, hosts.right:
        run.run("ethtool", [build.tool("ethtool"), "-K", "wire", "tx", "off"], preexec=host.enter)
    return hosts


def test_datagrams_without_a_copy(run, wire):
    program = build.program("extra/programs/extra_api")
    receiver = run.start("receiver", [program, "udp_zcopy", str(PORT)], vma=True, env={"VMA_ETHERNET": "wire"},
                         preexec=wire.left.enter)
    sender = run.start("sender", [program, "send", LEFT, str(PORT)], preexec=wire.right.enter)
    found = re.search(r"lent (\d+), copied \d+, held (\d+)", receiver.ok().stdout())
    sender.stop()
    assert found and int(found[1]) == 20000 and int(found[2]) > 100
    assert any(re.search(r"UDP .*accelerated: port wire", line) for line in receiver.log().lines)
