# SPDX-License-Identifier: BSD-2-Clause
"""One side of an accelerated connection is killed, stopped for a while, or stopped and killed, at points of what the library does
that a seed draws: no byte is lost, doubled or out of its place, no end is silent, nobody waits for ever. doc/fault-injection.md;
inject.py --all takes all points.

FABTESTS_SEED repeats a run, FABTESTS_STEPS_SECONDS says how long it takes."""

import os
import platform

import pytest

import inject
from lib import build, steps

SECONDS = float(os.environ.get("FABTESTS_STEPS_SECONDS") or 100)
SEED = int(os.environ["FABTESTS_SEED"])  # conftest.py draws it

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the harness knows the instructions of x86-64 only"),
    pytest.mark.skipif(build.sanitized(), reason="a sanitizer's shadow memory is many steps more, and none of ours"),
]


@pytest.fixture
def harness(run):
    return steps.Harness(steps.environment(run.shm))


def test_a_sample(harness):
    table = steps.Table()
    stretches = [steps.Where(scenario, buffer) for scenario in steps.scenarios() for buffer in steps.BUFFERS]
    print(f"FABTESTS_SEED={SEED}")
    inject.sample(harness, stretches, ("kill", "stop", "stop-kill", "poll", "jump"), table, SEED, SECONDS)
    print(table.text())
    assert not table.wrong, f"FABTESTS_SEED={SEED}\n{table.faults()}\n{table.text()}"
    reached = sum(row["reached"] for row in table.rows.values())
    assert reached > sum(row["steps"] for row in table.rows.values()) / 2, f"points are not found again\n{table.text()}"


# send, receive, poll, epoll_wait, the moment of acceleration, close, fork, connect, accept
CALLS = ["send", "read_end", "poll_reader", "epoll_reader", "offload_connector", "end_close", "fork_past", "connect", "accept"]


@pytest.mark.parametrize("call", CALLS)
def test_a_signal_in_a_call(harness, call):
    """Handlers that count, poll, send, receive and jump, and cancellation."""
    table = steps.Table()
    print(f"FABTESTS_SEED={SEED}")
    inject.of_threads(harness, [steps.Where(call, 0)], table, SEED, each=3)
    print(table.text())
    assert not table.wrong, f"FABTESTS_SEED={SEED}\n{table.faults()}\n{table.text()}"


@pytest.mark.parametrize("breaks, verdict", [("lose", "lost"), ("double", "doubled")])
def test_finds(run, breaks, verdict):
    """The harness itself is looked at: a side that counts wrongly."""
    harness = steps.Harness(steps.environment(run.shm, STEP_BREAK=breaks))
    found = harness.survey(steps.Where("end_close", 0, library=False))
    assert found["verdict"] == verdict, found
    assert harness.run(steps.Where("end_close", 0, library=False), "stop", found["points"][:1])[0]["verdict"] == verdict


def test_points_are_those_of_the_library(harness):
    """A survey sees system calls and shared memory: more than the kernel's own path has."""
    with_library = harness.survey(steps.Where("end_close", 0))
    without = harness.survey(steps.Where("end_close", 0, library=False))
    assert len(with_library["points"]) > len(without["points"]) > 0
    assert harness.run(steps.Where("end_close", 0), "kill", with_library["points"][-1:])[0]["reached"]
