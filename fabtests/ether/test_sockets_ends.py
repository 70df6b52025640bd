# SPDX-License-Identifier: BSD-2-Clause
"""Connections on an Ethernet port that go back and forth, are many, or lose their wire or a process: no byte is lost, nobody
hangs, and whoever is left hears of it."""

import contextlib
import errno
import pathlib
import socket
import threading

import pytest

from lib import build, expect, netns, peers, port, tcp
from lib.wire import LEFT, RIGHT, Asked

PROGRAM = pathlib.Path(__file__).parent / "programs" / "port_client.py"
NUMBER = 7100


def client(lab, what, **options):
    return lab.program(what, ["/usr/bin/python3", "-B", PROGRAM, what, RIGHT, NUMBER], **options)


class Echo:
    """The kernel's side of `echo`: answers all that comes, until the end or an error."""

    def __init__(self, lab):
        self._listener = tcp.kernel_listener(lab.right, RIGHT, NUMBER)
        self.sock = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        self.sock = tcp.accepted(self._listener)
        try:
            while piece := self.sock.recv(65536):
                self.sock.sendall(piece)
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self._listener.close()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        self._thread.join()


@pytest.fixture
def lab(run, hosts):
    return port.Lab(run, hosts)


def going(lab, env=None):
    """An accelerated client that asks all the time, and its server."""
    server = Echo(lab)
    proc = client(lab, "echo", env=env)
    proc.wait_output("going")
    proc.wait_log(lambda _log: port.offloaded(proc), "a connection on the port")
    return server, proc


def test_killed(lab):
    """Our process is killed: the peer hears a reset when it next sends."""
    server, proc = going(lab)
    server.sock.settimeout(None)
    proc.kill()
    with pytest.raises(ConnectionError):
        for _ in range(1 << 20):
            server.sock.send(b"x")
    server.close()


def test_peer_killed(lab, run):
    """The peer's process is killed amid questions: the program hears the end or a reset."""
    echo = lab.program("server", [build.tool("socat"), f"TCP-LISTEN:{NUMBER},bind={RIGHT}", "EXEC:cat"], ours=False)
    run.wait_until(lambda: tcp.seen_by_kernel(lab.right, "state", "listening", f"sport = :{NUMBER}"), "socat", proc=echo)
    proc = client(lab, "echo")
    proc.wait_output("going")
    proc.wait_log(lambda _log: port.offloaded(proc), "a connection on the port")
    echo.kill()
    said = proc.ok().stdout().split()[-2:]
    assert said == ["error", str(errno.ECONNRESET)] or said == ["error", str(errno.EPIPE)] or said[-1] == "end", said


def test_port_deleted(lab):
    """The port vanishes while a program asks all the time: its calls fail when its TCP_USER_TIMEOUT is over, as on the kernel."""
    server, proc = going(lab, {"USER_TIMEOUT": "1000"})
    lab.left.ip("link", "del", "wire")
    assert proc.ok().stdout().split()[-2:] == ["error", str(errno.ETIMEDOUT)]
    server.close()


def test_port_down(lab):
    """The port is down for a while, and the conversation goes on afterwards; a program that waits meanwhile can be ended."""
    server, proc = going(lab)
    lab.left.ip("link", "set", "wire", "down")
    lab.left.ip("link", "set", "wire", "up")
    proc.stop()
    server.close()


def test_way_moves(lab, run):
    """The route to the peer leads by another interface from some moment on: the connection goes on there, in the kernel, with full
    segments."""
    server, proc = going(lab)
    netns.veth(lab.left, "other", lab.right, "other")
    for host, number in (lab.left, 1), (lab.right, 2):
        host.ip("addr", "add", f"10.98.0.{number}/24", "dev", "other")
        host.ip("link", "set", "other", "up")
    lab.left.ip("route", "add", RIGHT, "via", "10.98.0.2", "dev", "other", "src", LEFT)
    proc.wait_log(lambda log: any("is not reached by the port" in line for line in log.lines), "the way back")
    seen = []

    def goes_on():
        words = tcp.seen_by_kernel(lab.left, f"dport = :{NUMBER}")
        if "mss:1448" not in words:
            return False
        seen.extend(int(word.split(":")[1]) for word in words if word.startswith("bytes_received:"))
        return len(seen) > 1 and seen[-1] > seen[0]

    run.wait_until(goes_on, "the conversation to go on", proc=proc)
    proc.stop()
    server.close()


