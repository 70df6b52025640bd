# SPDX-License-Identifier: BSD-2-Clause
"""vma_stats --listen as Prometheus, and as whoever else comes, sees it: scrapes of redis under the library, requests that are none, clients
that are slow or many, Unix sockets."""

import concurrent.futures
import http.client
import os
import pathlib
import re
import signal
import socket

import pytest

from lib import build, patience, prometheus
from lib.vmastats import program


class Server:
    def __init__(self, run, address="127.0.0.1:0", *options):
        self.proc = run.start("metrics", [program("vma_stats"), "-k", run.log_dir, f"--listen={address}", *options])
        said = run.wait_until(lambda: re.search(r"serving (http://(.*):(\d+)/metrics|unix:.*)\n", self.proc.stderr()), "its address",
                              proc=self.proc)
        self.url, self.host, self.port = said[1], said[2], said[3] and int(said[3])

    def end(self):
        """It ends well, whatever came before."""
        self.proc.send_signal(signal.SIGTERM)
        self.proc.ok()

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=patience.seconds())

    def ask(self, method="GET", path="/metrics", **how):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=patience.seconds())
        connection.request(method, path, **how)
        answer = connection.getresponse()
        answer.text = answer.read()
        connection.close()
        return answer

    def scrape(self):
        answer = self.ask()
        assert answer.status == 200
        return prometheus.parse(answer.text)


def send(connection, data):
    """What comes back to the bytes, to its end."""
    connection.sendall(data)
    return read(connection)


def read(connection):
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


@pytest.fixture
def server(run):
    made = Server(run)
    yield made
    made.end()


def test_scrapes_of_redis(run, port, server):
    """As Prometheus does it, while the program works; a process that comes is on the next page, and one that goes is not."""
    assert server.scrape()["vma_exporter_processes"].sum() == 0
    redis = run.start("redis", [build.tool("redis-server"), "--port", port, "--save", ""], vma=True)
    run.wait_port(port, redis)
    run.run("benchmark", [build.tool("redis-benchmark"), "-p", port, "-t", "set", "-n", 10000, "-q", "-c", 5], vma=True)
    labels = {"pid": str(redis.pid), "program": "redis-server", "protocol": "tcp"}
    assert server.scrape()["vma_receive_bytes_total"].sum(**labels) > 10000 * 30
    answer = server.ask(headers={"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip", "User-Agent": "Prometheus/2"})
    assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.getheader("Connection") == "close" and int(answer.getheader("Content-Length")) == len(answer.text)
    redis.stop()
    assert server.scrape()["vma_exporter_processes"].sum() == 0


def test_requests(server):
    assert server.ask("HEAD").text == b"" and server.ask("HEAD").status == 200
    assert b"/metrics" in server.ask(path="/").text
    assert prometheus.parse(server.ask(path="/metrics?collect=all").text)
    assert server.ask(path="/metrics/x").status == 404 and server.ask(path="/../etc/passwd").status == 404
    for method in "POST", "PUT", "DELETE", "OPTIONS":
        answer = server.ask(method, body=b"x" * 100_000 if method == "POST" else None)
        assert answer.status == 405 and answer.getheader("Allow") == "GET, HEAD"


@pytest.mark.parametrize("request_, status", [
    (b"\n", 400), (b"GET /metrics\r\n\r\n", 400), (b"GET /metrics HTTP/2.0\r\nHost: x\r\n\r\n", 400),
    (b"GET /metrics HTTP/1.1\r\n\r\n", 400), (b"GET /metrics HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", 400), (b"GET /\0metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 4000 + b"\r\n", 431),
    (b"GET /metrics HTTP/1.0\r\n\r\n", 200), (b"GET /metrics HTTP/1.1\nHost: x\n\n", 200),
    (b"GET http://other/metrics HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 200)])
def test_bad_requests(server, request_, status):
    """Each gets one answer, whole, also who goes on to send."""
    with server.connect() as connection:
        answer = send(connection, request_)
    assert answer.startswith(b"HTTP/1.1 %d " % status) and answer.count(b"HTTP/1.1 ") == 1
    assert server.scrape()


def test_byte_by_byte(server):
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert b" 200 OK\r\n" in read(connection)


def test_slow_client(server):
    """Who asks and says no more is told so, and nobody waits for him."""
    with server.connect() as slow, server.connect() as silent, server.connect() as deaf:
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHo")
        deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert server.scrape()
        assert read(slow).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert read(silent).startswith(b"HTTP/1.1 408 ")
        assert read(deaf).startswith(b"HTTP/1.1 200 ")


def test_gone_clients(server):
    """Who resets the connection, before and after he has asked."""
    for request_ in b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n":
        for _ in range(20):
            connection = server.connect()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.sendall(request_)
            connection.close()
    assert server.scrape()


def test_many_clients(server):
    """More than it serves at a time: the next ones wait, and all get their page. It keeps no descriptor."""
    pid = server.proc.popen.pid
    descriptors = len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: server.ask(), range(150)))
    assert all(answer.status == 200 and prometheus.parse(answer.text) for answer in answers)
    server.proc.runner.wait_until(lambda: len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir())) == descriptors, "its descriptors closed")


def test_idle_connections_do_not_keep_others_out(server):
    """As many connections that ask nothing as there is room for, and more: they end by themselves."""
    held = [server.connect() for _ in range(40)]
    assert server.scrape()
    for connection in held:
        connection.close()


def test_unix_socket(run, work):
    """What was left by one that was killed is replaced; one that is used, or is no socket, is not."""
    path = work / "metrics.sock"
    first = Server(run, f"unix:{path}")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        assert b" 200 OK\r\n" in send(connection, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    second = run.start("second", [program("vma_stats"), f"--listen=unix:{path}"])
    assert second.fails() == 1 and "Address already in use" in second.stderr()
    first.proc.kill()
    assert path.exists()
    third = Server(run, f"unix:{path}")
    third.end()
    assert not path.exists()
    path.write_text("notes")
    fourth = run.start("fourth", [program("vma_stats"), f"--listen=unix:{path}"])
    assert fourth.fails() == 1 and path.read_text() == "notes"


@pytest.mark.parametrize("address", ["", "x", "1.2.3.4", "1.2.3.4:99999", "::1:80", "unix:", "unix:" + "x" * 200])
def test_wrong_addresses(run, address):
    proc = run.start("wrong", [program("vma_stats"), f"--listen={address}"])
    assert proc.fails() == 1
    assert f"'{address}' Invalid address (expected PORT, ADDRESS:PORT, [ADDRESS]:PORT or unix:PATH)" in proc.stderr()


def test_loopback_by_default(run, port):
    server = Server(run, str(port))
    assert server.url == f"http://127.0.0.1:{port}/metrics" and server.scrape()
    server.proc.send_signal(signal.SIGINT)
    assert server.proc.wait() == 0


def test_ipv6(run):
    if not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this host has no IPv6")
    server = Server(run, "[::1]:0")
    server.host = server.host.strip("[]")
    assert server.scrape()
    server.end()
