# SPDX-License-Identifier: BSD-2-Clause
"""The calls of the extra API, each by a program that uses them."""

import re

import pytest

from lib import build

SCENARIOS = ("table", "options", "calls", "allocator", "threads", "udp_zcopy", "tcp_zcopy", "udp_callback",
             "tcp_held_over_fork", "tcp_kept", "callback_waits", "xtreme", "xtreme_many", "xtreme_flood", "xtreme_threads", "xtreme_full")


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
