# SPDX-License-Identifier: BSD-2-Clause
"""A fork finds the library's thread at rest, whatever it was about."""

import glob

import pytest

from lib import build, pairing, peers

pytestmark = [pytest.mark.alone, pytest.mark.skipif(build.sanitized(), reason="a sanitizer has an allocator of its own")]

JEMALLOC = glob.glob("/usr/lib/*/libjemalloc.so.2")


def test_nothing_is_half_done(run):
    peers.run_both(run, pairing.VMA_LATENCY, "sockets/programs/fork_moment", offload=True)


@pytest.mark.parametrize("first", [True, False], ids=["before the library", "behind it"])
@pytest.mark.parametrize("name", ["locked", "jemalloc"])
def test_an_allocator_that_a_fork_locks(run, name, first):
    """Its handler comes behind all of the library's locks: a thread that has one of those may be asking for memory."""
    if name == "jemalloc" and not JEMALLOC:
        pytest.skip("libjemalloc.so.2 is not installed (libjemalloc2)")
    library = JEMALLOC[0] if name == "jemalloc" else build.program("sockets/programs/locked_allocator.so")
    preload = f"{library} {build.preload()}" if first else f"{build.preload()} {library}"
    peers.run_both(run, pairing.VMA_LATENCY, "sockets/programs/fork_often", offload=True, env={"LD_PRELOAD": preload})
