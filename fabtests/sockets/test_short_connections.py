# SPDX-License-Identifier: BSD-2-Clause
"""Connections that end just when they leave the kernel: nothing is lost, and nobody is warned of anything."""
import pytest

from lib import pairing, peers


@pytest.mark.parametrize("calls", ["32", None], ids=["as-told", "learns"])
def test_closed_while_it_leaves(run, calls):
    env = {"VMA_SPEC": "none", **({"VMA_LIFT_AFTER": calls} if calls else {})}
    for proc in peers.run_both(run, pairing.VMA_DEFAULT, "sockets/programs/short_connections", env=env):
        assert not [line for line in proc.log().lines if "WARNING" in line or "ERROR" in line]
        accelerated = sum(": accelerated: " in line for line in proc.log().lines)
        assert accelerated > 100 if calls else accelerated < 200


def test_by_the_kernel(run):
    peers.run_both(run, pairing.KERNEL, "sockets/programs/short_connections")
