# SPDX-License-Identifier: BSD-2-Clause
"""Random calls on sockets return over the library what they return over the kernel. Both are made at the same time (programs/compared);
the seeds are fixed, so that the check does the same each time: `compared` by itself, with others, looks for more (doc/checks.md)."""

import pytest

from lib import build

PROGRAM = "sockets/programs/compared/compared"
STEPS = 300
SCRIPTS = 10  # of each kind

# What is left out: edges are told once more where the kernel takes over (doc/multiplexing.md).
KINDS = {
    "streams": ["edges", "processes", "sets"],
    "sets": ["edges", "processes"],
    "processes": ["edges", "sets"],
}

MODES = {
    "latency": {},
    "later": {"VMA_SPEC": "none", "VMA_LIFT_AFTER": "3"},
    "sleeps": {"VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"},
    "idle": {"VMA_IDLE_STREAMS": "0", "VMA_IDLE_MSEC": "10"},
}


def compare(run, seed, scripts, kinds, env):
    environment = run.environment(True, "latency", "compared", env)
    environment["FABTEST_PRELOAD"] = environment.pop("LD_PRELOAD")
    return run.start("compared", [build.program(PROGRAM), seed, scripts, STEPS, *kinds], env=environment)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_as_the_kernel(run, kind, mode):
    compared = compare(run, 1, SCRIPTS, KINDS[kind], MODES[mode])
    assert compared.wait() == 0, compared.stderr()
    made = dict(line.split() for line in compared.stdout().splitlines())
    assert int(made["send"]) > 100 and int(made["receive"]) > 100


def test_kernel(run):
    """What differs between two runs over the kernel is not to be compared."""
    compared = run.start("compared", [build.program(PROGRAM), 1, SCRIPTS, STEPS])
    assert compared.wait() == 0, compared.stderr()
