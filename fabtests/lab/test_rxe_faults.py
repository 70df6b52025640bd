# SPDX-License-Identifier: BSD-2-Clause
"""What can happen to an RDMA device and its host in mid-transfer. First with programs that are not ours: what ours are
to survive is what the kernel really does."""

import time

from lib import rxe as rxe_lib

WORKING = "ping data"  # what rping -v prints for each round trip


def endless_rping(lab):
    """Two that have begun, and do not end by themselves: after a disconnect in mid-transfer a server may hang, too."""
    argv = ["stdbuf", "-oL", "rping", "-a", lab.server.address, "-v", "-C", "100000000"]
    server, client = rxe_lib.pair(lab, [*argv, "-s"], [*argv, "-c"])
    for command in (server, client):
        command.wait_output(WORKING)
    return server, client


def rping_works(lab):
    argv = ["rping", "-a", lab.server.address, "-V", "-C", "2"]
    rxe_lib.run_pair(lab, [*argv, "-s"], [*argv, "-c"])


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
