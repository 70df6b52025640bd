# SPDX-License-Identifier: BSD-2-Clause
"""vma_lat: every documented error, servers and clients that are killed, others that say nonsense, and signals."""

import contextlib
import json
import re
import signal
import socket
import struct
import threading

import pytest

from lib import patience
from lib.vmalat import cpu_seconds, program


# ---- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options, said", [
    ([], "what to be is missing"),
    (["nurse"], "'nurse' is nothing that vma_lat can be"),
    (["client"], "host is missing"),
    (["server", "somewhere"], "a server takes no host"),
    (["client", "--nonsense", "h"], "--nonsense: there is no such option"),
    (["client", "h", "--size"], "--size: this option needs a value"),
    (["client", "h", "--size", "11"], "--size: '11' is no number from 12 to 16777216"),
    (["client", "h", "--size", "64,abc"], "--size: 'abc' is no number"),
    (["client", "h", "--size", "64,"], "--size: '' is no number"),
    (["client", "h", "--size", "65508"], "a udp message can't have 65508 bytes: 12 to 65507 are possible"),
    (["client", "h", "--sockets", "0"], "--sockets: '0' is no number from 1 to 4096"),
    (["client", "h", "--sockets", "2"], "use --wait spin, select, poll or epoll"),
    (["client", "h", "--wait", "sleep"], "'sleep' is unknown: recvfrom, spin, select, poll or epoll"),
    (["client", "h", "--test", "exam"], "'exam' is unknown: ping-pong, throughput or under-load"),
    (["client", "h", "--fabric", "rdm"], "'rdm' is unknown: msg or dgram"),
    (["client", "h", "--duration", "soon"], "--duration: 'soon' is no number of seconds from 0.001 to 86400"),
    (["client", "h", "--duration", "1e9"], "is no number of seconds"),
    (["client", "h", "--count", "-1"], "--count: '-1' is no number from 1"),
    (["client", "h", "--mps", "1e3"], "--mps: '1e3' is no number"),
    (["client", "h", "--ttl", "256"], "--ttl: '256' is no number from 0 to 255"),
    (["client", "h", "--group", "239.1.1.1", "--tcp"], "a multicast group is for udp"),
    (["client", "h", "--group", "239.1.1.1", "--data-port", "65535", "--sockets", "2", "--wait", "poll"],
     "2 multicast ports from 65535 on do not exist"),
    (["client", "h", "--provider", "x" * 65, "--fabric", "msg"], "1 to 64 characters"),
    (["client", "h", "i"], "use --group and --test throughput"),
    (["client", "h", "--test", "throughput", "--csv", "f"], "a throughput test takes none"),
    (["client", "127.0.0.1:0"], "'0' in '127.0.0.1:0' is no port"),
    (["client", "[::1"], "'[::1' is no host"),
    (["client", "no such host"], "'no such host' is no host that is known here"),
    (["client", "h", "--cpu", "1023"], "--cpu: this process may not run on CPU 1023"),
    (["server", "--port", "70000"], "--port: '70000' is no number from 1 to 65535"),
], ids=lambda v: " ".join(v)[:40] if isinstance(v, list) else "")
def test_wrong_command_lines(run, options, said):
    proc = run.start("wrong", [program(), *options])
    assert proc.fails() == 2, proc.output()
    assert said in proc.stderr() and proc.stderr().startswith("vma_lat: ") and proc.stderr().count("\n") == 1


def test_no_server(client, port):
    proc, _ = client("--count", 1, status=3)
    assert f"no server at 127.0.0.1:{port}: Connection refused; start one" in proc.stderr()


def test_port_is_taken(run, serve, port):
    serve()
    second = run.start("second", [program(), "server", "--port", port])
    assert second.fails() == 1
    assert f"can't listen at [::]:{port}: Address already in use" in second.stderr()


def test_no_multicast_address(serve, client):
    serve()
    proc, _ = client("--group", "127.0.0.1", "--count", 1, status=3)
    assert "the other side refuses: --group: 127.0.0.1 is no multicast address" in proc.stderr()
    client("--tcp", "--count", 10)  # the server goes on


