# SPDX-License-Identifier: BSD-2-Clause
"""The calls of the extra API, each by a program that uses them."""

import re

import pytest

from lib import build, expect

SCENARIOS = ("table", "options", "calls", "allocator", "threads", "udp_zcopy", "tcp_zcopy", "udp_callback",
             "tcp_held_over_fork", "tcp_kept", "callback_waits", "callback_header", "xtreme", "xtreme_many", "xtreme_flood", "xtreme_threads", "xtreme_full")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(run, scenario):
    run.expect_errors = scenario == "calls"  # rules that are none
    run.run("program", [build.program("extra/programs/extra_api"), scenario], vma=True, env={
        "VMA_LIFT_AFTER": "8", "VMA_SOCKETXTREME": "1" if scenario.startswith("xtreme") else "0"})


def test_dummies(run):
    done = run.run("program", [build.program("extra/programs/extra_api"), "dummies"], vma=True,
                   env={"VMA_LIFT_AFTER": "8", "VMA_TRACELEVEL": "info"})
    sent = re.search(r"dummies (\d+)", done.stdout())[1]
    assert any(line.endswith(f"dummy sends: {sent}") for line in done.log().lines)


# How a connection is: by the kernel for good, accelerated after some messages, and at the first.
WAYS = {"plain": {"VMA_LIFT_AFTER": "1000000000", "CALLBACK_PLAIN": "1"}, "accelerated": {"VMA_LIFT_AFTER": "8"}, "latency": {"VMA_SPEC": "latency"}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("off", (1001, 4000000000), ids=("ended", "kept"))
@pytest.mark.parametrize("after", (0, 1, 100))
@pytest.mark.parametrize("verdict", (0, 1, 2), ids=("drop", "receive", "hold"))
def test_tcp_callback(run, verdict, after, off, way):
    """Of a TCP socket, which ended in endless recursion at the first message. The program checks how the connection is."""
    env = {"CALLBACK_ANSWER": str(verdict), "CALLBACK_AFTER": str(after), "CALLBACK_OFF": str(off)}
    run.run("program", [build.program("extra/programs/extra_api"), "tcp_callback"], vma=True, env=env | WAYS[way])


@pytest.mark.parametrize("scenario", ("udp_callback_faults", "tcp_callback_faults"))
def test_memory_that_is_not_there(run, scenario):
    """It ended the program, and MSG_TRUNC of a datagram returned the room for it."""
    if build.sanitized():
        pytest.skip("the sanitizer has handlers of SIGSEGV and SIGBUS of its own, and checks arguments before us")
    run.run("program", [build.program("extra/programs/extra_api"), scenario], vma=True, env={"VMA_LIFT_AFTER": "8"})


@pytest.mark.parametrize("way", WAYS)
def test_tcp_callback_of_a_stream(run, way):
    done = run.run("program", [build.program("extra/programs/extra_api"), "tcp_callback_stream"], vma=True, env=WAYS[way])
    assert re.search(r"asked about [1-9]\d{7}", done.stdout())


@pytest.mark.parametrize("way", WAYS)
def test_socketxtreme_tells_an_end(run, way):
    """An orderly one is no error."""
    def ask(times):
        env = WAYS[way] | {"VMA_SOCKETXTREME": "1", "XTREME_WORDS": str(3000 * times)}
        done = run.run("program", [build.program("extra/programs/extra_api"), "xtreme_end"], vma=True, env=env)
        return bool(done.log().accelerated()) == (way != "plain")
    expect.in_time(run, ask, "it to be accelerated")


@pytest.mark.parametrize("accelerated", (False, True), ids=("before", "after"))
@pytest.mark.parametrize("v6", (False, True), ids=("v4", "v6"))
@pytest.mark.parametrize("tcp", (False, True), ids=("udp", "tcp"))
def test_every_entry(run, tcp, v6, accelerated):
    """By the program and by its receive callback."""
    env = {"MATRIX_TCP": str(int(tcp)), "MATRIX_V6": str(int(v6)), "MATRIX_ACCELERATED": str(int(accelerated))}
    run.run("program", [build.program("extra/programs/extra_api"), "matrix"], vma=True,
            env=env | {"VMA_LIFT_AFTER": "8" if accelerated else "1000000000"})
