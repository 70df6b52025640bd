# SPDX-License-Identifier: BSD-2-Clause
"""What one peer did on A before it did something on B is never reported later: the same program over the kernel and over the library,
which spins, or sleeps at once."""

import pytest

from lib import build, pairing, peers

pytestmark = pytest.mark.alone

ENV = {
    "none": {"VMA_SPEC": "none"},
    "latency": {"VMA_SPEC": "latency"},
    "sleeps": {"VMA_SPEC": "none", "VMA_SELECT_POLL": "0"},
}


def test_kernel(run):
    run.start("program", [build.program("sockets/programs/event_order")], vma=False).ok()


@pytest.mark.parametrize("spec", sorted(ENV))
def test_event_order(run, spec):
    env = {**ENV[spec], "VMA_LIFT_AFTER": "1", "FABTEST_LIFT": "1"}
    proc = run.start("program", [build.program("sockets/programs/event_order")], vma=True, env=env).ok()
    assert proc.log().accelerated() == 128


@pytest.mark.parametrize("spec", sorted(ENV))
def test_acts_of_a_peer(run, spec):
    """Each way of doing something by the kernel, before a byte by an endpoint."""
    peers.run_both(run, pairing.VMA_LATENCY, "sockets/programs/event_acts", offload=True, env=ENV[spec])
