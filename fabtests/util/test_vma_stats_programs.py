# SPDX-License-Identifier: BSD-2-Clause
"""vma_stats beside programs that run with libvma.so: while they work, stopped, and after kill -9."""

import json
import signal

import pytest

from lib import build
from lib.vmastats import (ECHO, PING, PING_UNTIL_TOLD, UDP_PING_UNTIL_TOLD, end_pings, file_of, read, script,
                          tool, wait_for)


STAYS = "sys.stdin.read()\nsignal.pause()\n"


def talked(run, port):
    """A ping-pong that is over, both processes still there, and how many messages of 100 B it had."""
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", PING_UNTIL_TOLD.format(port=port) + STAYS)
    return server, client, end_pings(run, client, server)


@pytest.fixture
def talk(run, port):
    return talked(run, port)[:2]


def test_all_is_counted(run, port):
    """No byte is missing, and what one has sent the other has received, by the kernel and by the device."""
    server, client, count = talked(run, port)
    theirs = next(one for one in read(run, server)["sockets"] if one["state"] == "ESTABLISHED")
    mine = read(run, client)["sockets"][0]
    for sender, receiver in (mine, theirs), (theirs, mine):
        assert sender["tx"]["bytes"] + sender["tx"]["os_bytes"] == 100 * count
        assert receiver["rx"]["bytes"] + receiver["rx"]["os_bytes"] == 100 * count
        assert sender["tx"]["bytes"] == receiver["rx"]["bytes"] > 0
        assert (sender["offloaded"], sender["way"], sender["device"]) == (True, "local", "local")
        assert sender["rx"]["migrations"] == 1
        assert receiver["rx"]["queued_bytes"] == 0
    assert mine["local"] == theirs["peer"] and mine["peer"] == theirs["local"]
    assert mine["tx"]["thread"] == client.pid
    assert mine["rx"]["poll_hit"] + mine["rx"]["poll_miss"] > 0


def test_stopped_and_killed(run, talk):
    server, client = talk
    before = read(run, client)["sockets"]
    client.send_signal(signal.SIGSTOP)
    stopped = read(run, client)
    assert stopped["alive"] and stopped["sockets"] == before
    client.kill()
    dead = read(run, client)
    assert not dead["alive"]
    assert [one["tx"] for one in dead["sockets"]] == [one["tx"] for one in before]
    assert "ended - exiting" in tool(run, "-F", "-p", client.pid, "-v", 3)
    server.ok()  # its peer is gone
    tool(run, "-v", 5, status=1)  # which cleans
    assert not list(run.log_dir.glob("vmastat.*"))


def test_net_view_of_both(run, talk):
    server, client = talk
    rows = [line.split() for line in tool(run, "-v", 5).splitlines()[1:]]
    mine = [row for row in rows if row[-1] == f"{client.pid}/python3" or row[-1].startswith(f"{client.pid}/")]
    theirs = [row for row in rows if row[-1].startswith(f"{server.pid}/")]
    assert sorted(row[6] for row in theirs if len(row) > 8) == ["ESTABLISHED", "LISTEN"] or len(theirs) == 2
    assert [(row[0], row[1], row[6]) for row in mine] == [("tcp", "Yes", "ESTABLISHED")]
    assert mine[0][7].isdigit()


def test_zero_while_it_runs(run, port):
    """Nothing of what is counted meanwhile is lost."""
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", PING.format(port=port, count=10_000_000))
    wait_for(run, client, lambda one: one["tx"]["bytes"] > 1_000_000, "bytes by the device")
    tool(run, "-F", "-p", client.pid, "-z", "-c", 1)
    client.send_signal(signal.SIGSTOP)
    first = read(run, client)["sockets"][0]["tx"]["bytes"]
    client.send_signal(signal.SIGCONT)
    wait_for(run, client, lambda one: one["tx"]["bytes"] > first, "more bytes")
    tool(run, "-F", "-p", server.pid, "-z", "-c", 1)


def test_two_readers(run, port):
    """A second reader sees the same deltas as the first."""
    script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", PING.format(port=port, count=10_000_000))
    wait_for(run, client, lambda one: one["offloaded"], "an accelerated socket")
    readers = [run.start("tool", [build.build_dir() / "vma_stats", "-F", "-k", run.log_dir, "-p", client.pid, "-d", 2,
                                  "--json", "-c", 2]) for _ in range(2)]
    for reader in readers:
        for line in reader.ok().stdout().splitlines():
            assert json.loads(line)["sockets"][0]["tx"]["packets"] > 0


@pytest.mark.parametrize("number", [0, 1])
def test_beyond_the_records(run, port, number):
    """VMA_STATS_FD_NUM: those beyond are not seen, and work as the others."""
    server = script(run, "server", ECHO.format(port=port), env={"VMA_STATS_FD_NUM": str(number)}).wait_output("ready")
    script(run, "client", PING.format(port=port, count=500)).ok()
    server.ok()
    again = script(run, "again", ECHO.format(port=port), env={"VMA_STATS_FD_NUM": str(number)}).wait_output("ready")
    assert len(read(run, again)["sockets"]) == number


