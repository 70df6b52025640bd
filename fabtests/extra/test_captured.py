# SPDX-License-Identifier: BSD-2-Clause
"""vma_dump beside programs that receive by the extra API: what their callbacks are asked about, what is lent to them without a copy,
and what SocketXtreme completes is shown, each byte of it, and as much of it as the library has counted."""

import array
import re
import struct

import pytest

from lib import build, vmadump

ROOM = 256 << 10  # KiB: more than all that comes, so that nothing is lost however long vma_dump has to wait
COUNTED = re.compile(r"Rx Offload: (\d+) / (\d+) ")  # KiB, packets


def check_datagram(data):
    """As of send_numbers()."""
    number, = struct.unpack_from("<I", data)
    assert len(data) == 8 + number * 2654435761 % (1 << 32) % (1472 - 8)
    assert data[4:] == bytes([number & 0xff]) * (len(data) - 4)
    return number


def check_numbers(packets):
    numbers = [check_datagram(one.data) for one in packets]
    assert all(one.udp for one in packets) and numbers == sorted(set(numbers))


def check_at(packets, whole):
    """Pieces of one stream, each where it belongs. Between them is what the kernel carried."""
    end = 0
    for one in packets:
        at = one.seq - 1
        assert not one.udp and at >= end and one.data == whole[at:at + one.length]
        end = at + one.length


def check_words(packets):
    last = packets[-1].seq + packets[-1].length
    check_at(packets, array.array("I", range(last // 4 + 1)).tobytes())


def check_messages(packets):
    """As of send_messages(), 64 bytes each."""
    last = packets[-1].seq // 64 + 1
    check_at(packets, b"".join(struct.pack("<I", number) + bytes([number % 251]) * 60 for number in range(last)))


def check_stamps(packets):
    """As of send_to_many(): datagrams to sockets in a row, and words on two streams."""
    first = min(one.target[1] for one in packets)
    streams = {}
    for one in packets:
        if one.udp:
            assert struct.unpack_from("<I", one.data)[0] == one.target[1] - first
        else:
            streams.setdefault(one.source, []).append(one)
    assert len(streams) == 2 and sum(one.udp for one in packets) > 100
    for some in streams.values():
        assert some[0].seq % 8 == 1
        who, = struct.unpack_from("<I", some[0].data)
        check_at(some, b"".join(struct.pack("<II", who, n) for n in range((some[-1].seq + some[-1].length) // 8 + 1)))


CHECKS = {"udp_zcopy": check_numbers, "tcp_zcopy": check_words, "udp_callback": check_numbers, "tcp_callback": check_messages,
          "tcp_callback_stream": check_words, "xtreme": check_numbers, "xtreme_many": check_stamps}


@pytest.mark.parametrize("scenario", CHECKS)
def test_receives(run, scenario):
    gate = run.work / "gate"
    env = {"EXTRA_GATE": str(gate), "VMA_STATS_FILE": str(run.work / "counted"), "VMA_LIFT_AFTER": "8",
           "VMA_LIFT_AT_CONNECT": "1000000", "EXTRA_MOST": "20000",  # enough, and of streams all, on a machine that is busy
           "VMA_SOCKETXTREME": str(int(scenario.startswith("xtreme"))),
           "CALLBACK_ANSWER": "2", "CALLBACK_AFTER": "0", "CALLBACK_OFF": "4000000000"}
    program = run.start("program", [build.program("extra/programs/extra_api"), scenario], vma=True, env=env)
    dump = vmadump.start(run, "-B", ROOM, "-Q", "in", "-w", "shown", "-p", program.pid)
    gate.touch()
    program.ok()
    captured, _, dropped = vmadump.counts(dump.ok())
    packets = vmadump.parse((run.work / "shown").read_bytes())
    assert dropped == 0 and captured == len(packets) > 100
    CHECKS[scenario](packets)
    counted = [tuple(map(int, one)) for one in COUNTED.findall((run.work / "counted").read_text())]
    if any(one.udp for one in packets):
        assert sum(number for _, number in counted) == len(packets)
    else:  # a long one is several packets
        assert sum(one.length for one in packets) // 1024 == sum(kibibytes for kibibytes, _ in counted)
