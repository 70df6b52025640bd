# SPDX-License-Identifier: BSD-2-Clause
"""Programs that allow themselves few system calls (seccomp), before, while and after their connections are accelerated: they go on as on
the kernel alone. The library makes no call then that the program would not make itself. doc/sandboxes.md"""

import pytest

from lib import pairing, peers

PROGRAM = "sockets/programs/sandbox"

# Who sets the filter: the program, by libc's functions of several names; another thread, for all of them or for itself; a child; or
# instructions of the program's own, which nothing tells of before.
BY = ["prctl", "syscall", "seccomp", "tsync", "thread", "other", "child"]
CASES = [(when, how, action)
         for when in ("accepted", "running") for how in BY for action in ("kill", "trap", "errno")]
CASES += [("first", how, action) for how in ("prctl", "seccomp") for action in ("kill", "trap", "errno")]
CASES += [("accepted", "instruction", action) for action in ("kill", "trap", "errno")]
CASES += [("accepted", "strict", "kill"), ("running", "strict", "kill")]


def transcript(run, pair, plan, **options):
    sides = peers.run_both(run, pair, PROGRAM, *plan, **options)
    return {proc.name.split("#")[0]: proc.stdout().splitlines() for proc in sides}, sides


@pytest.mark.parametrize("plan", CASES, ids="-".join)
def test_filter_of_its_own(run, plan):
    when, how, _ = plan
    wanted, _ = transcript(run, pairing.KERNEL, plan)
    # Else an accepted connection is a running one: its peer attaches before it sends.
    env = {} if when == "running" else {"VMA_LIFT_AT_CONNECT": "0"}
    got, (server, client) = transcript(run, pairing.VMA_LATENCY, plan, offload=when == "running", env=env)
    peers.compare(wanted, got)
    assert wanted["client"] == ["all came back"]
    lines = [line for line in server.log().lines if "system calls" in line and "INFO" in line]
    assert len(lines) == 1, lines
    assert (server.log().accelerated() >= 2) == (when == "running")
    assert (client.log().accelerated() >= 2) == (when == "running")


def test_reset_behind_unread_bytes(run):
    """It is not lost to who receives with MSG_WAITALL, for whom it looked like an orderly end."""
    plan = ("reset", "prctl", "kill")
    wanted, _ = transcript(run, pairing.KERNEL, plan)
    got, (server, _) = transcript(run, pairing.VMA_LATENCY, plan, offload=True)
    peers.compare(wanted, got)
    assert wanted["server"] == ["64, then -1 with 104, then 0"]
    assert server.log().accelerated() >= 2
