# SPDX-License-Identifier: BSD-2-Clause
"""Rings: which connections share one (VMA_RING_ALLOCATION_LOGIC_RX and its kin), that all waits hear of all of them, and that a
connection moves with its threads."""

import os
import re

import pytest

from lib import build

pytestmark = pytest.mark.alone

LATENCY = {"VMA_SPEC": "latency"}
SLEEPING = {"VMA_SPEC": "none", "VMA_LIFT_AFTER": "1", "VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"}
POLITE = {"VMA_SPEC": "none", "VMA_LIFT_AFTER": "1"}
STAY = {"VMA_RING_MIGRATION_RATIO_RX": "-1"}


def start(run, command, *arguments, stdin=None, **env):
    return run.start("program", [build.program("sockets/programs/rings"), command, *map(str, arguments)], vma=True,
                     env={**POLITE, "FABTEST_LIFT": "1", **env}, stdin=stdin)


def accelerated(proc):
    return [line for line in proc.log().lines if ": accelerated: device local" in line]


def rings(proc):
    """The ring of each connection's end, in the order in which they were accelerated."""
    said = [line for line in proc.log().lines if ": accelerated: device local" in line or ": on ring " in line]
    found = []
    for line in said:
        on = re.search(r": on ring (\d+)$", line)
        if on:
            found.append(int(on[1]))
    return found + [0] * (len(accelerated(proc)) - len(found))


@pytest.mark.parametrize("logic, count", [("0", 1), ("1", 1), ("10", 6), ("20", 3)])
def test_who_shares_a_ring(run, logic, count):
    proc = start(run, "threads", 3, 100, VMA_RING_ALLOCATION_LOGIC_RX=logic, **STAY).ok()
    on = rings(proc)
    assert len(on) == 6
    assert len(set(on)) == count
    assert (0 in on) == (logic == "0")


@pytest.mark.parametrize("logic", ["30", "31"])
def test_rings_of_processors(run, logic):
    proc = start(run, "threads", 3, 100, VMA_RING_ALLOCATION_LOGIC_RX=logic, **STAY).ok()
    assert 1 <= len(set(rings(proc))) <= (os.cpu_count() or 1) and 0 not in rings(proc)


@pytest.mark.parametrize("logic, after", [("30", 0), ("31", 1)])
def test_threads_are_attached(run, logic, after):
    before = len(os.sched_getaffinity(0))
    proc = start(run, "pinned", VMA_RING_ALLOCATION_LOGIC_RX=logic).ok()
    assert f"processors {before} {after or before}\n" in proc.stdout()


@pytest.mark.parametrize("limit, count", [("1", 1), ("2", 2), ("4", 4), ("0", 6)])
def test_rings_may_be_limited(run, limit, count):
    proc = start(run, "threads", 3, 100, VMA_RING_ALLOCATION_LOGIC_RX="10", VMA_RING_LIMIT_PER_INTERFACE=limit).ok()
    on = rings(proc)
    assert len(set(on)) == count
    assert max(on.count(ring) for ring in on) <= -(-6 // count)


@pytest.mark.parametrize("logic, count", [("10", 4), ("20", 2), ("0", 1)])
def test_a_socket_may_say_it_itself(run, logic, count):
    proc = start(run, "option", logic, 2, VMA_RING_ALLOCATION_LOGIC_RX="1").ok()
    assert len(set(rings(proc))) == count


@pytest.mark.parametrize("env", [LATENCY, POLITE, SLEEPING, {**SLEEPING, "VMA_INTERNAL_THREAD_ARM_CQ": "1"}],
                         ids=["latency", "polite", "sleeping", "armed"])
@pytest.mark.parametrize("how", ["poll", "select", "epoll", "nested"])
def test_one_thread_waits_on_all_rings(run, how, env):
    proc = start(run, "wait", how, 3, 200, **{**env, **STAY}, VMA_RING_ALLOCATION_LOGIC_RX="20").ok()
    assert len(set(rings(proc))) == 3


@pytest.mark.parametrize("env", [LATENCY, POLITE, SLEEPING], ids=["latency", "polite", "sleeping"])
def test_more_sockets_than_rings(run, env):
    proc = start(run, "threads", 20, 20, **env, VMA_RING_ALLOCATION_LOGIC_RX="10").ok()
    assert len(set(rings(proc))) == 32


@pytest.mark.parametrize("env", [POLITE, SLEEPING], ids=["polite", "sleeping"])
@pytest.mark.parametrize("ratio", ["0", "100"])
def test_a_connection_moves_with_its_thread(run, env, ratio):
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as end, os.fdopen(writer, "wb"):
        proc = start(run, "move", stdin=end, **env, VMA_RING_ALLOCATION_LOGIC_RX="20", VMA_RING_LIMIT_PER_INTERFACE="4",
                     VMA_RING_MIGRATION_RATIO_RX=ratio).wait_output("moving")
        run.wait_until(lambda: len(accelerated(proc)) >= 6, "both ends to be accelerated once more")
    proc.ok()
    assert [line for line in proc.log().lines if ": leaves ring " in line]
    assert set(rings(proc)) >= {1, 2}


def test_a_connection_that_may_not_move(run):
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as end:
        with os.fdopen(writer, "wb"):
            proc = start(run, "move", stdin=end, **STAY, VMA_RING_ALLOCATION_LOGIC_RX="20").wait_output("moving")
        proc.ok()
    assert not [line for line in proc.log().lines if ": leaves ring " in line]


@pytest.mark.parametrize("env", [POLITE, SLEEPING], ids=["polite", "sleeping"])
def test_a_fork(run, env):
    start(run, "fork", **env, VMA_RING_ALLOCATION_LOGIC_RX="10").ok()
