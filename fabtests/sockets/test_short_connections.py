# SPDX-License-Identifier: BSD-2-Clause
"""Connections that end just when they leave the kernel: nothing is lost, and nobody is warned of anything."""
import pytest

from lib import pairing, peers


PROGRAM = "sockets/programs/short_connections"


def counts(run, **env):
    """Of each side: how many connections were accelerated, and how many stayed, as they ended before that was tried."""
    found = []
    for proc in peers.run_both(run, pairing.VMA_DEFAULT, PROGRAM, env={"VMA_SPEC": "none", **env}):
        lines = proc.log().lines
        assert not [line for line in lines if "WARNING" in line or "ERROR" in line]
        found.append([sum(said in line for line in lines) for said in (": accelerated: ", "VMA_LIFT_AFTER is")])
    print(f"{found} accelerated and stayed with {env}")
    return found


def test_closed_while_it_leaves(run):
    """Each that makes so many calls leaves if it is told so. Unasked the library learns that it isn't worth it. How many have left before
    they are closed is the machine's affair, and how many try is not."""
    for told, learns in zip(counts(run, VMA_LIFT_AFTER="32"), counts(run), strict=True):
        assert told[0] > 0 and learns[1] > 2 * told[1] > 0


def test_by_the_kernel(run):
    peers.run_both(run, pairing.KERNEL, PROGRAM)
