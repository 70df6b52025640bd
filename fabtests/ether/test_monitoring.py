# SPDX-License-Identifier: BSD-2-Clause
"""vma_stats beside a program on an Ethernet port: its way, what TCP sent again, and the port's ring."""

import json
import signal
import subprocess

import pytest

from lib import build, patience, prometheus
from lib.wire import LEFT, RIGHT

PYTHON = "/usr/bin/python3"

SERVER = """
import signal, socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
s, _ = listener.accept()
while data := s.recv(65536):
    s.sendall(data[:1])
"""

CLIENT = """
import signal, socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    s.sendall(b"x" * 2000)
    s.recv(65536)
"""


def read(lab, proc, *arguments):
    done = subprocess.run([build.build_dir() / "vma_stats", "-F", "-k", lab.run.log_dir, "-p", str(proc.pid), "-c", "1", *arguments],
                          capture_output=True, text=True, timeout=patience.seconds(), check=True)
    return done.stdout


def dump_has_windows(lab, client):
    """-S says what our TCP is doing, unless the program is sending just then."""
    def asks():
        read(lab, client, "-S", "0", "warn")
        return "- Unacked queue: " in "\n".join(client.log().lines)
    lab.run.wait_until(asks, "the dump", proc=client)
    assert "- Congestion window: " in "\n".join(client.log().lines)


def test_stream_on_a_port(lab):
    (lab.run.work / "server.py").write_text(SERVER)
    (lab.run.work / "client.py").write_text(CLIENT)
    server = lab.program("server", [PYTHON, lab.run.work / "server.py", RIGHT, 7700], ours=False).wait_output("ready")
    client = lab.program("client", [PYTHON, "-u", lab.run.work / "client.py", RIGHT, 7700], ours=True)
    client.killed = True
    assert server.alive()

    def on_port():
        if not (lab.run.log_dir / f"vmastat.{client.pid}").exists():
            return False
        return any(one["way"] == "port" and one["tx"]["bytes"] > 100_000 for one in json.loads(read(lab, client, "--json"))["sockets"])
    lab.run.wait_until(on_port, "bytes by the port", proc=client)
    lab.run.wait_until(lambda: len(json.loads(read(lab, client, "--json"))["cqs"]) == 2, "the port's own counts", proc=client)
    dump_has_windows(lab, client)
    client.send_signal(signal.SIGSTOP)
    seen = json.loads(read(lab, client, "--json"))
    one = seen["sockets"][0]
    assert one["offloaded"] and one["device"]
    assert one["peer"]["address"] == RIGHT and one["local"]["address"] == LEFT
    assert one["rx"]["migrations"] == 1 and one["rx"]["packets"] > 0
    # A wait that sleeps, as on a busy machine, asks the local queue for news too: that counts as a ring.
    assert [(ring["kind"], ring["name"], ring["tx_bytes"]) for ring in seen["rings"] if ring["kind"] != "local"] == \
        [("ethernet", one["device"], one["tx"]["bytes"])]
    queue, local = seen["cqs"]
    assert local["name"] == "local" and queue["polls"] >= queue["poll_hits"] > 0
    assert queue["name"] == one["device"] and queue["most_drained"] >= 1 and queue["frames_lent"] == 0
    assert queue["frames"] >= queue["buffer_pool"] > 0 and queue["send_frames"] >= queue["send_free"] > 0
    assert queue["tcp_blocks"] >= queue["tcp_blocks_free"] > 0 and queue["tcp_no_blocks"] == 0
    assert [(pool["kind"], pool["size"]) for pool in seen["pools"]] == [("rx", queue["buffer_pool"]), ("tx", queue["send_free"])]
    view = read(lab, client, "-v", "3")
    for title in "CQ=[0]", "RING_ETH=[0]", "BUFFER_POOL(RX)=[0]", "BUFFER_POOL(TX)=[1]":
        assert f"\t{title}\n" in view
    page = prometheus.parse(read(lab, client, "--prometheus"))
    assert page["vma_queue_receive_frames"].sum(queue=one["device"]) == queue["frames"]
    assert page["vma_transmit_bytes_total"].sum(path="device") == one["tx"]["bytes"]
    server.kill()  # first: what was on its way to a killed client may be answered with a reset
    client.kill()
