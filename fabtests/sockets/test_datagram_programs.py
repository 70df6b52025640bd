# SPDX-License-Identifier: BSD-2-Clause
"""Real programs that use UDP, unmodified, in every pairing."""

import json
import os
import re
import subprocess

import pytest

from lib import build, datagrams, expect, pairing, ports

PYTHON = "/usr/bin/python3"

pytestmark = pytest.mark.pairs(*datagrams.PAIRS)


@pytest.fixture
def serve(run, port, pair):
    def start(*argv, tcp=False, **options):
        server = run.start("server", argv, vma=pair.server, mode=pair.mode, **options)
        run.wait_until(lambda: (ports.is_listening if tcp else ports.is_bound)(port), f"port {port} to be bound",
                       proc=server)
        return server
    return start


@pytest.fixture
def client(run, pair):
    def start(*argv, **options):
        return run.run("client", argv, vma=pair.client, mode=pair.mode, **options)
    return start


def judge(pair, server, client):
    datagrams.acceleration(server, client, receiver_has=pair.server, sender_has=pair.client)


def rounds(pair, server, ask):
    """The client of ask(0), or of ask(1) ..., until something was accelerated."""

    def both(server, client):
        return datagrams.receivers(server.log()) and datagrams.routes(client.log())

    return expect.rounds(pair, lambda turn: (server, ask(turn)), both)[1]


# ---- sockperf -----------------------------------------------------------------------------------------------------------


def right_answers(client):
    counts = re.findall(r"# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)",
                        client.stdout())
    assert counts, client.stdout()
    for dropped, repeated, disordered in counts:
        assert dropped == repeated == disordered == "0", client.stdout()
    found = re.search(r"\[Valid Duration\].*SentMessages=(\d+); ReceivedMessages=(\d+)", client.stdout())
    assert found and int(found[1]) > 0 and int(found[2]) > 0, client.stdout()


def sockperf(serve, client, pair, where, *options):
    server = serve(build.tool("sockperf"), "server", *where)

    def ask(turn):
        done = client(build.tool("sockperf"), *options, *where, "-t", 1 << turn)
        right_answers(done)
        return done

    done = rounds(pair, server, ask)
    server.stop()
    judge(pair, server, done)


# It waits for 2 s before it begins: few tests.
@pytest.mark.pairs(pairing.KERNEL, pairing.VMA_LATENCY)
def test_sockperf_ping_pong(serve, client, port, pair):
    sockperf(serve, client, pair, ["-i", "127.0.0.1", "-p", port], "ping-pong", *build.SOCKPERF_MANY, "-m", 14)


@pytest.mark.pairs(pairing.VMA_LATENCY)
def test_sockperf_under_load(serve, client, port, pair):
    """A queue of the default size holds some 90 such datagrams: nine tenths of a second's, in which the other side has a processor."""
    sockperf(serve, client, pair, ["-i", "127.0.0.1", "-p", port], "under-load", "--mps", 100, "--reply-every", 2, "-m", 1400)


@pytest.mark.pairs(pairing.VMA_LATENCY)
def test_sockperf_many_sockets(run, serve, client, port, pair):
    feed = run.work / "feed"
    feed.write_text("".join(f"U:127.0.0.{host}:{port}\n" for host in (1, 2, 3)))
    sockperf(serve, client, pair, ["-f", feed, "-F", "epoll"], "ping-pong", *build.SOCKPERF_MANY)


# ---- iperf3 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["-P", 3], ["-R"], ["-6"]], ids=["one", "three", "back", "six"])
def test_iperf3(serve, client, port, pair, options):
    """Data by connected UDP sockets that the server makes for each stream on one port."""
    server = serve(build.tool("iperf3"), "-s", "-1", "-p", port, "--json", tcp=True)
    host = "::1" if "-6" in options else "127.0.0.1"
    done = client(build.tool("iperf3"), "-c", host, "-p", port, "-u", "-b", "60M", "-n", "2M", "-l", 1200, "--json",
                  *options)
    server.ok()
    result = json.loads(done.stdout())
    assert "error" not in result and "error" not in json.loads(server.stdout())
    for stream in result["end"]["streams"]:
        assert stream["udp"]["out_of_order"] == 0 and stream["udp"]["packets"] > 100
        assert stream["udp"]["lost_packets"] < stream["udp"]["packets"]
    if "-R" in options:
        datagrams.acceleration(done, server, receiver_has=pair.client, sender_has=pair.server)
    else:
        judge(pair, server, done)


# ---- socat, nc ----------------------------------------------------------------------------------------------------------


ASKS = """
import os, socket, sys
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 400
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60 * float(os.environ["FABTESTS_PATIENCE"]))
s.connect((sys.argv[1], int(sys.argv[2])))
for i in range(rounds):
    block = b"%d " % i * (i + 1)
    s.send(block)
    got = s.recv(65536)
    assert got == block, (i, len(got))
print(rounds, "answers")
"""


def asks(client, host, port):
    """For rounds(): a client that asks 400 times, or more."""
    def ask(turn):
        times = 400 << min(turn, 3)
        done = client(PYTHON, "-c", ASKS, host, port, times)
        assert f"{times} answers" in done.stdout()
        return done
    return ask


