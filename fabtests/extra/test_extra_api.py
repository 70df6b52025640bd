# SPDX-License-Identifier: BSD-2-Clause
"""The calls of the extra API, each by a program that uses them."""

import pytest

from lib import build

SCENARIOS = ("table", "options", "calls", "allocator", "threads", "udp_zcopy", "tcp_zcopy", "udp_callback",
             "tcp_held_over_fork", "tcp_kept", "xtreme")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(run, scenario):
    run.expect_errors = scenario == "calls"  # rules that are none
    run.run("program", [build.program("extra/programs/extra_api"), scenario], vma=True, env={
        "VMA_LIFT_AFTER": "8", "VMA_SOCKETXTREME": "1" if scenario == "xtreme" else "0"})
