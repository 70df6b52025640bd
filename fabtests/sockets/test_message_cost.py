# SPDX-License-Identifier: BSD-2-Clause
"""Instructions of a server a small message, by the calls that it makes and the connections that it has, all of it in user space: recv()
and send(), with poll() or epoll_wait() before them. Counted by callgrind, so that a busy machine changes nothing; doc/multiplexing.md has
the figures, and those of the time before events were told in the order of arrival, which cost a third more until it was counted."""

import re

import pytest

from lib import build, pairing, peers

PROGRAM = "sockets/programs/message_cost"
# Another patch level of the compiler may choose otherwise. And a client of which nothing runs at the moment has a bell
# rung by the next answer: by how busy the machine is that makes 3 % more or less.
MARGIN = 1.1
# The call, connections, messages on each at a time; at most so many instructions a message.
CASES = [("recv", 1, 20, 1190), ("poll", 1, 20, 2300), ("epoll", 1, 20, 2160), ("epoll", 8, 4, 1870), ("epoll", 50, 1, 2110)]


@pytest.mark.skipif(build.sanitized(), reason="valgrind does not run what a sanitizer watches")
@pytest.mark.parametrize("call, connections, messages, most", CASES, ids=lambda value: str(value))
def test_message_cost(run, tmp_path, call, connections, messages, most):
    valgrind = [build.tool("valgrind"), "--tool=callgrind", f"--callgrind-out-file={tmp_path}/profile", "--toggle-collect=answer_round"]
    server, _ = peers.run_both(run, pairing.VMA_LATENCY, PROGRAM, call, connections, messages, offload=True,
                               server_options={"argv": [*valgrind, build.program(PROGRAM)]})
    counted = int(re.search(r"Collected : (\d+)", server.stderr())[1])
    cost = counted // int(re.fullmatch(r"(\d+) messages\n", server.stdout())[1])
    print(f"{call}, {connections} connections: {cost} instructions a message")
    assert cost <= MARGIN * most
