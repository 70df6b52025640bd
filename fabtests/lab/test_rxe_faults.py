# SPDX-License-Identifier: BSD-2-Clause
"""What can happen to an RDMA device and its host in mid-transfer. First with programs that are not ours: what ours are
to survive is what the kernel really does."""

import time

import pytest

from lib import build, rxe as rxe_lib

WORKING = "ping data"  # what rping -v prints for each round trip


def endless_rping(lab):
    """Two that have begun, and do not end by themselves: after a disconnect in mid-transfer a server may hang, too."""
    argv = ["stdbuf", "-oL", "rping", "-a", lab.server.address, "-v", "-C", "100000000"]
    server, client = rxe_lib.pair(lab, [*argv, "-s"], [*argv, "-c"])
    for command in (server, client):
        command.wait_output(WORKING)
    return server, client


def rping_works(lab):
    rxe_lib.rping(lab, lab.server.address, 2)


def test_device_is_removed_and_comes_back(broken):
    server, client = endless_rping(broken)
    broken.client.rdma_delete()
    client.wait_output("device removal")
    assert broken.client.rdma_devices() == []
    server.wait_output("DISCONNECT EVENT")
    for command in (server, client):
        command.kill()
    broken.client.rdma_add()
    rping_works(broken)


def test_process_is_killed(broken):
    """The kernel ends the connections of a process that is gone."""
    server, client = endless_rping(broken)
    client.kill()
    killed = time.monotonic()
    server.wait_output("DISCONNECT EVENT")
    print(f"seen after {time.monotonic() - killed:.2f} s")
    server.kill()
    rping_works(broken)


def test_link_goes_down_and_up(broken):
    for up, state in ((False, "PORT_DOWN"), (True, "PORT_ACTIVE")):
        broken.client.link(up)
        broken.client.run(f"until ibv_devinfo | grep {state}; do sleep 0.1; done")
    rping_works(broken)


# ---- connections of ours ---------------------------------------------------------------------------------------------

HALF_A_SECOND, AN_HOUR = 500_000, 3_600_000_000  # us


@pytest.fixture
def connection(broken, vma_on_rxe):
    """Starts fabtests/lab/programs/timeouts in both guests, the client with an option that is a time-out. Returns the
    client when it is connected."""
    program = build.program("lab/programs/timeouts")
    env = rxe_lib.fabric_env() | {"FI_LOG_LEVEL": "warn", "FI_LOG_PROV": "vma"}

    def start(option: str, microseconds: int):
        argv = [program, rxe_lib.DOMAIN, broken.server.address]
        _, client = rxe_lib.pair(broken, [*argv, "server"], [*argv, option, microseconds], env=env)
        return client.wait_output("working")

    return start


@pytest.mark.parametrize("option, heard", [("keepalive", "FI_OPT_VMA_KEEPALIVE_TIMEOUT"),
                                           ("send", "FI_OPT_VMA_SEND_TIMEOUT")])
def test_wire_is_cut(broken, connection, option, heard):
    """Nothing but the time-out tells of it: an idle connection hears it by the probe, one that sends by the send. rxe itself waits for
    a silent peer for more than a minute; that it was not rxe is what the message says."""
    client = connection(option, HALF_A_SECOND)
    for guest in broken.guests:
        guest.mute(True)
    cut = time.monotonic()
    client.wait_output("FI_SHUTDOWN", rxe_lib.LIMIT)
    print(f"heard after {time.monotonic() - cut:.2f} s")
    client.ok()
    assert f"in the time of {heard}" in client.output(), client.output()
    assert ("the send failed: Connection timed out" in client.stdout()) == (option == "send"), client.output()


def test_peer_moves_to_another_interface(broken, connection):
    """The kernel's table of neighbours says so, and no packet could reach the peer any more."""
    client = connection("keepalive", AN_HOUR)
    entry = [broken.server.address, "dev", "eth0"]
    broken.client.run(["ip", "neigh", "replace", *entry, "lladdr", "02:00:00:00:00:99"])
    try:
        client.wait_output("FI_SHUTDOWN", rxe_lib.LIMIT).ok()
    finally:
        broken.client.run(["ip", "neigh", "delete", *entry])
    assert "another interface has the peer's address now" in client.output(), client.output()
