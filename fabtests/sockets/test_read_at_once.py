# SPDX-License-Identifier: BSD-2-Clause
"""A read that doesn't wait gets what had been sent before it, a send finds the room that had been made, as over the kernel, while another
thread looks for news too."""

import pytest

from lib import build

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("spec", ["none", "latency"])
def test_read_at_once(run, spec):
    env = {"VMA_SPEC": spec, "VMA_LIFT_AFTER": "1", "FABTEST_LIFT": "1", "VMA_STREAM_RING": "4096"}
    proc = run.start("program", [build.program("sockets/programs/read_at_once")], vma=True, env=env).ok()
    assert proc.log().accelerated() == 4