def test_closed_socket_goes(run):
    proc = script(run, "closes", "a = socket.socket(); b = socket.socket(); a.close(); print('done', flush=True)\n"
                                 "signal.pause()").wait_output("done")
    sockets = read(run, proc)["sockets"]
    assert len(sockets) == 1


GROUPS = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", {port}))
join = lambda group: socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
for group in "239.1.2.3", "239.1.2.4", "239.1.2.3":
    try: s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, join(group))
    except OSError: pass
s.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, join("239.1.2.4"))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
print("done", flush=True)
signal.pause()
"""


def test_groups(run, port):
    proc = script(run, "member", GROUPS.format(port=port)).wait_output("done")
    one = read(run, proc)["sockets"][0]
    assert [group["address"] for group in one["groups"]] == ["239.1.2.3"]
    assert one["multicast_interface"]["address"] == "127.0.0.1" and not one["multicast_loop"]
    assert f"[239.1.2.3]           {one['fd']} \n" in tool(run, "-F", "-p", proc.pid, "-v", 4, "-c", 1)
    text = tool(run, "-F", "-p", proc.pid, "-v", 3, "-c", 1)
    assert "- UDP, Blocked, MC Loop Disabled, MC IF = [127.0.0.1]\n" in text and "- Member of = [239.1.2.3]\n" in text


UDP_RECEIVER = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", {port}))
print("ready", flush=True)
count = 0
while True:
    data, peer = s.recvfrom(2000)
    count += 1
    if data == b"end":
        break
    s.sendto(data, peer)
print("done", flush=True)
signal.pause()
"""


def test_datagrams(run, port):
    receiver = script(run, "receiver", UDP_RECEIVER.format(port=port)).wait_output("ready")
    sender = script(run, "sender", UDP_PING_UNTIL_TOLD.format(port=port) + 's.sendto(b"end", there)\nprint("sent")\nsignal.pause()\n')
    count = end_pings(run, sender, receiver)
    receiver.wait_output("done")
    sender.wait_output("sent")
    theirs, mine = read(run, receiver)["sockets"][0], read(run, sender)["sockets"][0]
    assert mine["tx"]["packets"] + mine["tx"]["os_packets"] == count + 1
    assert theirs["rx"]["packets"] + theirs["rx"]["os_packets"] == count + 1
    assert mine["tx"]["packets"] == theirs["rx"]["packets"] > 0
    assert mine["tx"]["bytes"] == theirs["rx"]["bytes"]
    assert mine["offloaded"] and theirs["offloaded"]
    assert theirs["rx"]["queued_packets"] == 0 and theirs["local"]["port"] == port and theirs["rx"]["limit_bytes"] > 0


def test_drops(run, port):
    """Datagrams that found no room are counted."""
    receiver = script(run, "receiver", f"""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", {port}))
print("ready", flush=True)
while len((got := s.recvfrom(2000))[0]) < 1000:
    s.sendto(*got)
print("pause", flush=True)
signal.pause()
""").wait_output("ready")
    sender = script(run, "sender", UDP_PING_UNTIL_TOLD.format(port=port) + """
for i in range(20000):
    s.sendto(b"x" * 1000, there)
print("done", flush=True)
signal.pause()
""")
    end_pings(run, sender, receiver)
    sender.wait_output("done")
    one = wait_for(run, receiver, lambda one: one["rx"]["dropped_packets"] > 0, "drops")
    assert 0 < one["rx"]["queued_packets"] <= one["rx"]["most_packets"]
    assert 0 < one["rx"]["queued_bytes"] <= one["rx"]["most_bytes"]


def test_reason(run, port):
    """The text that the debug log has."""
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", f"""
s = socket.create_connection(("127.0.0.1", {port}))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
for i in range(100):
    s.sendall(b"x")
    s.recv(1)
print("done", flush=True)
signal.pause()
""").wait_output("done")
    one = read(run, client)["sockets"][0]
    assert (one["way"], one["reason"], one["tx"]["os_packets"]) == ("pinned", "SO_RCVLOWAT", 100)
    assert "- Not offloaded: SO_RCVLOWAT\n" in tool(run, "-F", "-p", client.pid, "-v", 3, "-c", 1)
    sockets = read(run, server)["sockets"]
    assert not any(one["offloaded"] for one in sockets)
    assert sorted(one["reason"] for one in sockets) == ["it listens", "no accelerated peer was found"]


def test_log_level_and_dump(run, port):
    script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", PING.format(port=port, count=10_000_000), env={"VMA_TRACELEVEL": "warn"})
    one = wait_for(run, client, lambda one: one["offloaded"] and one["tx"]["bytes"] > 0, "an accelerated socket that has sent")
    text = tool(run, "-F", "-p", client.pid, "-S", one["fd"], "warn", "-l", "debug", "-D", 3, "-c", 1)
    assert f"Dumping Fd {one['fd']} to VMA using log level = warn..." in text
    client.wait_log(lambda log: "Tx Offload:" in "\n".join(log.lines), "the dump")
    assert f"Fd=[{one['fd']}]" in "\n".join(client.log().lines)
    assert "Time: " in "\n".join(client.log().lines)  # of details 3


WINDOWS = """
listener = socket.create_server(("127.0.0.1", {port}))
c = socket.create_connection(("127.0.0.1", {port}))
s, _ = listener.accept()
c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)  # which keeps it on the kernel
c.sendall(b"x" * 1000)
print("fd", c.fileno(), flush=True)
while c.send(b"x"):
    time.sleep(0.001)  # calls after which it looks whether something is asked
