# SPDX-License-Identifier: BSD-2-Clause
"""What vma_stats shows of the time that a program with libvma.so waits: in epoll, poll and select, and for its rate."""

import re

import pytest

from lib.runner import open_input
from lib.vmastats import PING, PING_UNTIL_TOLD, end_pings, file_of, read, script, tool, wait_for


MUX_ECHO = """
listener = socket.create_server(("127.0.0.1", {port}))
print("ready", flush=True)
s, _ = listener.accept()
how = "{how}"
if how == "epoll":
    poller = select.epoll()
    poller.register(s, select.EPOLLIN)
elif how == "poll":
    poller = select.poll()
    poller.register(s, select.POLLIN)
wait = {{"epoll": lambda: poller.poll(), "poll": lambda: poller.poll(), "select": lambda: select.select([s], [], [])}}[how]
waits = 0
while True:
    wait()
    waits += 1
    data = s.recv(4096)
    if data == b"stop":
        break
    s.sendall(data)
if how == "select":
    select.select([s], [], [], 0.001)
else:
    poller.poll(1)
print("%d waits in all" % waits, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("how", ["epoll", "poll", "select"])
def test_waits(run, port, how):
    """Each wait that found the socket is counted, by a device or by the kernel; and the one that timed out. Waits poll, or on a busy
    machine none might find anything before it sleeps."""
    server = script(run, "server", MUX_ECHO.format(port=port, how=how), env={"VMA_CPU_USAGE_STATS": "1", "VMA_SELECT_POLL": "-1"})
    server.wait_output("ready")
    client = script(run, "client", PING_UNTIL_TOLD.format(port=port) + "s.sendall(b'stop')\nsignal.pause()\n")
    end_pings(run, client, server)
    waits = int(re.search(r"(\d+) waits in all", server.wait_output(" waits in all").stdout())[1])
    seen = read(run, server)["iomux"]
    assert len(seen) == 1 and seen[0]["name"].startswith(how)
    one = seen[0]
    assert one["ready"] + one["os_ready"] == waits and one["ready"] > 0
    assert one["timeouts"] == 1 and one["errors"] == 0 and one["thread"] == server.pid
    assert one["poll_hit"] + one["poll_miss"] <= waits + 1 and one["poll_hit"] > 0
    text = tool(run, "-F", "-p", server.pid, "-c", 1)
    assert f"Rx Ready:{one['os_ready']}/{one['ready']} [os/offload] Timeouts:1 " in text


def test_polling_time(run, port):
    """VMA_CPU_USAGE_STATS: a server whose socket always polls."""
    server = script(run, "server", MUX_ECHO.format(port=port, how="epoll"),
                    env={"VMA_CPU_USAGE_STATS": "1", "VMA_SELECT_POLL": "-1"}).wait_output("ready")
    client = script(run, "client", PING.format(port=port, count=100_000_000))
    run.wait_until(lambda: file_of(run, server).exists() and
                   any(one["polling_percent"] > 0 for one in read(run, server)["iomux"]), "a share", proc=server)
    client.kill()


HEARS = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", {port}))
print("ready", flush=True)
while (got := s.recvfrom(2000))[0] != b"end":
    s.sendto(b"heard", got[1])
"""


PACED = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("127.0.0.1", {port}))
s.setsockopt(socket.SOL_SOCKET, 47, 100_000)  # SO_MAX_PACING_RATE, bytes a second
sent = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    sent += s.send(b"x" * 1000)
    s.recv(10)  # who only sends may be done before the other end takes datagrams
sent += s.send(b"end")
sys.stdout.write(f"sent {{sent}} bytes\\n")
signal.pause()
"""


def test_pacing(run, port):
    """How long sends had to wait, and what went under a limit: all that the device has carried."""
    hears = script(run, "hears", HEARS.format(port=port)).wait_output("ready")
    with open_input() as stdin:
        paced = script(run, "paced", PACED.format(port=port), stdin=stdin)
        wait_for(run, paced, lambda one: one["tx"]["held"] > 0, "a send that had to wait")
    paced.wait_output(" bytes\n")
    tx = read(run, paced)["sockets"][0]["tx"]
    assert tx["bytes"] + tx["os_bytes"] == int(paced.stdout().split()[1])
    assert tx["pacing_rate"] == 100_000 and tx["paced_bytes"] == tx["bytes"] > 0
    assert tx["held"] > 0 and tx["held_ns"] > 0
    paced.kill()
    hears.kill()
