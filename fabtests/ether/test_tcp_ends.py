# SPDX-License-Identifier: BSD-2-Clause
"""How connections between our TCP on AF_XDP and the Linux kernel's begin and end: half-closed, opened and closed by both
at once, reset in each state, stopped by a closed window, watched by keep-alives. A bridge between the two holds or loses
frames of one side, so that each state lasts until the test has seen it."""

import contextlib
import errno
import socket
import struct

import pytest

from lib import build, patience
from lib.tcp import (FAMILIES, PORT, Exchange, Talk, accepted, bridged, exchange, kernel_counters, kernel_listener,
                     kernel_socket, seen_by_kernel, stream, tcp_sysctl)
from lib.wire import LEFT, RIGHT, inside

OURS = 30001
SIZE = 1 << 20
RESET = dict(SO_LINGER=struct.pack("ii", 1, 0)) # close() is a reset


@pytest.fixture
def lab(run, af_xdp):
    """(hosts, bridge, talk): a bridge that does nothing until it is told to."""
    with bridged(run) as (hosts, bridge):
        talk = Talk(run, hosts.left)
        yield hosts, bridge, talk
        talk.finish()


@contextlib.contextmanager
def connection(hosts, talk, family=socket.AF_INET, left=LEFT, right=RIGHT, **options):
    """The kernel's end of a connection that we have opened."""
    with kernel_listener(hosts.right, right, **options) as listener:
        talk.do(f"connect {left} {OURS} {right} {PORT}", "wait established")
        sock = accepted(listener)
    with sock:
        yield sock


def kernel_state(hosts) -> str:
    words = seen_by_kernel(hosts.right, f"( sport = :{PORT} and dport = :{OURS} )")
    return words[0] if words else "none"


def wait_kernel(run, hosts, state):
    run.wait_until(lambda: kernel_state(hosts) == state, f"the kernel to be in {state}")


def kernel_waits(hosts, talk) -> bool:
    """The kernel, which closed first, is in TIME-WAIT, or was: when it is late it is sent our FIN twice (RFC 8985), its second
    acknowledgement finds no connection here, and the reset which that gets (RFC 9293, 3.10.7.1) ends its TIME-WAIT."""
    state, counted = kernel_state(hosts), talk.counters()
    return state == "TIME-WAIT" or (state == "none" and counted["resets_out"] > 0 and counted["retransmissions"] > 0)


def read_exactly(sock, size) -> bytes:
    got = b""
    while len(got) < size:
        piece = sock.recv(size - len(got))
        assert piece
        got += piece
    return got


# ---- closing ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_we_half_close(lab, run, family, left, right):
    """What the peer sends after our end arrives, for as long as it likes."""
    hosts, _bridge, talk = lab
    with connection(hosts, talk, family, left, right) as sock:
        talk.do("shutdown", "wait fin_wait_2")
        assert sock.recv(1) == b""
        assert kernel_state(hosts) == "CLOSE-WAIT"
        sock.sendall(stream(SIZE))
        talk.do(f"read {SIZE}")
        sock.shutdown(socket.SHUT_WR)
        talk.do("wait closed") # by TIME-WAIT: we were first
        wait_kernel(run, hosts, "none")
    assert talk.ask("finish 0") == f"read {SIZE}"


@pytest.mark.parametrize("family, left, right", FAMILIES, ids=["ipv4", "ipv6"])
def test_kernel_half_closes(lab, run, family, left, right):
    hosts, _bridge, talk = lab
    with connection(hosts, talk, family, left, right) as sock:
        sock.shutdown(socket.SHUT_WR)
        talk.do("wait close_wait")
        wait_kernel(run, hosts, "FIN-WAIT-2")
        assert talk.ask(f"finish {SIZE}") == "read 0"
        assert b"".join(iter(lambda: sock.recv(1 << 16), b"")) == stream(SIZE)
        talk.do("wait closed")
        run.wait_until(lambda: kernel_waits(hosts, talk), "the kernel to be in TIME-WAIT")