@pytest.mark.parametrize("sides", [port.SERVER, port.CLIENT], ids=str)
def test_many_at_once(run, lab, sides):
    """200 connections at once, of which some end and others begin, in an epoll server and a client that asks at random."""
    options, words = lab.peers(sides)
    both = peers.run_both(run, sides, "sockets/programs/many", *words, 200, 40000, 4711, **options)
    assert port.offloaded(both[1 if sides.client else 0]) >= 100


def test_short_connections(lab, run):
    """Hundreds of connections that end before they are worth an offload, and as many that are offloaded at once and then end: all of them
    whole, none is left."""
    with tcp.kernel_listener(lab.right, RIGHT, NUMBER) as listener:
        def serve():
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock:
                    while piece := sock.recv(65536):
                        sock.sendall(piece)
        thread = threading.Thread(target=serve)
        thread.start()

        def ask(times):
            script = (f"import socket\nfor i in range({600 * times}):\n s = socket.create_connection(('{RIGHT}', {NUMBER}))\n"
                      " for j in range(i % 3 * 5):\n  s.sendall(b'x' * 100)\n  assert s.recv(100, socket.MSG_WAITALL) == b'x' * 100\n"
                      " s.close()\n")
            return port.offloaded(lab.program("short", ["/usr/bin/python3", "-c", script], env={"VMA_LIFT_AFTER": "4"}).ok()) > 0
        expect.in_time(run, ask, "one to be accelerated")
        listener.shutdown(2)
        thread.join()
    assert tcp.seen_by_kernel(lab.left, "state", "established") == []


def test_to_and_fro_on_a_bad_wire(run, af_xdp):
    """A stream both ways over a wire that loses, doubles and swaps frames, while the program forks each time that the connection
    was offloaded: it returns to the kernel and is offloaded again in mid-stream. Every byte arrives once, at its place."""
    with tcp.bridged(run, loss=1, duplicates=1, held_back=1) as (hosts, _bridge):
        lab = port.Lab(run, hosts)
        tcp.no_offloads(run, hosts.left, "tso", "gso")
        server = Echo(lab)
        proc = client(lab, "forking").ok()
        assert int(proc.stdout().split()[1]) >= 6
        server.close()


@pytest.mark.parametrize("family, left, right", tcp.FAMILIES, ids=["ipv4", "ipv6"])
def test_kernel_gets_what_the_port_has(run, af_xdp, family, left, right):
    """A connection goes back: what its peer has sent to the port meanwhile reaches the kernel, and is not sent again: it can't be, all that
    comes later is lost."""
    del family
    with tcp.bridged(run) as (hosts, bridge):
        tcp.no_offloads(run, hosts.left) # the kernel sends there, too
        giver = Asked(run, hosts.left, "giver", build.program("ether/programs/giver_back"), "wire")
        assert giver.next_line() == "ready"
        data = tcp.stream(9000) # seven segments, within the first window
        with tcp.kernel_listener(hosts.right, right) as listener:
            giver.do(f"connect {left} 30001 {right} {tcp.PORT}")
            sock = tcp.accepted(listener)
        with sock:
            giver.do("steer")
            bridge.do("hold right")
            sock.sendall(data)
            run.wait_until(lambda: "unacked:7" in tcp.seen_by_kernel(hosts.right, f"( sport = :{tcp.PORT} and dport = :30001 )"),
                           "all segments to be sent")
            bridge.do("go right", "drop right")
            assert bytes.fromhex(giver.ask(f"give {len(data)}")) == data
            bridge.do("go right")
            giver.close()
            giver.proc.ok()
