# SPDX-License-Identifier: BSD-2-Clause
"""vma_dump beside programs that run with libvma.so: what it shows is what they send and receive, and they don't suffer."""

import os
import re
import signal
import struct
import subprocess

import pytest

from lib import build, patience, vmadump
from lib.users import become
from lib.vmastats import ECHO, script, wait_for

ROOM = ("-B", 65536)  # nothing is lost where a busy machine lets vma_dump wait for long
PIECE = 128  # bytes of a message: its number, 32 times; a ring is so many of them that none is in two parts

PING = """
s = socket.create_connection(("127.0.0.1", {port}))
i = 0
last = None
while i != last:
    ping(s, i.to_bytes(4, "big") * 32)
    i += 1
    if last is None and os.path.exists("go"):
        last = i + 3000
print("sent", i, flush=True)
"""

DATAGRAMS = """
a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
a.bind(("127.0.0.1", 0))
b.bind(("127.0.0.1", {port}))
to = b.getsockname()
i = 0
last = None
while i != last:
    a.sendto(i.to_bytes(4, "big") * 25, to)
    b.recv(1000)
    i += 1
    if last is None and os.path.exists("go"):
        last = i + 1000
print("sent", i, flush=True)
"""


def messages(position, length):
    """What stands there in the stream of all messages."""
    first = position // PIECE
    count = (position + length) // PIECE + 1 - first
    whole = b"".join(struct.pack("!I", first + i) * 32 for i in range(count))
    return whole[position - first * PIECE:][:length]


def go_on(run):
    (run.work / "go").touch()


@pytest.fixture
def talk(run, port):
    """A ping-pong that is accelerated, and goes on until it is told that its end is near."""
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", PING.format(port=port))
    for proc in server, client:
        wait_for(run, proc, lambda one: one["offloaded"], "an accelerated socket")
    return server, client


def finish(run, talk):
    go_on(run)
    server, client = talk
    client.ok()
    server.ok()
    return int(re.search(r"sent (\d+)", client.stdout())[1])


@pytest.mark.parametrize("limit", [False, True], ids=["whole", "short"])
def test_bytes_of_a_stream(run, port, talk, limit):
    """Both directions, at both ends, byte by byte; of a short capture the lengths."""
    server, client = talk
    dump = vmadump.start(run, *ROOM, "-w", "all.pcapng", *(["-s", 60] if limit else []), listeners=2)
    sent = finish(run, talk)
    captured, received, dropped = vmadump.end(dump)
    packets = vmadump.parse((run.work / "all.pcapng").read_bytes())
    assert captured == received == len(packets) and dropped == 0
    assert len(vmadump.tcpdump(run.work / "all.pcapng")) == captured
    for proc in server, client:
        for out in True, False:
            mine = [one for one in packets if one.interface == f"local@{proc.pid}" and one.out == out]
            to_server = (proc is client) == out
            assert {one.target[1] == port for one in mine} == {to_server}
            assert {one.source[0] for one in mine} == {"127.0.0.1"}
            if limit:
                assert all(len(one.data) == min(6, one.length) for one in mine)
                assert any(one.length == PIECE for one in mine)
                position = mine[-1].seq - 1 + mine[-1].length
            else:
                start, data = vmadump.stream(mine)
                assert data == messages(start, len(data))
                position = start + len(data)
                assert len(data) >= 3000 * PIECE
            assert position == sent * PIECE
        comments = [one.options[1].decode() for one in packets if one.interface == f"local@{proc.pid}" and 1 in one.options]
        assert len(comments) == 1 and comments[0].startswith("fd ")
    request = next(one for one in packets if one.interface == f"local@{server.pid}" and one.out)
    assert request.ack == request.seq + PIECE  # it answers what it has read


def test_filter_and_count_into_tcpdump(run, port, talk):
    """-w - into tcpdump -r -; a filter of tcpdump's language; an end by itself."""
    server, client = talk
    pipe, inlet = os.pipe()
    with os.fdopen(inlet, "wb") as out:
        dump = run.start("dump", [build.build_dir() / "vma_dump", "-k", run.log_dir, "-p", client.pid, "-c", 50, "-U", "-w",
                                  "-", f"tcp dst port {port} and tcp[20:4] & 1 == 0"], stdout=out)
    with os.fdopen(pipe, "rb") as inlet:
        reader = subprocess.run([build.tool("tcpdump"), "-nn", "-v", "-r", "-"], stdin=inlet, capture_output=True, text=True,
                                timeout=patience.seconds())
    dump.ok()
    assert vmadump.counts(dump)[0] == 50
    lines = [line for line in reader.stdout.splitlines() if "> 127.0.0.1" in line]
    assert len(lines) == 50 and all(f"> 127.0.0.1.{port}:" in line and f"length {PIECE}" in line for line in lines)
    assert all("(correct)" in line for line in lines)
    finish(run, talk)


