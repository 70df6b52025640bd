# SPDX-License-Identifier: BSD-2-Clause
"""Programs that have something unusual about them are accelerated as others are."""

from lib import pairing, peers


def test_large_thread_local_variables(run):
    peers.run_both(run, pairing.VMA_LATENCY, "sockets/programs/thread_locals", lift=True)
