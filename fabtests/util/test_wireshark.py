# SPDX-License-Identifier: BSD-2-Clause
"""Wireshark's own reader on what vma_dump writes: it puts the streams together again, and complains of nothing."""

import contextlib
import os
import pathlib
import subprocess

import pytest

from lib import build, patience, vmadump
from lib.vmastats import ECHO, script, wait_for

# A process answers vma_dump next to its calls on sockets. With VMA_EXCEPTION_HANDLING=-2 the next one that is made starts the library.
GATE = """
def gate():
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while not os.path.exists("go"):
        try:
            u.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            socket.socket().close()
            time.sleep(0.001)
"""

TALK = GATE + """
SIZES = {sizes}
def block(start, length, key):
    return bytes((i * 7 + key) % 251 for i in range(start, start + length))
def read(s, length):
    while length:
        length -= len(s.recv(length))
def answer(size):
    return size // 2 + 1
"""

SERVER = TALK + """
listener = socket.create_server(("127.0.0.1", {port}))
print("ready", flush=True)
gate()
s, _ = listener.accept()
sent = 0
for size in SIZES:
    read(s, size)
    s.sendall(block(sent, answer(size), 2))
    sent += answer(size)
s.recv(1)
"""

# How the client's messages go.
WAYS = {"send": """
def give(s, data):
    s.sendall(data)
""", "sendfile": """
def give(s, data):
    with open(os.memfd_create("data"), "wb", buffering=0) as file:
        file.write(data)
        at = 0
        while at < len(data):
            at += os.sendfile(s.fileno(), file.fileno(), at, len(data) - at)
"""}

CLIENT = TALK + """{way}
gate()
s = socket.create_connection(("127.0.0.1", {port}))
sent = 0
for size in SIZES:
    give(s, block(sent, size, 1))
    sent += size
    read(s, answer(size))
"""

# Pieces of a packet's size and what goes around the 64 KiB that a window without a scale has.
SIZES = [100, 1, 65160, 375, 65161, 1460, 200000, 65535, 3, 70000] + [64] * 200


COMMENT = 1 << 20  # the severity of a packet's comment, which is a finding too


def block(length, key):
    return bytes((i * 7 + key) % 251 for i in range(length))


def tshark(source, port, *arguments, **how):
    """Its lines. What goes to `port` is bytes to it, so that no guess at them can go wrong; it looks at all checksums."""
    plain = [word for name in ("tcp", "udp") for word in ("-d", f"{name}.port=={port},data")]
    checks = [word for name in ("ip", "tcp", "udp") for word in ("-o", f"{name}.check_checksum:TRUE")]
    done = subprocess.run([build.tool("tshark"), "-n", "-r", source, *plain, *checks, *map(str, arguments)],
                          capture_output=True, text=True, timeout=patience.seconds(120), **how)
    assert done.returncode == 0, done.stderr[:2000]
    assert "damaged" not in done.stderr and "cut short" not in done.stderr, done.stderr[:2000]
    return done.stdout.splitlines()


def fields(source, port, *names, which=None, **how):
    chosen = ["-Y", which] if which else []
    words = [word for name in names for word in ("-e", name)]
    return [line.split("\t") for line in tshark(source, port, *chosen, "-T", "fields", *words, **how)]


def complaints(path, port):
    """What Wireshark would colour: packets that are no packets, wrong checksums, holes, repetitions, and all its other findings."""
    found = f"_ws.expert.severity > {COMMENT} || _ws.malformed || tcp.analysis.flags"
    return fields(path, port, "frame.number", "_ws.expert.message", which=found)


def followed(path, port):
    """The bytes of both directions of the first stream, as Wireshark puts them together: who sent first, then its peer."""
    sides = {False: bytearray(), True: bytearray()}
    shown = [line for line in tshark(path, port, "-q", "-z", "follow,tcp,raw,0") if line.strip("\t").isalnum()]
    for line in shown:
        sides[line.startswith("\t")] += bytes.fromhex(line)
    return bytes(sides[False]), bytes(sides[True])


