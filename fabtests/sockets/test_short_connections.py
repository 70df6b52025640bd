# SPDX-License-Identifier: BSD-2-Clause
"""Connections that end just when they leave the kernel: nothing is lost, and nobody is warned of anything."""
import re

import pytest

from lib import pairing, peers


PROGRAM = "sockets/programs/short_connections"


def accelerated_after(run, *lengths, **env):
    """Of each side: after how many calls each connection was accelerated that was."""
    found = []
    for proc in peers.run_both(run, pairing.VMA_DEFAULT, PROGRAM, *lengths, env={"VMA_SPEC": "none", **env}):
        lines = proc.log().lines
        assert not [line for line in lines if "WARNING" in line or "ERROR" in line]
        found.append([int(calls) for line in lines for calls in re.findall(r": accelerated: .* after (\d+) sends and", line)])
    print(f"{[len(calls) for calls in found]} accelerated with {env}, after {[sorted(calls)[:4] for calls in found]} calls")
    return found


@pytest.mark.parametrize("env", ({"VMA_LIFT_AFTER": "32"}, {}), ids=("told", "unasked"))
def test_closed_while_it_leaves(run, env):
    """How many have left before they are closed is the machine's affair."""
    assert all(accelerated_after(run, **env))


def test_who_has_met_waits_less(run):
    """Where connections of the same two processes go on behind the calls that they waited, the next ones wait less."""
    for told, learns in zip(accelerated_after(run, 40, 40, VMA_LIFT_AFTER="32"), accelerated_after(run, 40, 40), strict=True):
        assert min(told) >= 32 > min(learns)


def test_who_has_met_leaves_before_the_first_byte(run):
    """Where that would have gained most, and nobody has said anything of it."""
    for told, learns in zip(accelerated_after(run, 40, 40, VMA_LIFT_AT_CONNECT="0"), accelerated_after(run, 40, 40), strict=True):
        assert min(told) > 0 == min(learns)


def test_by_the_kernel(run):
    peers.run_both(run, pairing.KERNEL, PROGRAM)
