# SPDX-License-Identifier: BSD-2-Clause
"""Our TCP on AF_XDP against the Linux kernel's over a wire: what the two can agree on, in combination, and streams over
it. The kernel's end is set by its namespace's sysctls; what was agreed is read from both ends, so no test passes by
accident."""

import itertools
import pathlib
import socket

import pytest

from lib.tcp import (FAMILIES, PORT, Exchange, Talk, accepted, bridged, exchange, kernel_listener, kernel_socket,
                     no_offloads, seen_by_kernel, tcp_sysctl, value_of)
from lib.wire import LEFT, RIGHT

SIZE = 1 << 20
FAMILY_IDS = ["ipv4", "ipv6"]
DIRECTIONS = ["we_connect", "kernel_connects"]


@pytest.fixture
def wire(run, hosts):
    no_offloads(run, hosts.right)
    return hosts


@pytest.fixture
def talk(run, wire):
    program = Talk(run, wire.left)
    yield program
    program.finish()


class Ends:
    """Connections between our program and the kernel, each on ports of its own."""

    def __init__(self, talk, right, left_address=LEFT, right_address=RIGHT):
        self.talk, self.right = talk, right
        self.left_address, self.right_address = left_address, right_address
        self.port = PORT

    def make(self, direction, **options):
        """An open connection: the kernel's socket; tcp_talk has the other end as its own."""
        self.port += 1
        if direction == "kernel_connects":
            self.talk.do(f"listen {self.left_address} {self.port}")
            family = socket.AF_INET6 if ":" in self.left_address else socket.AF_INET
            sock = kernel_socket(self.right, family, **options)
            sock.connect((self.left_address, self.port))
            self.talk.do("accept")
            return sock
        with kernel_listener(self.right, self.right_address, self.port, **options) as listener:
            self.talk.do(f"connect {self.left_address} {30000 + self.port} {self.right_address} {self.port}",
                         "wait established")
            return accepted(listener)

    def kernel(self) -> list[str]:
        """What the kernel says of the connection that was made last."""
        return seen_by_kernel(self.right, f"( sport = :{self.port} or dport = :{self.port} )")


