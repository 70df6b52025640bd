# SPDX-License-Identifier: BSD-2-Clause
"""A fork finds the library's thread at rest, whatever it was about."""

import pytest

from lib import build, pairing, peers


def test_nothing_is_half_done(run):
    if build.sanitized():
        pytest.skip("a sanitizer has an allocator of its own")
    peers.run_both(run, pairing.VMA_LATENCY, "sockets/programs/fork_moment", offload=True)