def test_no_such_interface(serve, client):
    serve()
    proc, _ = client("--group", "239.255.77.1", "--interface", "nowhere0", "--count", 1, status=2)
    assert "--interface: 'nowhere0' is neither an interface nor an address of one" in proc.stderr()


def test_no_such_provider(serve, client):
    serve()
    proc, _ = client("--fabric", "msg", "--provider", "nosuch", "--count", 1, status=3)
    assert "libfabric has no FI_EP_MSG endpoint of provider nosuch" in proc.stderr()


@pytest.mark.parametrize("option", ["--csv", "--json"])
def test_file_cannot_be_written(run, serve, port, env, option):
    serve()
    proc = run.start("client", [program(), "client", "--port", port, "--tcp", "--count", 10, option, "/nowhere/file",
                                "127.0.0.1"], env=env)
    assert proc.fails() == 1
    assert "can't open /nowhere/file: No such file or directory" in proc.stderr()
    assert "p99" in proc.stdout()


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">IHHI", 0x564C4154, 9, 1, 0),
                                     struct.pack(">IHHI", 0x564C4154, 3, 1, 1 << 30),
                                     struct.pack(">IHHI", 0x564C4154, 3, 1, 3) + b"abc",
                                     struct.pack(">IHHI", 0x564C4154, 3, 1, 50) + b"short", b"", b"VL"],
                         ids=["http", "version", "length", "plan", "cut off", "nothing", "cut header"])
def test_server_survives_garbage(serve, client, port, garbage):
    server = serve("--clients", 2)
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(garbage)
        with contextlib.suppress(OSError):  # it closed without reading all: reset, or not connected any more
            s.shutdown(socket.SHUT_WR)
            while s.recv(4096):
                pass
    client("--tcp", "--count", 10)
    server.ok()
    assert (server.stderr().count("\n") == 1) == (garbage != b""), server.stderr()


def test_server_is_killed(run, serve, client, port, env):
    for transport in ("--tcp", "--udp"):
        server = serve()
        proc = run.start("client", [program(), "client", "--port", port, transport, "--duration", 60, "--warm-up", 0,
                                    "127.0.0.1"], env=env)
        run.wait_until(lambda: cpu_seconds(server) > 0.1, "messages to go to and fro", proc=proc)
        server.kill()
        assert proc.fails() == 3
        assert "the server" in proc.stderr() and "what was measured until then follows" in proc.stderr()
        assert "p99" in proc.stdout()


def test_client_is_killed(run, serve, client, port, env):
    server = serve("--clients", 2)
    proc = run.start("killed", [program(), "client", "--port", port, "--udp", "--duration", 60, "127.0.0.1"], env=env)
    run.wait_until(lambda: cpu_seconds(server) > 0.1, "messages to go to and fro", proc=proc)
    proc.kill()
    client("--tcp", "--count", 10)
    server.ok()
    assert "the other side ended the control connection" in server.stderr()


class Impostor(threading.Thread):
    """A server that speaks the protocol and answers over UDP by `answer(message)`: a list of datagrams."""

    def __init__(self, answer):
        super().__init__(daemon=True)
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.data.bind(("127.0.0.1", 0))
        self.start()

    @staticmethod
    def hear(control):
        _, _, kind, length = struct.unpack(">IHHI", control.recv(12, socket.MSG_WAITALL))
        return kind, control.recv(length, socket.MSG_WAITALL) if length else b""

    @staticmethod
    def tell(control, kind, body=b""):
        control.sendall(struct.pack(">IHHI", 0x564C4154, 3, kind, len(body)) + body)

    def run(self):
        control, _ = self.listener.accept()
        with control, self.listener, self.data:
            assert self.hear(control)[0] == 1
            self.tell(control, 2, struct.pack(">HHH", 1, self.data.getsockname()[1], 0))
            assert self.hear(control)[0] == 4
            self.tell(control, 5)
            self.data.settimeout(0.05)
            control.setblocking(False)
            received = 0
            while True:
                try:
                    message, peer = self.data.recvfrom(65536)
                    received += 1
                    for reply in self.answer(message):
                        self.data.sendto(reply, peer)
                except TimeoutError:
                    try:
                        if control.recv(1, socket.MSG_PEEK):
                            break
                        return
                    except BlockingIOError:
                        pass
            control.setblocking(True)
            assert self.hear(control)[0] == 6
            self.tell(control, 7, struct.pack(">9QBIQH", received, received, *[0] * 11))
            with contextlib.suppress(ConnectionResetError):
                control.recv(1)


