# SPDX-License-Identifier: BSD-2-Clause
"""A fork finds the library's thread at rest, whatever it was about."""

import pytest

from lib import build, pairing, peers

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("locks", [False, True], ids=["an allocator without locks", "one with a lock"])
def test_nothing_is_half_done(run, locks):
    if build.sanitized():
        pytest.skip("a sanitizer has an allocator of its own")
    peers.run_both(run, pairing.VMA_LATENCY, "sockets/programs/fork_moment", offload=True, env={"FORK_MOMENT_LOCKS": "1"} if locks else {})