@pytest.mark.parametrize("family", ["4", "6"])
def test_socat_echo(serve, client, port, pair, family):
    """A child for each peer, with a socket connected to it: the first datagram was read by the parent."""
    host = "127.0.0.1" if family == "4" else "::1"
    server = serve(build.tool("socat"), "-b", 65536, f"UDP{family}-LISTEN:{port},fork,reuseaddr", "PIPE")
    for _ in range(2):
        # Its first socket is the child's by now; until the parent has bound the next one, peers are refused.
        server.runner.wait_until(lambda: ports.is_bound(port), f"port {port} to be bound again", proc=server)
        judge(pair, server, rounds(pair, server, asks(client, host, port)))
    server.kill()  # its children too: they wait for more


def test_socat_both_sides(serve, client, port, pair):
    """Lines through two socats, one datagram each; the client ends 0.5 s after its input has."""
    lines = b"".join(b"line %2d\n" % i for i in range(75))
    server = serve(build.tool("socat"), f"UDP4-RECVFROM:{port},fork", "SYSTEM:cat >&2")
    client(build.tool("socat"), "-b", 100, "-u", "-", f"UDP4-SENDTO:127.0.0.1:{port}", stdin=lines)
    run = server.runner
    run.wait_until(lambda: len(server.stderr()) >= 600, "all lines", proc=server)
    server.stop()
    assert sorted(server.stderr()) == sorted(lines.decode())  # children print in any order


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_nc(run, serve, client, port, pair, host):
    """nc takes as many datagrams as it is told to and ends; its sender ends with its input."""
    data = b"".join(b"%7d\n" % i for i in range(10000))
    target = run.work / "target"
    server = serve(build.tool("nc"), "-u", "-l", "-W", "5", host, port, stdout=target.open("wb"))
    client(build.tool("nc"), "-u", "-q", "0", host, port, stdin=data)
    server.ok()
    assert target.read_bytes() == data


# ---- memcached, openssl, python -------------------------------------------------------------------------------------------


MEMCACHED = """
import os, socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60 * float(os.environ["FABTESTS_PATIENCE"]))
server = ("127.0.0.1", int(sys.argv[1]))
def ask(number, text):
    s.sendto(struct.pack("!HHHH", number, 0, 1, 0) + text, server)
    answer, source = s.recvfrom(65536)
    assert source == server and struct.unpack("!HHHH", answer[:8]) == (number, 0, 1, 0), (source, answer[:8])
    return answer[8:]
for i in range(200):
    value = b"%d," % i * (i + 1)
    assert ask(2 * i, b"set k%d 0 0 %d\\r\\n%s\\r\\n" % (i, len(value), value)) == b"STORED\\r\\n"
    assert ask(2 * i + 1, b"get k%d\\r\\n" % i) == b"VALUE k%d 0 %d\\r\\n%s\\r\\nEND\\r\\n" % (i, len(value), value)
print("all values as stored")
"""


def test_memcached(serve, client, port, pair):
    """Four threads wait in epoll for one socket."""
    server = serve(build.tool("memcached"), "-u", "root", "-l", "127.0.0.1", "-p", 0, "-U", port, "-t", 4)

    def ask(_):
        done = client(PYTHON, "-c", MEMCACHED, port)
        assert "all values as stored" in done.stdout()
        return done

    done = rounds(pair, server, ask)
    server.stop()
    judge(pair, server, done)


def test_dtls(run, serve, client, port, pair):
    """The server peeks, connects its socket to who asked, and goes on with it."""
    openssl = build.tool("openssl")
    key, cert = run.work / "key", run.work / "cert"
    subprocess.run([openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", cert, "-subj", "/CN=localhost"], check=True, capture_output=True)
    read, write = os.pipe()  # the server ends with its input
    with os.fdopen(read, "rb") as silence:
        server = serve(openssl, "s_server", "-dtls", "-listen", "-accept", f"127.0.0.1:{port}", "-key", key, "-cert",
                       cert, "-quiet", stdin=silence)
    text = b"".join(b"line %d\n" % i for i in range(300))
    client(openssl, "s_client", "-dtls", "-connect", f"127.0.0.1:{port}", "-quiet", "-no_ign_eof", stdin=text)
    run.wait_until(lambda: "line 299" in server.stdout(), "all lines", proc=server)
    assert text.decode() in server.stdout()
    server.stop()
    os.close(write)


ASYNCIO_SERVER = """
import asyncio, sys
class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, address):
        self.transport.sendto(data, address)
async def main():
    await asyncio.get_running_loop().create_datagram_endpoint(Echo, local_addr=("127.0.0.1", int(sys.argv[1])))
    await asyncio.Event().wait()
asyncio.run(main())
"""


def test_asyncio(serve, client, port, pair):
    server = serve(PYTHON, "-c", ASYNCIO_SERVER, port)
    done = rounds(pair, server, asks(client, "127.0.0.1", port))
    server.stop()
    judge(pair, server, done)


SOCKETSERVER = """
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        data, s = self.request
        s.sendto(data, self.client_address)
class Server(getattr(socketserver, sys.argv[2])):
    max_packet_size = 65536
Server(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
"""


@pytest.mark.parametrize("kind", ["UDPServer", "ThreadingUDPServer", "ForkingUDPServer"])
def test_socketserver(serve, client, port, pair, kind):
    """A loop, a thread, or a process for each datagram."""
    server = serve(PYTHON, "-c", SOCKETSERVER, port, kind)
    rounds = 60 if kind == "ForkingUDPServer" else 400
    done = client(PYTHON, "-c", ASKS, "127.0.0.1", port, rounds)
    assert f"{rounds} answers" in done.stdout()
    server.stop()
    if kind == "UDPServer":  # with the others, who answers is not who received
        judge(pair, server, done)