def test_both_close_at_once(lab, run):
    """FINs that cross: both go by CLOSING, and both wait."""
    hosts, bridge, talk = lab
    with connection(hosts, talk) as sock:
        bridge.do("hold left", "hold right")
        talk.do("shutdown", "wait fin_wait_1")
        sock.shutdown(socket.SHUT_WR)
        wait_kernel(run, hosts, "FIN-WAIT-1")
        bridge.do("go right")
        talk.do("wait closing")
        bridge.do("go left")
        talk.do("wait closed")
        wait_kernel(run, hosts, "TIME-WAIT")
    assert talk.ask("finish 0") == "read 0"
    assert talk.counters()["resets_in"] == 0


def test_both_open_at_once(lab, run):
    """SYNs that cross make one connection."""
    hosts, bridge, talk = lab
    with connection(hosts, talk): # and the neighbours know each other
        talk.do("abort")
        wait_kernel(run, hosts, "none")
    with kernel_socket(hosts.right, SO_REUSEADDR=1) as sock:
        bridge.do("hold left", "hold right")
        sock.bind((RIGHT, PORT))
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.connect((LEFT, OURS))
        talk.do(f"connect {LEFT} {OURS} {RIGHT} {PORT}", "wait syn_sent")
        assert kernel_state(hosts) == "SYN-SENT"
        bridge.do("go right")
        talk.do("wait syn_received")
        bridge.do("go left")
        talk.do("wait established")
        wait_kernel(run, hosts, "ESTAB")
        sock.settimeout(patience.seconds())
        words = seen_by_kernel(hosts.right, f"sport = :{PORT}")
        info = talk.info()
        assert info["timestamps"] == info["sack"] == info["scaling"] == 1
        assert {"ts", "sack"} <= set(words)
        exchange(talk, sock, SIZE)


# ---- the window ------------------------------------------------------------------------------------------------------

def test_kernel_stops_reading(lab, run):
    """We probe its closed window, and go on when it reads; an update of the window that is lost is made good by a probe."""
    hosts, bridge, talk = lab
    talk.settle(send_buffer=4 * SIZE)
    with connection(hosts, talk, SO_RCVBUF=20000) as sock:
        talk.do(f"send {2 * SIZE}")
        run.wait_until(lambda: kernel_counters(hosts.right)["TcpExtTCPToZeroWindowAdv"] > 0, "a closed window")
        run.wait_until(lambda: (info := talk.info())["window"] == info["unacknowledged"] == 0, "all to be acknowledged")
        timeouts, seen = talk.counters()["timeouts"], kernel_counters(hosts.right)["TcpInSegs"]
        run.wait_until(lambda: kernel_counters(hosts.right)["TcpInSegs"] >= seen + 2, "two probes")
        assert talk.counters()["timeouts"] == timeouts # a probe is none
        bridge.do("drop right") # the update is lost
        got = sock.recv(SIZE)
        bridge.do("go right")
        while len(got) < 2 * SIZE:
            got += sock.recv(SIZE)
        assert got == stream(2 * SIZE)


def test_we_stop_reading(lab, run):
    hosts, bridge, talk = lab
    talk.settle(receive_buffer=100000)
    with connection(hosts, talk) as sock:
        kernel = Exchange(sock, SIZE)
        run.wait_until(lambda: any("persist" in word for word in seen_by_kernel(hosts.right, f"sport = :{PORT}")),
                       "a closed window")
        info = talk.info()
        assert 90000 < info["readable"] <= 100000
        run.wait_until(lambda: talk.info()["segments_received"] >= info["segments_received"] + 2, "two probes")
        bridge.do("drop left")
        talk.do("read 50000") # this update is lost
        bridge.do("go left")
        assert talk.ask("finish 0") == f"read {SIZE}"
        kernel.got(0)


# ---- keep-alive --------------------------------------------------------------------------------------------------------

