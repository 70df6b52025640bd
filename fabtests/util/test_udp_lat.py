# SPDX-License-Identifier: BSD-2-Clause
"""vma_lat by its other name, with the commands of VMA's manual of 2008 and what that prints."""

import re
import signal

import pytest

from lib import netns, ports
from lib.vmalat import program

GROUP = "224.1.1.1"
FAST = {"VMA_RX_POLL": "10000", "VMA_LIFT_AFTER": "8"}


@pytest.fixture
def udp_lat(run):
    link = run.work / "udp_lat"
    link.symlink_to(program())
    return link


@pytest.fixture
def host():
    """The loopback there is multicast's: the manual's `route add -net 224.0.0.0`."""
    made = netns.made(netns.Host)
    yield made
    made.remove()


@pytest.mark.parametrize("address", [GROUP, "127.0.0.1", "::1"])
@pytest.mark.parametrize("vma", [False, True], ids=["kernel", "vma"])
def test_as_the_manual_has_it(run, udp_lat, host, address, vma):
    options = {"vma": vma, "netns": host.file, "env": FAST if vma else None}
    server = run.start("server", [udp_lat, "-s", "-i", address], **options)
    server.wait_output(f"udp_lat: [SERVER] listen on: {address} port 11111")
    client = run.run("client", [udp_lat, "-c", "-i", address], **options)
    first, second, last = client.stdout().splitlines()
    assert first == f"udp_lat: [CLIENT] send on: {address} port 11111" and second == "udp_lat: Client Start sending ..."
    found = re.fullmatch(r"client_sig_handler:client_counter=([1-9]\d*) in \d+ sec, latency=(\d+\.\d{3}) \[usec\]", last)
    assert found and float(found[2]) > 0
    if vma and address != GROUP:
        assert server.log().accelerated() and client.log().accelerated()
    assert server.stop(number=signal.SIGINT) == 0


def test_sizes_and_ports(run, udp_lat):
    port = ports.free_port()
    server = run.start("server", [udp_lat, "--server", "--port", port])
    server.wait_output("[SERVER] listen on: 0.0.0.0")
    run.run("client", [udp_lat, "--client", "--ip=127.0.0.1", f"--port={port}", "--msg_size", "1472", "--time", "1"])
    server.stop()


def test_nobody_there(run, udp_lat):
    client = run.start("client", [udp_lat, "-c", "-p", ports.free_port()])
    assert client.fails() == 3
    assert client.stderr() == "udp_lat: No messages were received from the server. Is the server down?\n"


@pytest.mark.parametrize("argv, said", [
    ([], "what to be is missing"), (["-s", "-c"], "what to be is missing, or said twice"), (["-x"], "-x: there is no such option"),
    (["-c", "-i"], "-i: this option needs a value"), (["-c", "-p", "0"], "--port: '0' is no number from 1 to 65535"),
    (["-c", "-m", "7"], "--msg_size: '7' is no number from 8 to 65507"), (["-s", "more"], "'more' is no option"),
    (["-c", "-i", "localhost"], "--ip: 'localhost' is no address"), (["-c", "-t", "-1"], "--time: '-1' is no number"),
])
def test_what_is_wrong_is_told(run, udp_lat, argv, said):
    proc = run.start("wrong", [udp_lat, *argv])
    assert proc.fails() == 2 and said in proc.stderr()


def test_help(run, udp_lat):
    assert "udp_lat -s [-i ADDRESS]" in run.run("help", [udp_lat, "--help"]).stdout()
