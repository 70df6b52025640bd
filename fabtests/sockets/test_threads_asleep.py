# SPDX-License-Identifier: BSD-2-Clause
"""Many threads of a process, each asleep for a socket of its own: what comes for one wakes none of the others."""
import pytest

from lib import pairing, peers

pytestmark = pytest.mark.alone

ENV = {"spins": {"VMA_SPEC": "none"}, "sleeps": {"VMA_SPEC": "none", "VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"}}


@pytest.mark.parametrize("spec", sorted(ENV))
@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize("way", ["recv", "poll", "poll_two", "epoll"])
def test_one_is_woken(run, way, transport, spec):
    peers.run_both(run, pairing.VMA_LATENCY, "sockets/programs/threads_asleep", way, transport, offload=True, env=ENV[spec])


@pytest.mark.parametrize("transport", ["tcp", "udp"])
@pytest.mark.parametrize("way", ["recv", "poll", "poll_two", "epoll"])
def test_by_the_kernel(run, way, transport):
    peers.run_both(run, pairing.KERNEL, "sockets/programs/threads_asleep", way, transport)