def test_our_keepalive(lab, run):
    hosts, bridge, talk = lab
    tcp_sysctl(hosts.right, tcp_invalid_ratelimit=0) # it answers two probes a second by default
    talk.settle(keepalive=1, keepalive_idle=100, keepalive_interval=100, keepalive_probes=255) # however late the kernel is
    with connection(hosts, talk) as sock:
        run.wait_until(lambda: talk.info()["segments_received"] >= 5, "answers to our probes")
        run.wait_until(lambda: talk.info()["probes"] <= 1, "each to be answered")
        sock.sendall(b"\0") # and nothing is in disorder
        talk.do("read 1")
        bridge.do("drop right")
        talk.settle(keepalive_probes=3)
        talk.do("settle")
        assert talk.ask("read 1") == "ETIMEDOUT"
        wait_kernel(run, hosts, "none") # our reset has told it
        with pytest.raises(ConnectionResetError):
            sock.recv(1)


def test_keepalive_of_the_kernel(lab, run):
    hosts, bridge, talk = lab
    with connection(hosts, talk, SO_KEEPALIVE=1, TCP_KEEPIDLE=1, TCP_KEEPINTVL=1, TCP_KEEPCNT=1) as sock:
        run.wait_until(lambda: kernel_counters(hosts.right)["TcpExtTCPKeepAlive"] >= 2, "two probes of the kernel")
        assert kernel_state(hosts) == "ESTAB"
        talk.do("send 1")
        assert sock.recv(1) == stream(1)
        bridge.do("drop left")
        with pytest.raises(TimeoutError) as ended:
            sock.recv(1)
        assert ended.value.errno == errno.ETIMEDOUT # not Python's own


# ---- resets ----------------------------------------------------------------------------------------------------------

# What leads to a state of ours, on an open connection.
def established(_bridge, _talk, _sock):
    pass


def fin_wait_1(bridge, talk, _sock):
    bridge.do("hold left")
    talk.do("shutdown", "wait fin_wait_1")


def fin_wait_2(_bridge, talk, _sock):
    talk.do("shutdown", "wait fin_wait_2")


def close_wait(_bridge, talk, sock):
    sock.shutdown(socket.SHUT_WR)
    talk.do("wait close_wait")


def closing(bridge, talk, sock):
    fin_wait_1(bridge, talk, sock)
    sock.shutdown(socket.SHUT_WR)
    talk.do("wait closing")


def last_ack(bridge, talk, sock):
    close_wait(bridge, talk, sock)
    bridge.do("hold left")
    talk.do("shutdown", "wait last_ack")


STATES = [established, fin_wait_1, fin_wait_2, close_wait, closing, last_ack]


def raw_segment(host, source_port, target_port, seq, ack, flags):
    """Sends a bare segment to us whose numbers are the test's, from the kernel's host."""
    seq, ack = seq % (1 << 32), ack % (1 << 32)
    header = struct.pack(">HHIIBBHHH", source_port, target_port, seq, ack, 5 << 4, flags, 1000, 0, 0)
    pseudo = socket.inet_aton(RIGHT) + socket.inet_aton(LEFT) + struct.pack(">HH", socket.IPPROTO_TCP, len(header))
    total = sum(struct.unpack(f">{(len(pseudo) + len(header)) // 2}H", pseudo + header))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    header = header[:16] + struct.pack(">H", total ^ 0xffff) + header[18:]
    with inside(host), socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        raw.sendto(header, (LEFT, 0))


RST, ACK = 4, 16


def test_kernel_resets(lab):
    hosts, bridge, talk = lab
    for number, state in enumerate(STATES, 1):
        with connection(hosts, talk, **RESET) as sock:
            state(bridge, talk, sock)
        talk.do("wait closed")
        assert talk.info()["error"] == ("EPIPE" if state is close_wait else "ECONNRESET"), state.__name__
        assert talk.counters()["resets_in"] == number
        bridge.do("go left")
        talk.do("close")
    assert talk.counters()["open"] == 0


def test_we_reset(lab, run):
    hosts, bridge, talk = lab
    for state in STATES:
        with connection(hosts, talk) as sock:
            state(bridge, talk, sock)
            talk.do("abort")
            bridge.do("go left")
            wait_kernel(run, hosts, "none")
            if state in (established, close_wait):
                with pytest.raises(ConnectionResetError):
                    sock.recv(1)
    assert talk.counters()["open"] == 0


