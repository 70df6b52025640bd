# SPDX-License-Identifier: BSD-2-Clause
"""Signal handlers that send, receive, poll and jump in the middle of their thread's own calls, however they are installed: nobody waits for
a lock that its own thread holds, and no byte is lost."""

import pytest

from lib import pairing, peers

PROGRAM = "sockets/programs/handlers"


@pytest.mark.pairs(pairing.KERNEL, *pairing.ACCELERATED)
@pytest.mark.parametrize("how", ["restart", "nodefer", "once"])
@pytest.mark.parametrize("what", ["send", "receive", "peek", "poll", "jump"])
def test_calls(run, pair, what, how):
    server, client = peers.run_both(run, pair, PROGRAM, what, how, offload=True)
    if what != "jump":  # which leaves open what its call has moved
        assert server.stdout() == client.stdout()
    if pair.both:
        assert client.log().accelerated() and server.log().accelerated()
