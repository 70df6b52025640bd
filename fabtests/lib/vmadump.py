# SPDX-License-Identifier: BSD-2-Clause
"""vma_dump, and what a pcapng file has that it writes."""

import dataclasses
import ipaddress
import signal
import struct
import subprocess

from . import build, patience

SECTION, INTERFACE, STATISTICS, PACKET = 0x0A0D0D0A, 1, 5, 6


def start(run, *arguments, listeners=1, name="dump", **how):
    """A vma_dump that listens to so many processes."""
    dump = run.start(name, [build.build_dir() / "vma_dump", "-k", run.log_dir, *arguments], **how)
    run.wait_until(lambda: dump.stderr().count("listening to") >= listeners, f"{name} to listen", proc=dump)
    return dump


def end(dump):
    """As Control-C does; returns the numbers of packets captured, received and dropped."""
    if dump.alive():
        dump.send_signal(signal.SIGINT)
    dump.ok()
    return counts(dump)


def counts(dump):
    words = dump.stderr().split()
    return tuple(int(words[words.index("packets", at) - 1]) for at in
                 [i - 1 for i, word in enumerate(words) if word == "packets"])


@dataclasses.dataclass
class Packet:
    interface: str
    time_ns: int
    out: bool
    source: tuple[str, int]
    target: tuple[str, int]
    udp: bool
    seq: int
    ack: int
    length: int  # of the program's bytes
    data: bytes  # what is there of them
    options: dict[int, bytes]


def _options(raw: bytes) -> dict[int, bytes]:
    found = {}
    while len(raw) >= 4:
        code, length = struct.unpack_from("HH", raw)
        if code == 0:
            break
        found[code] = raw[4:4 + length]
        raw = raw[4 + (length + 3) // 4 * 4:]
    return found


def _blocks(raw: bytes):
    at = 0
    while at < len(raw):
        kind, length = struct.unpack_from("II", raw, at)
        assert length % 4 == 0 and struct.unpack_from("I", raw, at + length - 4)[0] == length
        yield kind, raw[at + 8:at + length - 4]
        at += length


def _frame(frame: bytes, length: int):
    """Addresses, and what TCP or UDP say."""
    v4 = frame[12:14] == b"\x08\x00"
    ip = frame[14:]
    size = 20 if v4 else 40
    protocol = ip[9] if v4 else ip[6]
    ends = (ip[12:16], ip[16:20]) if v4 else (ip[8:24], ip[24:40])
    source, target = (str(ipaddress.ip_address(end)) for end in ends)
    ports = struct.unpack_from("!HH", ip, size)
    udp = protocol == 17
    seq, ack = (0, 0) if udp else struct.unpack_from("!II", ip, size + 4)
    header = 14 + size + (8 if udp else 20)
    return (source, ports[0]), (target, ports[1]), udp, seq, ack, length - header, frame[header:]


def parse(raw: bytes) -> list[Packet]:
    names, packets = [], []
    for kind, body in _blocks(raw):
        if kind == SECTION:
            names = []
        elif kind == INTERFACE:
            options = _options(body[8:])
            assert options[9] == b"\x09"
            names.append(options[2].decode())
        elif kind == PACKET:
            interface, high, low, captured, length = struct.unpack_from("5I", body)
            options = _options(body[20 + (captured + 3) // 4 * 4:])
            out = struct.unpack("I", options[2])[0] == 2
            packets.append(Packet(names[interface], high << 32 | low, out, *_frame(body[20:20 + captured], length), options))
    return packets


def lost(raw: bytes) -> int:
    """As the file's statistics have it."""
    return sum(struct.unpack("Q", _options(body[12:])[5])[0] for kind, body in _blocks(raw) if kind == STATISTICS)


def tcpdump(path, *filters) -> list[str]:
    """Its lines: all of the file can be read."""
    done = subprocess.run([build.tool("tcpdump"), "-nn", "-r", path, *filters], capture_output=True, text=True, timeout=patience.seconds())
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def stream(packets):
    """Position and bytes of one direction of a connection, which has no hole."""
    start = position = packets[0].seq
    data = bytearray()
    for one in packets:
        assert one.seq == position and one.length == len(one.data), f"a hole at {position}, {one.seq} follows"
        data += one.data
        position += one.length
    return start - 1, bytes(data)