def test_blind_resets(lab, run):
    """A reset whose number was guessed into the window, or out of it, ends nothing (RFC 5961, 3.2)."""
    hosts, bridge, talk = lab
    for number, state in enumerate(STATES, 1):
        with connection(hosts, talk) as sock:
            state(bridge, talk, sock)
            before = talk.info()
            for beyond in (1, 1000, before["receive_window"] - 1, -1, before["receive_window"] + 1):
                raw_segment(hosts.right, PORT, OURS, before["rcv"] + beyond, 0, RST)
            run.wait_until(lambda seen=before["segments_received"]: talk.info()["segments_received"] >= seen + 5,
                           "all to come")
            assert talk.info()["state"] == state.__name__
            counters = talk.counters()
            assert (counters["resets_in"], counters["challenges"]) == (0, 3 * number), state.__name__
            bridge.do("go left")
            if state is established:
                exchange(talk, sock, SIZE)
            talk.do("abort")


def test_nobody_listens(lab):
    hosts, _bridge, talk = lab
    talk.do(f"connect {LEFT} {OURS} {RIGHT} {PORT}", "wait closed")
    assert talk.info()["error"] == "ECONNREFUSED"
    with kernel_socket(hosts.right) as sock: # our turn: a listener that has gone
        talk.do(f"listen {LEFT} {PORT}", "unlisten")
        with pytest.raises(ConnectionRefusedError):
            sock.connect((LEFT, PORT))


def test_reset_while_it_opens(lab, run):
    """SYN-RECEIVED: the peer has given up before our answer came. The listener goes on."""
    hosts, bridge, talk = lab
    talk.do(f"listen {LEFT} {PORT}")
    with kernel_socket(hosts.right) as sock: # the neighbours know each other
        sock.connect((LEFT, PORT))
        talk.do("accept", "abort")
    bridge.do("hold left")
    with kernel_socket(hosts.right) as sock:
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.connect((LEFT, PORT))
        run.wait_until(lambda: talk.counters()["open"] == 1, "its SYN")
    bridge.do("go left")
    run.wait_until(lambda: talk.counters()["open"] == 0, "the kernel's reset")
    assert talk.counters()["resets_in"] == 1
    with kernel_socket(hosts.right) as sock:
        sock.connect((LEFT, PORT))
        talk.do("accept")
        exchange(talk, sock, SIZE)


def test_we_give_up_opening(lab, run):
    """SYN-SENT: the kernel's answer finds nobody, and our reset ends its half of it."""
    hosts, bridge, talk = lab
    with connection(hosts, talk):
        talk.do("abort")
    with kernel_listener(hosts.right, RIGHT) as listener:
        bridge.do("hold right")
        talk.do(f"connect {LEFT} {OURS + 1} {RIGHT} {PORT}", "wait syn_sent")
        run.wait_until(lambda: seen_by_kernel(hosts.right, "state", "syn-recv"), "our SYN to come")
        talk.do("close")
        bridge.do("go right")
        run.wait_until(lambda: not seen_by_kernel(hosts.right, "state", "syn-recv"), "our reset to come")
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_reset_in_time_wait(lab, run):
    """It is not ended by a reset (RFC 1337): what comes late still has its answer."""
    hosts, _bridge, talk = lab
    with connection(hosts, talk) as sock:
        talk.do("shutdown", "wait fin_wait_2")
        sock.shutdown(socket.SHUT_WR)
        last = talk.info() # its end has not come yet, or it has: the number is the same but for one
        talk.do("wait closed")
        wait_kernel(run, hosts, "none")
    rcv = talk.info()["rcv"]
    assert rcv - last["rcv"] in (0, 1)
    for flags, seq in ((RST, rcv), (ACK, rcv - 10)):
        seen = talk.counters()
        raw_segment(hosts.right, PORT, OURS, seq, 0, flags)
        run.wait_until(lambda before=seen["in"]: talk.counters()["in"] > before, "it to come")
    after = talk.counters()
    assert (after["unmatched"], after["resets_in"], after["resets_out"]) == (0, 0, 0)
    assert after["out"] == seen["out"] + 1


