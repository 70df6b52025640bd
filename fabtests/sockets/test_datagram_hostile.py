# SPDX-License-Identifier: BSD-2-Clause
"""A process of the same user writes what it likes into the memory and the directory that UDP sockets share: who talks there
neither crashes nor waits for ever, and what they say to each other stays whole and is answered."""

import os
import random
import re

import pytest

from lib import build, datagrams, pairing, ports

ECHO = "sockets/programs/datagrams/echo"
HOSTILE = "sockets/programs/datagrams/hostile"
SEED = int(os.environ.get("FUZZ_SEED", "0")) or random.randrange(1, 1 << 32)
DATAGRAMS = 20000


def numbers(proc, pattern):
    match = re.search(pattern, proc.stdout(), re.M)
    assert match, proc.output()
    return tuple(map(int, match.groups()))


def start_pair(run, pair, wait):
    """Returns (server, client), which ask and answer by the endpoint."""
    port = ports.free_port()
    server = run.start("server", [build.program(ECHO), "serve", port, SEED, wait], vma=True, mode=pair.mode)
    server.wait_output("ready")
    client = run.start("client", [build.program(ECHO), "ask", port, SEED], vma=True, mode=pair.mode)
    for proc in (server, client):
        proc.wait_log(lambda log: datagrams.routes(log) and datagrams.receivers(log), f"{proc.name} to be accelerated")
    return server, client


@pytest.mark.pairs(*pairing.ACCELERATED)
@pytest.mark.parametrize("wait", ["block", "epoll"])
def test_hostile_peer(run, pair, wait, shm):
    """While the enemy is at it, and afterwards, each question is answered."""
    print(f"FUZZ_SEED={SEED}")
    server, client = start_pair(run, pair, wait)
    hostile = run.start("hostile", [build.program(HOSTILE), shm, SEED, DATAGRAMS],
                        env={"FI_PROVIDER_PATH": str(build.provider_dir()), "FI_VMA_DIR": str(shm)}).ok()
    assert server.alive() and client.alive(), server.output() + client.output()
    assert client.stop() == 0, client.output()
    server.ok()
    attacked, sent, nobody, tricks = numbers(hostile, r"^attacked (\d+), sent (\d+), nobody there (\d+), tricks (\d+)$")
    assert (attacked, sent, tricks) == (2, DATAGRAMS, DATAGRAMS // 100) and nobody < DATAGRAMS / 10
    asked, afterwards, _repeated, client_strange = numbers(
        client, r"^asked (\d+), then (\d+), repeated (\d+), strange (\d+)$")
    served, strange = numbers(server, r"^served (\d+), strange (\d+)$")
    assert asked > 0 and afterwards == 300 and served >= asked + afterwards
    # How many more depends on who runs when: a full queue drops.
    assert min(strange, client_strange) > DATAGRAMS / 200, "the attack did not reach them"
