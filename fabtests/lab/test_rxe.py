# SPDX-License-Identifier: BSD-2-Clause
"""Between two hosts with RDMA devices (Soft-RoCE in two QEMU guests): rdma-core's programs, libfabric's providers, and
sockets with and without the preload library."""

import re

import pytest

from lib import build, rxe as rxe_lib

# ---- the lab itself: if one of these fails, look there first ---------------------------------------------------------


def test_devices(rxe):
    for guest in rxe.guests:
        text = guest.run(["ibv_devinfo", "-v"])
        assert re.findall(r"^hca_id:\s*(\S+)", text, re.MULTILINE) == [rxe_lib.DOMAIN]
        assert re.search(r"state:\s+PORT_ACTIVE", text) and re.search(r"active_mtu:\s+1024", text), text
        # The address that librdmacm looks for is in the device's table of them.
        assert f"::ffff:{guest.address}" in text and guest.address6 in text, text


def test_commands_are_two_hosts(rxe):
    """What a guest's command prints, its status and its environment come back; each runs where it should."""
    for guest in rxe.guests:
        command = guest.start("echo $LAB_ROLE $LAB_PEER; echo wrong >&2; hostname; exit 3")
        assert command.wait() == 3
        assert command.stdout().split() == [guest.role, guest.peer.address, guest.role]
        assert command.stderr() == "wrong\n"
        killed = guest.start("echo started; sleep 1000")
        killed.wait_output("started").kill()
        assert killed.status == -9
        assert guest.start(["/no/such/program"]).wait() == 127


@pytest.mark.parametrize("address", ["address", "address6"])
def test_rping(rxe, address):
    """RDMA read, write and send."""
    rxe_lib.rping(rxe, getattr(rxe.server, address), 10, "-S", "1000")


# ---- libfabric over the device ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size, iterations", [(64, 50), (65536, 5)])
def test_pingpong(rxe, provider, size, iterations):
    rxe_lib.pingpong(rxe, provider, size, iterations, check=True)


@pytest.mark.parametrize("size", [64, 65536, 262144], ids=["eager", "segmented", "rendezvous"])
def test_pingpong_of_ofi_rxm(rxe, vma_on_rxe, size):
    """libfabric's own provider of reliable datagrams over ours, by each of the three ways that it sends."""
    rxe_lib.pingpong(rxe, "vma;ofi_rxm", size, 4, kind="rdm", check=True)


def test_latency_against_verbs(rxe, vma_on_rxe, capsys):
    """Says what the ratio is: on an emulated processor that others use it is no reason to fail."""
    _, said = rxe_lib.latency_ratio(rxe, "vma", "verbs", 64)
    with capsys.disabled():
        print(f" {said} ", end="")


def test_bandwidth_against_verbs(rxe, vma_on_rxe, capsys):
    """As above; less than a quarter is no noise."""
    ratios, said = rxe_lib.bandwidth_ratio(rxe, "vma", "verbs", [65536, 1048576])
    with capsys.disabled():
        print(f" {said} ", end="")
    assert min(ratios.values()) > 0.25, said


def test_pingpong_in_one_guest(rxe):
    """The provider's shared memory works in a guest as it does on the machine."""
    argv = ["fi_pingpong", "-p", "vma", "-e", "msg", "-I", "100", "-S", "1024", "-c"]
    guest = rxe.server
    before = guest.listeners()
    server = guest.start(argv, env=rxe_lib.fabric_env())
    assert guest.wait_listening(server, before), server.output()
    client = guest.start([*argv, "127.0.0.1"], env=rxe_lib.fabric_env()).ok(rxe_lib.LIMIT)
    server.ok(rxe_lib.LIMIT)
    assert re.search(r"^1k\s+100\s+=100\s", client.stdout(), re.MULTILINE), client.stdout()


# ---- sockets over the wire -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["--tcp"], []], ids=["tcp", "udp"])
def test_sockperf_on_the_kernel(rxe, options):
    rxe_lib.sockperf(rxe, *options)


@pytest.mark.parametrize("options, server, client", [(["--tcp"], True, True), (["--tcp"], False, True),
                                                     ([], True, True), ([], True, False)],
                         ids=["tcp-both", "tcp-client", "udp-both", "udp-server"])
def test_sockperf_preloaded(rxe, options, server, client):
    """To a host that may or may not have the library."""
    if not build.intercepts():
        pytest.skip("libvma.so of this build intercepts nothing")
    envs = {role: rxe_lib.preload_env(f"sockperf-{role}") if chosen else None
            for role, chosen in (("server", server), ("client", client))}
    rxe_lib.sockperf(rxe, *options, server_env=envs["server"], client_env=envs["client"])
    for guest in rxe.guests:
        if envs[guest.role]:
            log = guest.read(envs[guest.role]["VMA_LOG_FILE"])
            assert log and "ERROR" not in log and "PANIC" not in log, log