def test_unread_bytes(lab, run):
    """Whoever closes with bytes unread resets (RFC 2525, 2.17): the other must not believe that they arrived."""
    hosts, _bridge, talk = lab
    with connection(hosts, talk) as sock:
        sock.sendall(b"unread")
        run.wait_until(lambda: talk.info()["readable"] == 6, "bytes")
        talk.do("close")
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
    with connection(hosts, talk) as sock:
        talk.do("send 6")
        run.wait_until(lambda: seen_by_kernel(hosts.right, f"sport = :{PORT}")[1] == "6", "bytes")
    talk.do("wait closed")
    assert talk.info()["error"] == "ECONNRESET"


# ---- again -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("stamps", [1, 0], ids=["time stamps", "no time stamps"])
def test_same_ports_again(lab, run, stamps):
    """A connection between the ports of one that waits in our TIME-WAIT (RFC 6191)."""
    hosts, _bridge, talk = lab
    tcp_sysctl(hosts.right, tcp_timestamps=stamps)
    talk.do(f"listen {LEFT} {PORT}")
    for _ in range(20):
        with kernel_socket(hosts.right, SO_REUSEADDR=1) as sock:
            sock.bind((RIGHT, PORT))
            sock.connect((LEFT, PORT))
            talk.do("accept", "shutdown")
            assert sock.recv(1) == b""
            sock.sendall(stream(1000))
            sock.shutdown(socket.SHUT_WR)
            assert talk.ask("finish 0") == "read 1000"
        talk.do("wait closed", "close")
        run.wait_until(lambda: not seen_by_kernel(hosts.right, f"( sport = :{PORT} and dport = :{PORT} )"),
                       "the kernel to have our last word: the ports are free there then")


@pytest.mark.parametrize("stamps", [1, 0], ids=["time stamps", "no time stamps"])
def test_same_ports_again_at_the_kernel(lab, run, stamps):
    """And in the kernel's: our numbers and time stamps have gone on."""
    hosts, _bridge, talk = lab
    talk.settle(timestamps=stamps)
    for _ in range(20):
        with connection(hosts, talk) as sock:
            sock.shutdown(socket.SHUT_WR)
            talk.do("wait close_wait")
            assert talk.ask("finish 1000") == "read 0"
            assert read_exactly(sock, 1000) == stream(1000)
            talk.do("wait closed", "close")
            run.wait_until(lambda: kernel_waits(hosts, talk), "the kernel to be in TIME-WAIT")
    counters = talk.counters()
    assert counters["timeouts"] - counters["undone"] < 10 # not one each; those of a kernel that was late are undone by time stamps


# ---- requests --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("nodelay", [1, 0], ids=["nodelay", "nagle"])
def test_requests(lab, nodelay):
    """A question and its answer, in turn, of sizes around a segment's; then the other side asks."""
    hosts, _bridge, talk = lab
    talk.settle(nodelay=nodelay)
    with connection(hosts, talk, TCP_NODELAY=nodelay) as sock:
        at = 0
        data = stream(200_000)
        for size in (1, 2, 100, 1447, 1448, 1449, 3000) * 6:
            piece = data[at:at + size]
            at += size
            talk.do(f"send {size}")
            assert read_exactly(sock, size) == piece
            sock.sendall(piece)
            talk.do(f"read {size}")
        for size in (1, 1448, 10000):
            piece = data[at:at + size]
            at += size
            sock.sendall(piece)
            talk.do(f"read {size}", f"send {size}")
            assert read_exactly(sock, size) == piece


def test_socat(lab, run):
    """Somebody else's echo."""
    hosts, _bridge, talk = lab
    server = run.start("socat", [build.tool("socat"), f"TCP4-LISTEN:{PORT},reuseaddr,fork", "PIPE"],
                       netns=hosts.right.file)
    run.wait_until(lambda: seen_by_kernel(hosts.right, "state", "listening", f"( sport = :{PORT} )"), "socat to listen",
                   proc=server)
    talk.close() # its interface is the client's now
    talk.proc.ok()
    client = run.run("client", [build.program("ether/programs/tcp_echo"), "wire", "connect", LEFT, OURS, RIGHT, PORT,
                                100_000, 10], netns=hosts.left.file)
    assert client.stdout() == "ok\n"
    server.stop()