def has_started(proc):
    """Whether the library has opened what it accelerates with: loading it takes some milliseconds, and at times more than an accept() waits."""
    for entry in pathlib.Path(f"/proc/{proc.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if "vma-doorbell" in os.readlink(entry):
                return True
    return False


@pytest.fixture
def whole(run, port):
    """whole(role, ..., way): a connection, captured from its first byte on at that end, or at both."""
    def capture(role, *more, way="send"):
        texts = {name: text.format(sizes=SIZES, port=port, way=WAYS[way]) for name, text in (("server", SERVER), ("client", CLIENT))}
        # Accelerated before their first byte, however long that takes.
        env = {"VMA_LIFT_AT_CONNECT": "20000000", "VMA_EXCEPTION_HANDLING": "-2"}
        procs = {"server": script(run, "server", texts["server"], env=env).wait_output("ready")}
        procs["client"] = script(run, "client", texts["client"], env=env)
        for proc in procs.values():
            run.wait_until(lambda proc=proc: has_started(proc), "the library to start", proc)
        listened = list(procs) if role == "both" else [role]
        chosen = [word for one in listened for word in ("-p", procs[one].pid)]
        dump = vmadump.start(run, "-B", 65536, "-w", "whole", *chosen, *more, listeners=len(listened))
        (run.work / "go").touch()
        procs["client"].ok()
        procs["server"].ok()
        captured, _, dropped = vmadump.counts(dump.ok())
        assert dropped == 0 and captured >= 2 * len(SIZES)
        return captured
    return capture


@pytest.mark.parametrize("role, way", [("client", "send"), ("server", "send"), ("client", "sendfile")])
def test_stream_from_its_start(run, port, whole, role, way):
    """Each byte where it belongs, also what comes from a file."""
    captured = whole(role, way=way)
    path = run.work / "whole"
    sent, answered = block(sum(SIZES), 1), block(sum(size // 2 + 1 for size in SIZES), 2)
    assert followed(path, port) == (sent, answered)
    rows = fields(path, port, "frame.interface_name", "tcp.checksum.status", "ip.checksum.status", "tcp.payload", "tcp.len", "frame.comment")
    assert len(rows) == captured
    assert {tuple(row[1:3]) for row in rows} == {("1", "1")} and len({row[0] for row in rows}) == 1
    assert sum(int(row[4]) for row in rows) == len(sent) + len(answered)
    assert sum(len(row[3]) // 2 for row in rows) == len(sent) + len(answered)
    comments = [row[5] for row in rows if row[5]]
    assert comments == [rows[0][5]] and comments[0].startswith("fd ") and "TCP, device local" in comments[0]
    assert complaints(path, port) == []


def test_what_both_ends_have_received(run, port, whole):
    """Each message once, and none before what it answers."""
    whole("both", "-Q", "in")
    path = run.work / "whole"
    assert followed(path, port) == (block(sum(SIZES), 1), block(sum(size // 2 + 1 for size in SIZES), 2))
    assert len({row[0] for row in fields(path, port, "frame.interface_name")}) == 2
    assert complaints(path, port) == []


def test_short_packets(run, port, whole):
    """Of which the checksum can't be known: they are told to be cut, and not to be wrong."""
    captured = whole("client", "-s", 96)
    rows = fields(run.work / "whole", port, "tcp.checksum.status", "frame.cap_len", "frame.len", "tcp.len")
    assert len(rows) == captured
    for checksum, *numbers in rows:
        there, length, payload = map(int, numbers)
        assert length == 54 + payload and there == min(length, 96) and checksum != "0"
    assert complaints(run.work / "whole", port) == []


DATAGRAMS = GATE + """
a, b = (socket.socket(socket.{family}, socket.SOCK_DGRAM) for _ in range(2))
b.bind(("{address}", {port}))
gate()
for i in range(600):
    a.sendto(i.to_bytes(4, "big") * (i % 300), b.getsockname())
    b.recv(2000)
"""


@pytest.mark.parametrize("family, address", [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")], ids=["v4", "v6"])
def test_datagrams(run, port, family, address):
    proc = script(run, "datagrams", DATAGRAMS.format(family=family, address=address, port=port), env={"VMA_SPEC": "latency"})
    dump = vmadump.start(run, "-w", "udp", "-Q", "in", "-p", proc.pid)
    (run.work / "go").touch()
    proc.ok()
    captured, _, dropped = vmadump.counts(dump.ok())
    rows = fields(run.work / "udp", port, "udp.payload", "udp.length", "udp.dstport", "udp.checksum.status")
    assert dropped == 0 and len(rows) == captured > 300
    for i, (payload, length, to, checksum) in enumerate(rows, 600 - captured):
        assert bytes.fromhex(payload) == i.to_bytes(4, "big") * (i % 300)
        assert int(length) == 8 + i % 300 * 4 and int(to) == port and checksum == "1"
    assert complaints(run.work / "udp", port) == []


PING = """
s = socket.create_connection(("127.0.0.1", {port}))
i = 0
while not os.path.exists("go"):
    ping(s, b"%07d." % i)
    i += 1
"""


def test_pipe(run, port):
    """vma_dump -w - | tshark -r -, of programs that are in the middle of it."""
    script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", PING.format(port=port))
    wait_for(run, client, lambda one: one["offloaded"], "an accelerated socket")
    pipe, inlet = os.pipe()
    with os.fdopen(inlet, "wb") as out:
        dump = run.start("dump", [build.build_dir() / "vma_dump", "-k", run.log_dir, "-p", client.pid, "-Q", "out", "-c", 300,
                                  "-U", "-w", "-"], stdout=out)
    with os.fdopen(pipe, "rb") as stream:
        rows = fields("-", port, "tcp.payload", "tcp.dstport", "tcp.analysis.flags", stdin=stream)
    assert vmadump.counts(dump.ok())[0] == len(rows) == 300
    numbers = [int(bytes.fromhex(row[0])[:7]) for row in rows]
    assert numbers == list(range(numbers[0], numbers[0] + 300))
    assert {tuple(row[1:]) for row in rows} == {(str(port), "")}
    (run.work / "go").touch()
    client.ok()
