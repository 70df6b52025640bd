# SPDX-License-Identifier: BSD-2-Clause
"""Eight processes, with and without the library, that open, connect (with their first bytes too), send, fork, spawn, dup, pass, close,
change their buffers and rates, are stopped, for seconds too, and killed, at random: every byte is checked, and at the end nothing is
left (programs/soak).

It takes four minutes; FABTESTS_SOAK_SECONDS says otherwise (3600 is an hour: one command, see CONTRIBUTING.md). Each run draws its
seed, which the head of pytest's report names; FABTESTS_SEED takes that one. A seed that fails is run again by what the failed test prints last."""

import math
import os
import shlex
import time

import pytest

from lib import build, limits, patience, shared_dir

PROGRAM = "posix/programs/soak/soak"
SECONDS = float(os.environ.get("FABTESTS_SOAK_SECONDS") or (45 if build.sanitized() else 240))
WITHOUT = os.environ.get("FABTESTS_SOAK_WITHOUT", "")  # names of operations, with commas between: by hand only
ROUND = 5  # seconds; then everything is closed and looked at
DESCRIPTORS = 2300  # programs/soak has numbers up to there
HANGS = 500  # seconds: the soak finds what hangs, and ends it, in less
FIRST_SEED = int(os.environ["FABTESTS_SEED"])  # conftest.py draws it


def command(run, seed, without, *more):
    return [build.program(PROGRAM), "--ledger", run.shm / "ledger", "--preload", build.preload(), "--seed", seed,
            "--seconds", ROUND, "--without", without, *more]


def soak(run, seed, without, *more):
    limits.needs_descriptors(DESCRIPTORS)
    argv = [str(word) for word in command(run, seed, without, *more)]
    env = {"VMA_TRACELEVEL": "debug", "VMA_LOG_FILE": str(run.log_dir / "soak.%d.log")}
    proc = run.start("soak", argv, env=env, timeout=HANGS)
    proc.may_fail = True
    status = proc.wait()
    (run.shm / "ledger").unlink()
    print(proc.stdout().splitlines()[-1])
    return status, f"{proc.output()}\nagain: VMA_SHM_DIR={run.shm} {shlex.join(argv)}"


def parts(function):
    """No test takes longer than a minute."""
    return pytest.mark.parametrize("part", range(math.ceil(SECONDS / 60)))(function)


def one_round(run, seed, without, *more):
    """How many connections were accelerated in it."""
    status, said = soak(run, seed, without, *more)
    assert status == 0, said
    accelerated = run.procs[0].log().accelerated()
    assert shared_dir.left_for_good(run) == []
    for path in run.procs[0].log_paths():
        path.unlink()
    return accelerated


def accelerating_round(run, seed, without):
    """Where the machine is too slow to accelerate anything in so short a round, longer ones, until something is."""
    deadline, length = patience.Deadline(), ROUND
    while one_round(run, seed, without, "--seconds", length) == 0:
        assert not deadline.over(), f"nothing was accelerated in {deadline}"
        length = min(2 * length, 60)


def rounds(run, part, without):
    """Seeds one after the other until the time is over."""
    until, seed = time.monotonic() + min(SECONDS, 60), FIRST_SEED + 1000 * part
    while time.monotonic() < until:
        accelerating_round(run, seed, without)
        seed += 1


@parts
def test_streams_and_datagrams(run, part):
    rounds(run, part, WITHOUT)


def test_finds_a_missing_byte(run):
    """The soak itself is looked at: sends leave a byte out, until somebody who is not killed before has read one of them."""
    status, said = soak(run, FIRST_SEED, "", "--break", 1000000, "--seconds", int(patience.seconds()))
    assert status == 1 and "expected" in said and "at byte" in said
