# SPDX-License-Identifier: BSD-2-Clause
"""Meshes of vma_lat: everyone writes to everyone; members that are killed, stopped, strangers or of another opinion."""

import contextlib
import os
import re
import signal
import socket
import struct

import pytest

from lib import patience, ports
from lib.vmalat import program


def totals(proc):
    return re.findall(r"^rank (\d+): wrote (\d+) blocks \((\d+) bytes\), verified (\d+), (\d+) damaged$", proc.stdout(),
                      re.M)


@pytest.mark.parametrize("wait, cq, threads", [("poll", "shared", "one"), ("channel", "shared", "one"),
                                               ("epoll", "own", "one"), ("epoll", "own", "each")])
@pytest.mark.parametrize("provider", ["vma", "tcp"])
def test_four_processes(run, env, provider, wait, cq, threads):
    proc = run.run("mesh", [program(), "mesh", "--processes", 4, "--provider", provider, "--count", 100, "--size", 20000,
                            "--wait", wait, "--cq", cq, "--threads", threads], env=env)
    assert sorted(totals(proc)) == [(str(i), "300", "6000000", "300", "0") for i in range(4)]
    assert proc.stdout().splitlines()[-1] == "mesh: passed: 4 processes, 1200 blocks of 20000 bytes verified, none damaged"


def test_one_byte_and_one_place(run, env):
    """A window of one: each block waits until the one before has been verified."""
    proc = run.run("mesh", [program(), "mesh", "--processes", 2, "--count", 500, "--size", 1, "--window", 1, "--wait",
                            "channel"], env=env)
    assert "mesh: passed: 2 processes, 1000 blocks of 1 bytes" in proc.stdout()


def start_long(run, env, *options):
    proc = run.start("mesh", [program(), "mesh", "--processes", 4, "--count", 1000000000, "--size", 1000, "--wait", "epoll",
                              *options], env=env)
    run.wait_until(lambda: proc.stdout().count("connected to 3 others") == 4, "all members to be at work", proc=proc)
    return proc, {int(r): int(p) for r, p in re.findall(r"^rank (\d+) is process (\d+)$", proc.stdout(), re.M)}


@pytest.mark.parametrize("rank", [0, 2])
def test_member_is_killed(run, env, rank):
    proc, pids = start_long(run, env)
    os.kill(pids[rank], signal.SIGKILL)
    assert proc.fails() == 3, proc.output()
    last = proc.stdout().splitlines()[-1]
    assert last.startswith(f"mesh: FAILED: rank {rank} (process {pids[rank]}) was killed by signal 9 (Killed)")
    assert proc.stderr().count(f"rank {rank} (") >= 1


def test_member_that_stops(run, env):
    """It does not die, so the others run out of patience; then it is ended, too."""
    longest = int(3000 * patience.factor())  # milliseconds
    proc, pids = start_long(run, env, "--timeout", longest)
    os.kill(pids[1], signal.SIGSTOP)
    assert proc.fails() == 3, proc.output()
    assert f"rank 1 (process {pids[1]}) did not end and was killed" in proc.stdout().splitlines()[-1]
    assert f"the connection to rank 1: nothing came for {longest} ms" in proc.stderr()


def test_interrupted(run, env):
    proc, _ = start_long(run, env)
    assert proc.stop() == 5
    assert proc.stdout().splitlines()[-1] == "mesh: FAILED: interrupted"


def test_provider_without_rma(run, env):
    proc = run.start("mesh", [program(), "mesh", "--processes", 2, "--provider", "udp"], env=env)
    assert proc.fails() != 0
    assert "libfabric has no FI_EP_MSG endpoint with FI_RMA of provider udp" in proc.stderr()
    assert proc.stdout().splitlines()[-1].startswith("mesh: FAILED: rank ")


# ---- started by hand ---------------------------------------------------------------------------------------------------


@pytest.fixture
def member(run, env):
    """Starts a member by its rank; all of them have the same `peers`."""
    peers = ",".join(f"127.0.0.1:{ports.free_port()}" for _ in range(3))

    def start(rank, *options):
        return run.start(f"rank{rank}", [program(), "mesh", "--rank", rank, "--peers", peers, "--count", 50, "--wait",
                                         "channel", *options], env=env)
    start.peers = peers.split(",")
    return start


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_by_hand(member, order):
    procs = [member(rank) for rank in order]
    for rank, proc in zip(order, procs, strict=True):
        proc.ok()
        assert totals(proc) == [(str(rank), "100", str(100 * 65536), "100", "0")]
        assert proc.stdout().splitlines()[-1] == "mesh: passed: 3 processes, 300 blocks verified, none damaged"


def test_members_that_disagree(member):
    procs = [member(0), member(1, "--count", 51)]
    for proc in procs:
        assert proc.fails() in (2, 3)
        assert proc.stdout().splitlines()[-1].startswith("mesh: FAILED: ")
        assert "rank 1 has --count 51, and rank 0 has 50: say the same to all members" in proc.stderr()


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">IHHI", 0x564C4154, 3, 10, 3) + b"abc",
                                     struct.pack(">IHHI", 0x564C4154, 3, 1, 1 << 30), b""],
                         ids=["http", "hello", "length", "nothing"])
def test_strangers_are_sent_away(run, member, garbage):
    first = member(0)
    host, port = member.peers[0].split(":")
    run.wait_port(int(port), first)
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(garbage)
        with contextlib.suppress(OSError):
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4096):
                pass
    for proc in (first, member(1), member(2)):
        proc.ok()
    assert first.stderr().count("\n") == 1


def test_member_by_hand_is_killed(run, member):
    procs = [member(rank, "--count", 1000000000) for rank in range(3)]
    run.wait_until(lambda: all("connected to 2 others" in proc.stdout() for proc in procs), "all to be at work")
    procs[1].kill()
    for rank in (0, 2):
        assert procs[rank].fails() == 3
        assert f"rank 1 ({member.peers[1]}): " in procs[rank].output()
        assert procs[rank].stdout().splitlines()[-1].startswith("mesh: FAILED: ")