"""


def test_dump_has_windows(run, port):
    """-S of a TCP socket also says what its connection is doing: here the kernel's."""
    proc = script(run, "talks", WINDOWS.format(port=port), env={"VMA_TRACELEVEL": "info"}).wait_output("fd ")
    tool(run, "-F", "-p", proc.pid, "-S", proc.stdout().split()[1], "info", "-c", 1)
    proc.wait_log(lambda log: "- Unacked queue: " in "\n".join(log.lines), "the dump")
    text = "\n".join(proc.log().lines)
    for line in ("Connection state: ESTABLISHED", "Window scaling: ENABLED, receive scale ", "Send window: ", "Receive window: ",
                 "Congestion window: ", "Unsent queue: "):
        assert f"- {line}" in text


def test_dump_has_rings(run, talk):
    """Of an accelerated one, what lies in its ring."""
    _, client = talk
    tool(run, "-F", "-p", client.pid, "-S", 0, "warn", "-c", 1)
    client.wait_log(lambda log: "- Receive ring: " in "\n".join(log.lines), "the dump")
    sent = read(run, client)["sockets"][0]["tx"]["bytes"]
    assert f"- Send ring: {sent} bytes sent, " in "\n".join(client.log().lines)


def test_sockperf(run, port):
    """A program of others, by its name."""
    sockperf = build.tool("sockperf")
    server = run.start("server", [sockperf, "server", "--tcp", "-i", "127.0.0.1", "-p", port], vma=True)
    run.wait_port(port, server)
    client = run.start("client", [sockperf, "ping-pong", "--tcp", "-i", "127.0.0.1", "-p", port, "-t", 20,
                                  *build.SOCKPERF_MANY], vma=True)
    one = wait_for(run, client, lambda one: one["rx"]["packets"] > 1000, "packets")
    assert one["rx"]["poll_hit"] > 0
    text = tool(run, "-F", "-n", "sockperf", "-c", 1)
    assert "stats for application: sockperf with pid: " in text
    client.kill()
    server.stop()


def test_redis(run, port):
    """Many connections through one epoll set."""
    server = run.start("redis", [build.tool("redis-server"), "--port", port, "--save", ""], vma=True)
    run.wait_port(port, server)
    run.run("benchmark", [build.tool("redis-benchmark"), "-p", port, "-t", "set", "-n", 20000, "-q", "-c", 10], vma=True)
    server.wait_output("Ready to accept")
    assert read(run, server)["program"] == "redis-server"
    server.stop()
    assert not file_of(run, server).exists()


def test_ring(run, talk):
    """The device's ring has what its sockets have, also those that are closed."""
    _, client = talk
    one = read(run, client)
    rings = one["rings"]
    assert [(ring["kind"], ring["name"]) for ring in rings] == [("local", "local")]
    assert rings[0]["tx_bytes"] == one["sockets"][0]["tx"]["bytes"] > 0
    assert "\tRING_LOCAL=[0]\n" in tool(run, "-F", "-p", client.pid, "-v", 3, "-c", 1)


def test_ring_of_closed(run, port):
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    text = PING_UNTIL_TOLD.format(port=port) + "s.close()\nprint('done', flush=True)\nsignal.pause()\n"
    client = script(run, "client", text)
    end_pings(run, client, server)
    client.wait_output("done")
    seen = read(run, client)
    assert not seen["sockets"] and seen["rings"][0]["rx_bytes"] > 0


def test_dummy_sends_of_getsockname(run, port):
    """VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME: counted, and the peer gets nothing of them."""
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    asks = PING_UNTIL_TOLD.format(port=port) + """
for _ in range(7):
    s.getsockname()
s.sendall(b"end")
assert s.recv(10) == b"end"
print("asked", flush=True)
signal.pause()
"""
    client = script(run, "client", asks, env={"VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME": "1"})
    count = end_pings(run, client, server)
    client.wait_output("asked")
    mine = read(run, client)["sockets"][0]
    assert mine["tx"]["dummies"] == 7 and mine["tx"]["bytes"] + mine["tx"]["os_bytes"] == count * 100 + 3
    theirs = next(one for one in read(run, server)["sockets"] if one["state"] == "ESTABLISHED")
    assert theirs["tx"]["dummies"] == 0
