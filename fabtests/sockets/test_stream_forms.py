# SPDX-License-Identifier: BSD-2-Clause
"""64 MiB of seeded random data each way at once through every call form: in each pairing no byte is lost, repeated or
out of place. Connections start on the kernel and are offloaded midway, with data in flight: the first half goes on until they are."""

import os
import random
import re

import pytest

from lib import expect, pairing, peers

BYTES = 64 << 20
SEED = int(os.environ.get("FABTESTS_SEED", "0")) or random.randrange(1, 1 << 32)


def forms(run, pair, style, family, size, env=None, offloaded=True, splice_from=None):
    server, client = peers.run_both(run, pair, "sockets/programs/stream_forms", "--family", family, style, size,
                                    size if splice_from is None else splice_from, SEED, env=env, offload=offloaded)
    for sender, receiver in (server, client), (client, server):
        sent, = map(int, re.findall(r"^sent (\d+) bytes", sender.stdout(), re.M))
        assert f"received {sent} bytes" in receiver.stdout()
        assert sent >= size if pair.both and offloaded else sent == size


@pytest.mark.parametrize("style", ["blocking", "nonblocking", "crowd"])
def test_all_forms(run, pair, style):
    forms(run, pair, style, "4", BYTES)


@pytest.mark.parametrize("style", ["blocking", "nonblocking"])
@pytest.mark.parametrize("part", [0, 0.5], ids=["from the start", "from the middle"])
def test_splice(run, pair, style, part):
    """splice ends the acceleration of a connection: the way back to the kernel, with data in flight."""
    forms(run, pair, style, "4", BYTES // 2, offloaded=part > 0, splice_from=int(BYTES // 2 * part))


@pytest.mark.parametrize("family", ["6", "mapped"])
def test_families(run, pair, family):
    forms(run, pair, "blocking", family, BYTES // 4)


@pytest.mark.pairs(*pairing.ACCELERATED)
@pytest.mark.parametrize("style", ["blocking", "nonblocking"])
def test_sleeping(run, pair, style):
    """Waits that never spin. (In the profile "latency" they only spin.)"""
    forms(run, pair, style, "4", BYTES // 4, env={"VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"})


@pytest.mark.pairs(pairing.VMA_DEFAULT)
@pytest.mark.parametrize("after", [1, 2, 5, 100, 500])
def test_offload_at(run, pair, after):
    """The switch at other places of the stream."""
    forms(run, pair, "blocking", "4", BYTES // 4, env={"VMA_LIFT_AFTER": str(after)})