def test_lines_of_text(run, port, talk):
    server, client = talk
    dump = vmadump.start(run, "-p", server.pid, "-Q", "out", "-c", 5)
    dump.ok()
    lines = dump.stdout().splitlines()
    form = rf"\d\d:\d\d:\d\d\.\d{{9}} local Out IP 127\.0\.0\.1\.{port} > 127\.0\.0\.1\.\d+: TCP, seq \d+:\d+, ack \d+, length {PIECE} "
    assert len(lines) == 5 and all(re.match(form, line) for line in lines), lines
    finish(run, talk)


def test_ring_of_files(run, talk):
    server, client = talk
    dump = vmadump.start(run, "-p", client.pid, "-w", "ring", "-C", 1, "-W", 3)
    newest = run.work / "ring2"
    run.wait_until(newest.exists, "the third file")
    first = (run.work / "ring0").read_bytes()
    run.wait_until(lambda: (run.work / "ring0").read_bytes()[:2000] != first[:2000], "the first one to be written over")
    vmadump.end(dump)
    assert sorted(path.name for path in run.work.glob("ring*")) == ["ring0", "ring1", "ring2"]
    for number in range(3):
        path = run.work / f"ring{number}"
        assert 0 < path.stat().st_size < 1_001_000
        packets = vmadump.parse(path.read_bytes())
        assert len(vmadump.tcpdump(path)) == len(packets)
        assert not packets or 1 in packets[0].options  # each file says what its sockets are
    finish(run, talk)


def is_captured(proc):
    links = []
    for entry in os.scandir(f"/proc/{proc.pid}/fd"):
        try:
            links.append(os.readlink(entry.path))
        except FileNotFoundError:
            pass
    return any("vma-capture" in link for link in links)


def test_killed_listener(run, talk):
    """The programs go on, notice it, and give the ring back; somebody else may listen then."""
    server, client = talk
    dump = vmadump.start(run, "-w", "killed", listeners=2)
    assert is_captured(server) and is_captured(client)
    dump.kill()
    for proc in talk:
        run.wait_until(lambda proc=proc: not is_captured(proc), "the end of the capture", proc=proc)
    again = vmadump.start(run, "-w", "again", listeners=2, name="again")
    finish(run, talk)
    assert vmadump.end(again)[0] > 0


FORK = """
def captured():
    return any("vma-capture" in os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd))
s = socket.create_connection(("127.0.0.1", {port}))
while not os.path.exists("go"):
    ping(s)
before = captured()
if child := os.fork():
    os.waitpid(child, 0)
    print("parent", before, captured(), flush=True)
else:
    for _ in range(200):
        ping(s)
    print("child", captured(), flush=True)
    os._exit(0)
for _ in range(2000):
    ping(s)
"""


def test_fork_while_listened_to(run, port):
    """The child has nothing of it; its parent goes on."""
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", FORK.format(port=port))
    wait_for(run, client, lambda one: one["offloaded"], "an accelerated socket")
    dump = vmadump.start(run, "-w", "fork", "-p", client.pid)
    go_on(run)
    client.ok()
    server.ok()
    assert client.stdout().splitlines() == ["child False", "parent True True"]
    assert vmadump.end(dump)[0] > 0


def test_stopped_listener(run, talk):
    """Nobody waits for it. What finds no room is counted."""
    server, client = talk
    dump = vmadump.start(run, "-p", client.pid, "-B", 1024, "-w", "stopped")
    dump.send_signal(signal.SIGSTOP)
    sent = wait_for(run, client, lambda one: one["offloaded"], "the socket")["tx"]["bytes"]
    wait_for(run, client, lambda one: one["tx"]["bytes"] > sent + 1_500_000, "more than the ring holds")
    dump.send_signal(signal.SIGCONT)
    finish(run, talk)
    captured, _, dropped = vmadump.end(dump)
    assert dropped > 0 and captured > 0
    raw = (run.work / "stopped").read_bytes()
    packets = vmadump.parse(raw)
    assert vmadump.lost(raw) == dropped
    # Those that were lost behind the last packet stand at the end alone.
    assert sum(struct.unpack("Q", one.options[4])[0] for one in packets if 4 in one.options) <= dropped


def test_second_listener_is_refused(run, talk):
    server, client = talk
    first = vmadump.start(run, "-p", client.pid, "-w", "first")
    second = run.start("second", [build.build_dir() / "vma_dump", "-k", run.log_dir, "-p", client.pid, "-w", "second"])
    second.fails()
    assert "another vma_dump listens to it" in second.stderr()
    finish(run, talk)
    assert vmadump.end(first)[0] > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_can_not_listen(run, talk):
    server, client = talk
    run.work.chmod(0o777)
    other = run.start("other", [build.build_dir() / "vma_dump", "-k", run.log_dir, "-p", client.pid, "-w", "other"],
                      preexec=become(65534))
    other.fails()
    assert "Permission denied" in other.stderr()
    finish(run, talk)