def reply_to(message):
    return message[:2] + bytes([message[2] | 4]) + message[3:]


def impostor(client, answer, *options, status):
    """What no reply comes to is waited for briefly, unless an option says otherwise."""
    server = Impostor(answer)
    proc, result = client("--udp", "--count", 5, "--warm-up", 0, "--timeout", int(100 * patience.factor()), "--check", *options,
                          host=f"127.0.0.1:{server.port}", status=status)
    server.join(patience.seconds())
    assert not server.is_alive()
    return proc, result["tests"][0]


def test_damaged_replies(client):
    proc, test = impostor(client, lambda m: [reply_to(m)[:-1] + bytes([m[-1] ^ 1])], status=4)
    assert test["client"]["damaged"] == test["lost"] == 5
    assert "5 messages arrived damaged" in proc.stderr()


def test_replies_of_wrong_length(client):
    _, test = impostor(client, lambda m: [m + b"x", m[:20], b"", reply_to(m)], status=4)
    assert test["client"]["damaged"] > 0


def test_strangers_and_late_replies(client):
    """Neither is taken for a reply: other sessions are counted, and so is what comes a second time."""
    _, test = impostor(client, lambda m: [bytes([m[0] ^ 1]) + m[1:], m, reply_to(m), reply_to(m)], "--timeout", 60000, status=0)
    assert test["client"]["received"] == 5 and test["lost"] == 0
    assert test["client"]["foreign"] == 5 and 3 <= test["client"]["reordered"] <= 5


def test_lost_replies(client):
    proc, test = impostor(client, lambda m: [], status=0)
    assert test["lost"] == 5 and test["rtt_ns"]["count"] == 0
    assert "no samples" in proc.stdout()


def test_server_that_says_nonsense(client):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def answer():
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"SSH-2.0-something\r\n")
                with contextlib.suppress(ConnectionResetError):
                    while peer.recv(4096):
                        pass
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        proc, _ = client("--count", 1, host=f"127.0.0.1:{listener.getsockname()[1]}", status=3)
        thread.join(patience.seconds())
    assert "the other side is no vma_lat" in proc.stderr()


# ---- Ctrl-C ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("options", [["--tcp"], ["--udp", "--wait", "spin"], ["--udp", "--test", "throughput"],
                                     ["--tcp", "--test", "under-load", "--mps", 100000], ["--fabric", "msg"]],
                         ids=lambda v: " ".join(map(str, v)).replace("--", ""))
def test_client_is_interrupted(run, serve, client, port, env, options, number):
    """The results so far are shown, the server gets to know them, and serves the next."""
    server = serve()
    out = run.work / "result.json"
    proc = run.start("client", [program(), "client", "--port", port, *options, "--duration", 60, "--json", out,
                                "127.0.0.1"], env=env)
    run.wait_until(lambda: cpu_seconds(server) > 0.2, "messages to go to and fro", proc=proc)
    assert proc.stop(number) == 5, proc.output()
    (test,) = json.loads(out.read_text())["tests"]
    assert test["interrupted"] and test["error"] is None
    assert test["client"]["sent"] >= test["client"]["received"]
    assert len(test["servers"]) == 1
    assert "(interrupted)" in proc.stdout()
    client("--tcp", "--count", 10)
    assert server.alive()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_server_is_interrupted(run, serve, port, env, number):
    idle = serve()
    assert idle.stop(number) == 0
    assert "ends after 0 clients" in idle.stdout()
    server = serve()
    proc = run.start("client", [program(), "client", "--port", port, "--tcp", "--duration", 60, "127.0.0.1"], env=env)
    run.wait_until(lambda: cpu_seconds(server) > 0.2, "the server to be at work", proc=proc)
    assert server.stop(number) == 0
    assert re.search(r"tcp ping-pong.*\n  received \d+", server.stdout())
    assert proc.fails() == 3
    assert "the server" in proc.stderr() and "p99" in proc.stdout()
