# SPDX-License-Identifier: BSD-2-Clause
"""Coroutines, threads and signal handlers whose stack is enough for the kernel's calls: it is for ours, also for the one within which a
connection is accelerated."""

import pytest

from lib import build

WHERE = {"context8k": 0, "context4k": 20, "thread": 20, "handler": 20}  # and how often all calls are made
SPECS = {"none": {}, "lift1": {"VMA_LIFT_AFTER": "1"}, "latency": {"VMA_SPEC": "latency"}}
pytestmark = pytest.mark.skipif(build.sanitized(), reason="a sanitizer's instrumentation uses the stack")


@pytest.mark.parametrize("spec", ["kernel", *SPECS])
@pytest.mark.parametrize("where", WHERE)
def test_small_stacks(run, where, spec):
    env = {} if spec == "kernel" else {"FABTEST_LIFT": "1", **SPECS[spec]}
    proc = run.start("program", [build.program("sockets/programs/small_stacks"), where], vma=spec != "kernel", env=env).ok()
    assert int(proc.stdout()) == WHERE[where]
    if spec != "kernel":
        assert proc.log().accelerated() >= 2  # again where a handler forks
