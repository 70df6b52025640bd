# SPDX-License-Identifier: BSD-2-Clause
"""Instructions of a server a small message, by the calls that it makes and the connections that it has, all of it in user space: recv()
and send(), with poll() or epoll_wait() before them. Counted by callgrind, so that a busy machine changes little. Compilers, libcs and
processors change the counts themselves, so ways are compared with each other, in one run; doc/multiplexing.md has figures, and those of
the time before events were told in the order of arrival, which cost a third more until it was counted."""

import re

import pytest

from lib import build, pairing, peers

pytestmark = pytest.mark.alone

PROGRAM = "sockets/programs/message_cost"
# The call, connections, messages on each at a time.
RECV, POLL, EPOLL, EPOLL_8, EPOLL_50 = ("recv", 1, 20), ("poll", 1, 20), ("epoll", 1, 20), ("epoll", 8, 4), ("epoll", 50, 1)
# The kernel's side is not in its count: what a recv() and a send() are of libc and the program.
KERNEL = "recv() over the kernel"
# So many times what the other one takes at most: a quarter to a third more than they were, 1.9, 1.8, 0.87, 0.97 and 10.3.
MOST = [(POLL, RECV, 2.5), (EPOLL, RECV, 2.35), (EPOLL_8, EPOLL, 1.15), (EPOLL_50, EPOLL, 1.25), (RECV, KERNEL, 13.5)]


def count(run, tmp_path, way) -> float:
    """Instructions a message."""
    valgrind = [build.tool("valgrind"), "--tool=callgrind", f"--callgrind-out-file={tmp_path}/profile", "--toggle-collect=answer_round"]
    pair, words = (pairing.KERNEL, RECV) if way == KERNEL else (pairing.VMA_LATENCY, way)
    server, _ = peers.run_both(run, pair, PROGRAM, *words, offload=True,
                               server_options={"argv": [*valgrind, build.program(PROGRAM)]})
    counted = int(re.search(r"Collected : (\d+)", server.stderr())[1])
    return counted / int(re.fullmatch(r"(\d+) messages\n", server.stdout())[1])


@pytest.mark.skipif(build.sanitized(), reason="valgrind does not run what a sanitizer watches")
def test_message_cost(run, tmp_path):
    """Neither a way to wait nor the number of connections may cost more than it does of another way's cost."""
    costs = {way: count(run, tmp_path, way) for way in (KERNEL, RECV, POLL, EPOLL, EPOLL_8, EPOLL_50)}
    ratios = [(way, other, costs[way] / costs[other], most) for way, other, most in MOST]
    said = "\n".join([f"{way}: {cost:.0f} instructions a message" for way, cost in costs.items()] +
                     [f"{way}: {ratio:.2f} times that of {other}, {most} at most" for way, other, ratio, most in ratios])
    print(said)
    assert all(ratio <= most for *_, ratio, most in ratios), said