# ---- options of the handshake ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("family, left, right", FAMILIES, ids=FAMILY_IDS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_options(wire, talk, family, left, right, direction):
    """SACK, time stamps, window scale and ECN, each refused by each side and by none, in all combinations of the kernel's."""
    ends = Ends(talk, wire.right, left, right)
    asked = list(itertools.product((0, 1), repeat=4))
    ours = dict(sack=1, timestamps=1, window_scaling=1, ecn=1)
    runs = [(dict(zip(ours, bits)), ours) for bits in asked] + [(ours, {**ours, name: 0}) for name in ours]
    for kernels, we in runs:
        talk.settle(**we)
        tcp_sysctl(wire.right, tcp_sack=kernels["sack"], tcp_timestamps=kernels["timestamps"],
                   tcp_window_scaling=kernels["window_scaling"], tcp_ecn=kernels["ecn"])
        both = {name: kernels[name] and we[name] for name in ours}
        if direction == "kernel_connects":
            both["ecn"] = kernels["ecn"] # whoever asks us gets it
        with ends.make(direction) as sock:
            info, words = talk.info(), ends.kernel()
            named = {name: info[name] for name in ("sack", "timestamps", "scaling", "ecn")}
            assert named == dict(sack=both["sack"], timestamps=both["timestamps"], scaling=both["window_scaling"],
                                 ecn=both["ecn"]), (kernels, we)
            assert ("sack" in words, "ts" in words, "ecn" in words) == tuple(
                bool(both[name]) for name in ("sack", "timestamps", "ecn")), (kernels, we, words)
            assert any(word.startswith("wscale:") for word in words) == bool(both["window_scaling"]), words
            exchange(talk, sock, SIZE // 4)
        talk.do("close")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_ecn_modes(wire, talk, direction):
    """tcp_ecn: 0 to 2 are the classic ones, 3 to 5, of newer kernels, know accurate ECN too. Who asks for that gets what we have."""
    talk.settle(ecn=1)
    ends = Ends(talk, wire.right)
    for mode in range(6):
        try:
            tcp_sysctl(wire.right, tcp_ecn=mode)
        except OSError: # Linux before 6.18
            assert mode > 2
            continue
        agreed = mode in (1, 3, 4) or (mode in (2, 5) and direction == "we_connect")
        with ends.make(direction) as sock:
            words = ends.kernel()
            assert (talk.info()["ecn"], "ecn" in words) == (agreed, agreed), (mode, words)
            exchange(talk, sock, SIZE // 4)
        talk.do("close")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_window_scales_of_the_kernel(wire, talk, direction):
    """0 to 14, by tcp_rmem; what is below its floor, the machine's rmem_max, by SO_RCVBUF."""
    ends = Ends(talk, wire.right)
    floor = int(pathlib.Path("/proc/sys/net/core/rmem_max").read_text(encoding="ascii"))
    for scale in range(15):
        most = min((1 << 16 + scale) - 1, (1 << 31) - 1)
        tcp_sysctl(wire.right, tcp_rmem=f"4096 131072 {most}")
        options = {"SO_RCVBUF": most} if most <= floor else {}
        with ends.make(direction, **options) as sock:
            ours, kernels = map(int, value_of(ends.kernel(), "wscale").split(","))
            assert (kernels, talk.info()["send_shift"]) == (scale, scale)
            assert ours == talk.info()["receive_shift"]
            exchange(talk, sock, SIZE // 4)
        talk.do("close")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_window_scales_of_ours(wire, talk, direction):
    ends = Ends(talk, wire.right)
    for scale in range(15):
        talk.settle(receive_buffer=0xffff << scale)
        with ends.make(direction) as sock:
            assert value_of(ends.kernel(), "wscale").split(",")[0] == str(scale)
            assert talk.info()["receive_shift"] == scale
            exchange(talk, sock, SIZE // 4)
        talk.do("close")


# ---- MTU ---------------------------------------------------------------------------------------------------------------

# A page holds a frame of 3,506 bytes on veth, a buffer of ours one of 3,818; what is longer comes and goes in several.
MTUS = [(family, mtu) for family in FAMILIES for mtu in (68, 576, 1280, 3506, 3507, 3818, 3819, 9000, 65535)
        if mtu >= 1280 or family[0] == socket.AF_INET]


@pytest.mark.parametrize("family, mtu", MTUS, ids=[f"{FAMILY_IDS[FAMILIES.index(f)]}-{m}" for f, m in MTUS])
def test_mtu(run, wire, family, mtu):
    _, left, right = family
    no_offloads(run, wire.right, "tso", "gso")
    for host in wire.all:
        host.ip("link", "set", "wire", "mtu", str(mtu))
    if mtu == 68:
        # The kernel sends 36 bytes nevertheless, in fragments. When the wire is full amid several such segments that it
        # handles as one, it forgets that it has sent the first of them (doc/inet.md).
        wire.right.ip("link", "set", "wire", "gso_max_segs", "1")
    talk = Talk(run, wire.left)
    ends = Ends(talk, wire.right, left, right)
    headers = 40 if family[0] == socket.AF_INET else 60
    size = SIZE if mtu > 68 else SIZE // 8
    for direction in DIRECTIONS:
        with ends.make(direction) as sock:
            assert talk.info()["mss"] == mtu - headers - 12
            exchange(talk, sock, size)
        talk.do("close")
    counters = talk.counters()
    assert counters["timeouts"] - counters["undone"] < size // mtu # not each segment that is long, of which there are twice as many
    talk.close()
    talk.proc.ok()


# ---- disturbed -------------------------------------------------------------------------------------------------------

BAD = dict(loss=1, duplicates=1, held_back=1)


@pytest.mark.parametrize("family, theirs, ours", [(0, "reno", "cubic"), (0, "cubic", "reno"), (1, "cubic", "cubic"),
                                                  (1, "reno", "reno")])
def test_bad_wire(run, af_xdp, family, theirs, ours):
    """Streams both ways through loss, duplicates and reordering, by each way of recovery."""
    _, left, right = FAMILIES[family]
    with bridged(run, **BAD) as (hosts, bridge):
        talk = Talk(run, hosts.left)
        talk.settle(congestion=ours)
        ends = Ends(talk, hosts.right, left, right)
        for number, bits in enumerate(itertools.product((0, 1), repeat=2)):
            sack, timestamps = bits
            tcp_sysctl(hosts.right, tcp_sack=sack, tcp_timestamps=timestamps)
            with ends.make(DIRECTIONS[number % 2], TCP_CONGESTION=theirs.encode()) as sock:
                words = ends.kernel()
                assert ("sack" in words, "ts" in words, theirs in words) == (bool(sack), bool(timestamps), True), words
                exchange(talk, sock, SIZE)
            talk.do("close")
        counters = talk.counters()
        assert counters["retransmissions"] > 0 and counters["out_of_order"] > 0
        assert counters["malformed"] == 0
        talk.close()
        talk.proc.ok()
    assert min(bridge.done[name] for name in ("lost", "doubled", "held")) > 0, bridge.done


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=FAMILY_IDS)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_congestion_is_said(run, af_xdp, family, left, right, direction):
    """A router marks frames and drops none: each receiver says so, each sender slows down, and nothing is sent twice."""
    with bridged(run, marked=2) as (hosts, bridge):
        tcp_sysctl(hosts.right, tcp_ecn=1)
        talk = Talk(run, hosts.left)
        talk.settle(ecn=1)
        ends = Ends(talk, hosts.right, left, right)
        with ends.make(direction, TCP_CONGESTION=b"cubic") as sock:
            assert "ecn" in ends.kernel() and talk.info()["ecn"] == 1
            kernel = Exchange(sock, SIZE)
            talk.do(f"send {SIZE}", f"read {SIZE}")
            # All that the kernel sent is read; what we sent may be on its way still, and the kernel's word of a mark too.
            run.wait_until(lambda: talk.info()["ecn_answered"] == 1, "the kernel's word of a mark", proc=talk.proc)
            run.wait_until(lambda: "ecnseen" in ends.kernel(), "a mark to be seen by the kernel", proc=talk.proc)
            assert int(value_of(ends.kernel(), "delivered_ce")) > 0 # we have told it
            assert talk.ask("finish 0") == f"read {SIZE}"
            kernel.got(SIZE)
        talk.do("close")
        assert talk.counters()["recoveries"] == 0 # a tail loss probe is no loss: the kernel may be late to answer
        talk.close()
        talk.proc.ok()
    assert bridge.done["marked"] > 0