def test_datagrams(run, port):
    proc = script(run, "datagrams", DATAGRAMS.format(port=port))
    wait_for(run, proc, lambda one: one["protocol"] == "udp" and one["tx"]["bytes"] > 0, "accelerated datagrams")
    dump = vmadump.start(run, *ROOM, "-w", "udp")
    go_on(run)
    proc.ok()
    captured, _, dropped = vmadump.end(dump)
    packets = vmadump.parse((run.work / "udp").read_bytes())
    assert dropped == 0 and len(packets) == captured == len(vmadump.tcpdump(run.work / "udp", "udp"))
    sent = [one for one in packets if one.out]
    got = [one for one in packets if not one.out]
    for some in sent, got:
        numbers = [struct.unpack("!I", one.data[:4])[0] for one in some]
        assert len(numbers) >= 1000 and numbers == list(range(numbers[0], numbers[-1] + 1))
        assert all(one.data == struct.pack("!I", n) * 25 for one, n in zip(some, numbers))
        assert {one.target for one in some} == {("127.0.0.1", port)}
        assert {one.source for one in some} == {sent[0].source} and sent[0].source[1] != 0


def test_redis(run, port):
    """What the server has read is what its clients have sent, and the other way round."""
    command = [build.tool("redis-server"), "--port", port, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]
    server = run.start("redis", command, vma=True)
    run.wait_port(port, server)
    benchmark = run.start("benchmark", [build.tool("redis-benchmark"), "-p", port, "-c", 4, "-t", "set", "-q", "-l"], vma=True)
    dump = vmadump.start(run, *ROOM, "-w", "redis", "-c", 20000, listeners=2)
    captured, _, dropped = vmadump.counts(dump.ok())
    benchmark.kill()
    assert captured == len(vmadump.tcpdump(run.work / "redis")) == 20000 and dropped == 0
    flows = {}
    for one in vmadump.parse((run.work / "redis").read_bytes()):
        flows.setdefault((one.interface, one.source, one.target), []).append(one)
    by_server = {key: vmadump.stream(some) for key, some in flows.items() if key[0] == f"local@{server.pid}"}
    others = {key[1:]: vmadump.stream(some) for key, some in flows.items() if key[0] != f"local@{server.pid}"}
    assert sum(data.count(b"$3\r\nSET\r\n") for key, (_, data) in by_server.items() if key[2][1] == port) > 1000
    both = [key for key in by_server if key[1:] in others]
    assert both
    for key in both:
        (start, data), (their_start, theirs) = by_server[key], others[key[1:]]
        begin, end = max(start, their_start), min(start + len(data), their_start + len(theirs))
        assert data[begin - start:end - start] == theirs[begin - their_start:end - their_start] != b""
    assert server.stop() == 0


def test_sockperf(run, port):
    """A message each 50 us: each of them is there."""
    sockperf = build.tool("sockperf")
    server = run.start("server", [sockperf, "server", "--tcp", "-i", "127.0.0.1", "-p", port], vma=True)
    run.wait_port(port, server)
    dump = vmadump.start(run, *ROOM, "-w", "sockperf", "-c", 8000, listeners=0)
    client = run.start("client", [sockperf, "ping-pong", "--tcp", "-i", "127.0.0.1", "-p", port, "--mps", 20000, "-t", 100, "-m", 64], vma=True)
    captured, _, dropped = vmadump.counts(dump.ok())
    for proc in client, server:
        proc.stop(number=signal.SIGINT)
    packets = vmadump.parse((run.work / "sockperf").read_bytes())
    assert dropped == 0 and len(packets) == captured == len(vmadump.tcpdump(run.work / "sockperf"))
    numbers = [struct.unpack("!Q", one.data[:8])[0] for one in packets
               if one.interface == f"local@{client.pid}" and one.out and one.target[1] == port]
    assert len(numbers) > 1000 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@pytest.mark.parametrize("arguments, said", [
    (["tcp port"], "is no filter"),
    (["-W", 3, "-w", "x"], "needs -C"),
    (["-C", 3], "needs -w FILE"),
    (["-p", "x"], "expected the id of a process"),
    (["-s", -1], "expected bytes, 0 to 262144"),
    (["-p", 1 << 30], "there is no process"),
    (["-w", "/nowhere/file"], "it can't be written"),
], ids=str)
def test_wrong_command_lines(run, arguments, said):
    dump = run.start("dump", [build.build_dir() / "vma_dump", "-k", run.log_dir, *arguments])
    dump.fails()
    assert said in dump.stderr()


def test_help(run):
    shown = run.run("dump", [build.build_dir() / "vma_dump", "--help"]).stdout()
    assert shown.startswith("Usage: vma_dump") and all(f"  {letter}" in shown for letter in ("-p,", "-w ", "-C ", "-W "))
