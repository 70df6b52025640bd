# SPDX-License-Identifier: BSD-2-Clause
"""Instructions of an epoll_wait() over few and over many accelerated sockets: they follow those that are ready, not those that are in the
set. Counted by callgrind over fake sockets (compat/test/mux/mux_cost.cpp), so that a busy machine changes nothing."""

import re

import pytest

from lib import build

pytestmark = pytest.mark.alone

FEW, MANY = 100, 9_900  # of two descriptors each: containers have a limit of 20,000
MOST = 1.5  # times; where the kernel is asked too, now and then, depends on the clock


def count(run, tmp_path, sockets: int, ready: int) -> int:
    done = run.run(f"callgrind{sockets}", [build.tool("valgrind"), "--tool=callgrind", f"--callgrind-out-file={tmp_path}/profile",
                                           "--toggle-collect=counted_waits", build.program("../compat/test/mux/mux_cost"),
                                           str(sockets), str(ready)])
    collected = re.search(r"Collected : (\d+)", done.stderr())
    assert collected, done.stderr()
    waits, reported = map(int, re.fullmatch(r"(\d+) waits reported (\d+)\n", done.stdout()).groups())
    assert reported == waits * ready
    return int(collected[1]) // waits


@pytest.mark.skipif(build.sanitized(), reason="valgrind does not run what a sanitizer watches")
@pytest.mark.parametrize("ready", [0, 1, 60])
def test_cost_follows_what_is_ready(run, tmp_path, ready):
    few, many = count(run, tmp_path, FEW, ready), count(run, tmp_path, MANY, ready)
    print(f"{ready} ready: {few} instructions a wait of {FEW} sockets, {many} of {MANY}")
    assert many <= MOST * few
