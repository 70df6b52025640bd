# SPDX-License-Identifier: BSD-2-Clause
"""Unmodified programs on an Ethernet port: the library on the left of the wire, the kernel on the right, each in both roles. The
log says that connections really went by the port."""

import hashlib
import random
import re

import pytest

from lib import build, echo, nginx, peers, port, tcp
from lib.wire import LEFT, LEFT6, RIGHT, RIGHT6

FAMILIES = pytest.mark.parametrize("family", ["4", "6"])
ROLES = pytest.mark.parametrize("ours", ["client", "server"])


def address(ours, family="4"):
    """Of the server."""
    left, right = (LEFT6, RIGHT6) if family == "6" else (LEFT, RIGHT)
    return left if ours == "server" else right


def url_host(server):
    return f"[{server}]" if ":" in server else server


def file_of(lab, size):
    data = random.Random(size).randbytes(1 << 20) * (size >> 20)
    (lab.run.work / "file").write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def serve(lab, ours, name, argv, number, **options):
    """A server, listening."""
    server = lab.program(name, argv, ours=ours == "server", **options)
    host = lab.left if ours == "server" else lab.right
    lab.run.wait_until(lambda: tcp.seen_by_kernel(host, "state", "listening", f"sport = :{number}"), f"{name} to listen",
                       proc=server)
    return server


def ask(lab, ours, name, argv, **options):
    """A client that must succeed."""
    return lab.program(name, argv, ours=ours == "client", **options).ok()


def fetch(lab, ours, server, url, least=1):
    """Files of growing size by curl, until a connection has left the kernel; each must arrive whole. `server`: its process."""
    def attempt(size):
        wanted = file_of(lab, size)
        client = ask(lab, ours, "curl", [build.tool("curl"), "-sSgo", "got", url])
        assert hashlib.sha256((lab.run.work / "got").read_bytes()).hexdigest() == wanted
        return client if ours == "client" else server
    port.until_offloaded(attempt, 4 << 20, least)


@ROLES
@FAMILIES
def test_http_download(lab, ours, family):
    """python's http.server (a thread a connection) and curl: files arrive whole by the port, whoever has it."""
    at = address(ours, family)
    server = serve(lab, ours, "server", ["/usr/bin/python3", "-m", "http.server", "8000", "--bind", at], 8000)
    fetch(lab, ours, server, f"http://{url_host(at)}:8000/file")
    server.stop()


@ROLES
@pytest.mark.parametrize("sendfile", ["on", "off"])
def test_nginx(lab, ours, sendfile):
    """nginx (edge-triggered epoll, a worker that was forked, writev and sendfile) and curl, one large file; then many requests
    on kept connections by wrk."""
    (lab.run.work / "small").write_bytes(b"x" * 500)
    at = address(ours)
    argv = nginx.command(lab.run.work, f"{at}:8001", lab.run.work, sendfile=sendfile)
    server = serve(lab, ours, "server", argv, 8001)
    fetch(lab, ours, server, f"http://{at}:8001/file")

    def load(milliseconds):
        made = ask(lab, ours, "wrk", [build.tool("wrk"), "-t2", "-c16", f"-d{milliseconds // 1000}",
                                      f"http://{at}:8001/small"])
        assert "Socket errors" not in made.stdout() and "Non-2xx" not in made.stdout(), made.stdout()
        return made if ours == "client" else server
    port.until_offloaded(load, 1000, 17 if ours == "server" else 16)
    server.stop()


@ROLES
@FAMILIES
def test_redis(lab, ours, family):
    """redis-benchmark on 20 connections with pipelines, and redis-cli: all answers come, and values stay what they were."""
    at = address(ours, family)
    server = serve(lab, ours, "server", [build.tool("redis-server"), "--save", "", "--port", "7777", "--bind", at,
                                         "--protected-mode", "no"], 7777)
    common = ["-h", at, "-p", "7777"]

    def load(requests):
        made = ask(lab, ours, "benchmark", [build.tool("redis-benchmark"), *common, "-c", "20", "-P", "4", "-n", requests,
                                            "-q", "-t", "set,lrange_100"])
        assert "Error" not in made.output(), made.output()
        return made if ours == "client" else server

    def talk(count):
        commands = [f"SET key{i} value{i}\n" for i in range(count)] + [f"GET key{i}\n" for i in range(count)]
        cli = ask(lab, ours, "cli", [build.tool("redis-cli"), *common], stdin="".join(commands).encode())
        assert cli.stdout().split() == ["OK"] * count + [f"value{i}" for i in range(count)]
        return cli if ours == "client" else server
    port.until_offloaded(load, 10000, 20)
    port.until_offloaded(talk, 200)
    ask(lab, ours, "end", [build.tool("redis-cli"), *common, "shutdown", "nosave"])
    server.ok()


