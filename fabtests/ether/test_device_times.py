# SPDX-License-Identifier: BSD-2-Clause
"""VMA_HW_TS_CONVERSION: by which clock programs are told when the NIC had a datagram. The simulated NIC's raw packets have the time
of its own counter, which begins with the program, and a preloaded library gives its interface a PTP clock."""

import socket
import time

import pytest

from lib import build, netns, sim_nic
from lib.tcp import no_offloads
from lib.wire import LEFT
from test_sockets_udp import PORT, PROGRAMS, PYTHON, Peer, is_on_port, offload

_RX_HARDWARE, _RAW_HARDWARE = 4, 64  # SOF_TIMESTAMPING_
AHEAD = 3700  # seconds
# Only to tell clocks apart that are hours from each other.
_SLACK = 10 * 10**9


@pytest.fixture
def hosts(run):
    made = netns.hosts(middle=True)
    for host in (made.left, made.right):  # the NIC's two sides get whole frames with their checksums
        no_offloads(run, host, "tso", "gso")
    yield made
    made.remove()


@pytest.fixture
def mirror(run, hosts, tmp_path):
    """mirror(conversion, has_ptp): programs/udp_mirror.py on the left host, whose port has the NIC's raw packets."""
    sysfs = sim_nic.make_sysfs(tmp_path)

    def started(conversion, has_ptp, **more):
        simulated = ["sim_rdmacm", *(["sim_ptp"] if has_ptp else [])]  # the former is the way to the wire from the start
        env = {"VMA_ETHERNET": "wire", "FI_VMA_ETHERNET": "raw", "SIM_PTP_AHEAD": str(AHEAD),
               **sim_nic.environment(hosts, build.preload().split(), *simulated), **more}
        if conversion is not None:
            env["VMA_HW_TS_CONVERSION"] = conversion
        proc = run.start("mirror", [PYTHON, PROGRAMS / "udp_mirror.py", "4", LEFT, PORT,
                                    f"stamps={_RX_HARDWARE | _RAW_HARDWARE}"],
                         vma=True, env=env, preexec=lambda: sim_nic.enter(hosts, sysfs))
        run.wait_until(lambda: "ready" in proc.stdout(), "the mirror", proc=proc)
        return proc

    return started


def end(peer, proc):
    """Nobody waits for the answer: the kernel's frames go by the NIC, which ends with the program and may do so before it has
    carried that one."""
    peer.socket.sendto(b"quit", peer.to)
    proc.ok()


def complaints(proc):
    return [line for line in proc.log().lines if "VMA WARNING" in line and "VMA_HW_TS_CONVERSION" in line]


@pytest.mark.parametrize("conversion, has_ptp, ahead", [
    ("1", True, None), ("2", True, 0), ("3", False, 0), ("3", True, 0), ("4", True, AHEAD), ("4", False, 0),
    (None, True, 0)])
def test_clocks(run, hosts, mirror, conversion, has_ptp, ahead):
    """`ahead`: seconds before the system's clock; None: it is the counter's own. The default is 3, for ports that stamp."""
    more = {"FI_VMA_ETHERNET_STAMPS": "hardware"} if conversion is None else {}
    proc = mirror(conversion, has_ptp, **more)
    peer = Peer(hosts.right, socket.AF_INET, (LEFT, PORT))
    offload(run, peer, proc)
    last = 0
    for size in range(1, 200):
        before = time.time_ns()
        stamp = peer.ask(b"x" * size)["times"][2]
        after = time.time_ns()
        assert stamp > last
        last = stamp
        if ahead is None:
            assert stamp < before - 1000 * AHEAD * 10**9
        else:
            assert before - _SLACK < stamp - ahead * 10**9 < after + _SLACK
    end(peer, proc)
    told = complaints(proc)
    assert len(told) == (conversion == "4" and not has_ptp)
    assert all("wire has no PTP clock" in line for line in told)


def test_disabled(run, hosts, mirror):
    """Who asks for the device's times stays with the kernel, which has none of this NIC."""
    proc = mirror("0", True)
    peer = Peer(hosts.right, socket.AF_INET, (LEFT, PORT))

    def refused():
        assert "times" not in peer.ask(b"offload")
        return any("wants the device's time stamps" in line for line in proc.log().lines)
    run.wait_until(refused, "the port to be looked at", proc=proc)
    assert not is_on_port(proc) and not complaints(proc)
    end(peer, proc)


def test_who_sets_the_stamps_off_has_none(run, hosts, mirror):
    """FI_VMA_ETHERNET_STAMPS goes before what VMA_HW_TS_CONVERSION asks for."""
    proc = mirror("3", True, FI_VMA_ETHERNET_STAMPS="off")
    peer = Peer(hosts.right, socket.AF_INET, (LEFT, PORT))
    run.wait_until(lambda: "times" not in peer.ask(b"offload") and
                   any("wants the device's time stamps" in line for line in proc.log().lines),
                   "the port to be looked at", proc=proc)
    end(peer, proc)