@ROLES
@FAMILIES
@pytest.mark.parametrize("way", [[], ["-R"]], ids=["up", "down"])
def test_iperf3(lab, ours, family, way):
    """iperf3 with four connections at once (select, one thread), in each direction: it counts the bytes of both ends."""
    at = address(ours, family)

    def attempt(megabytes):
        server = serve(lab, ours, "server", [build.tool("iperf3"), "-s", "-1", "-B", at, "-p", "5201"], 5201)
        client = ask(lab, ours, "client", [build.tool("iperf3"), "-c", at, "-p", "5201", "-n", f"{megabytes}M", "-P", "4",
                                           *way])
        server.ok()
        assert re.search(r"\[SUM\].*receiver", client.stdout()), client.stdout()
        return client if ours == "client" else server
    port.until_offloaded(attempt, 32, 4)


def transfer(run, lab, sides, family, style, parts=None):
    """stream_forms, until it is large enough. `parts`: which part of the stream goes without splice."""
    def attempt(size):
        options, words = lab.peers(sides, family)
        size = size // 2 * 2
        from_where = size if parts is None else int(size * parts)
        both = peers.run_both(run, sides, "sockets/programs/stream_forms", *words, "--family", family, style, size, from_where,
                              4711, **options)
        for proc in both:
            assert f"sent {size} bytes" in proc.stdout() and f"received {size} bytes" in proc.stdout()
        ours = both[1 if sides.client else 0]
        assert not any("a send that only the kernel does" in line for line in ours.log().lines) # empty ones are none
        return ours
    port.until_offloaded(attempt, 8 << 20)


@pytest.mark.parametrize("sides", [port.SERVER, port.CLIENT], ids=str)
@pytest.mark.parametrize("style, family", [("blocking", "4"), ("blocking", "6"), ("blocking", "mapped"), ("nonblocking", "4"),
                                           ("crowd", "4")])
def test_call_forms(run, lab, sides, style, family):
    """Seeded random data both ways at once by every call that moves bytes (all of send, recv, readv, writev, sendmmsg, recvmmsg,
    sendfile, MSG_PEEK, MSG_WAITALL, MSG_DONTWAIT, stdio), every byte checked at its place, with one thread, two, or four."""
    transfer(run, lab, sides, family, style)


@pytest.fixture
def jumbo(wired):
    """The wire's frames are long, for one test."""
    for mtu in 9000, 1500:
        for host in wired.all:
            host.ip("link", "set", "wire", "mtu", str(mtu))
        if mtu == 9000:
            yield


@pytest.mark.parametrize("sides", [port.SERVER, port.CLIENT], ids=str)
@pytest.mark.parametrize("style, family", [("blocking", "4"), ("nonblocking", "6"), ("crowd", "4")])
@pytest.mark.usefixtures("jumbo")
def test_call_forms_of_jumbo_frames(run, lab, sides, style, family):
    """The same, in frames of several buffers."""
    transfer(run, lab, sides, family, style)


@pytest.mark.parametrize("sides", [port.SERVER, port.CLIENT], ids=str)
def test_splice_takes_it_back(run, lab, sides):
    """splice from the middle on: the connection returns to the kernel with bytes under way both ways, and none is lost."""
    transfer(run, lab, sides, "4", "blocking", 0.5)


BURST = """
import socket, sys
kind, host = sys.argv[1:]
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.connect((host, 8011))
for _ in range(3):
    s.send(b"x")
    assert s.recv(8) == b"x"
s.close()
"""


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_burst_before_the_port_is_open(lab, kind):
    """It was said that nobody has the library at the other end."""
    server = lab.program("server", ["/usr/bin/python3", "-c", echo.SCRIPT, kind, RIGHT, 8011], ours=False)
    server.wait_output("ready")
    client = lab.program("client", ["/usr/bin/python3", "-c", BURST, kind, RIGHT], env={"VMA_LIFT_AFTER": "1"}).ok()
    assert client.log().accelerated() or client.log().not_accelerated() == ["closed before its Ethernet port was open"]
    server.stop()
