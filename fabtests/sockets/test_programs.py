# SPDX-License-Identifier: BSD-2-Clause
"""Well-known programs, unmodified, in every pairing of a plain and a preloaded side: they must do their work and, where
both sides have the library, do it over an accelerated connection."""

import json
import os
import pathlib
import random
import re
import signal

import pytest

from lib import build, expect, nginx, pairing, patience
from lib.files import random_file, sha256

PROGRAMS = pathlib.Path(__file__).parent / "programs"
PYTHON = "/usr/bin/python3"


# ---- sockperf ---------------------------------------------------------------------------------------------------------


def sockperf_server(run, pair, port, how=None):
    argv = [build.tool("sockperf"), "server"]
    if how:
        feed = run.work / "feed"
        feed.write_text(f"T:127.0.0.1:{port}\n")
        argv += ["-f", feed, "-F", how]
    else:
        argv += ["--tcp", "-i", "127.0.0.1", "-p", port]
    server = run.start("server", argv, vma=pair.server, mode=pair.mode)
    run.wait_port(port, server)
    return server


def messages(text: str) -> tuple[int, int]:
    found = re.search(r"Total Run\].*SentMessages=(\d+); ReceivedMessages=(\d+)", text)
    assert found, f"no totals in sockperf's output:\n{text}"
    return int(found[1]), int(found[2])


def check_ping_pong(client):
    text = client.stdout()
    sent, received = messages(text)
    # The last message may still be under way when the timer ends the test.
    assert sent > 1 and sent - received <= 1  # in a second: how many is the machine's affair
    assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in text
    assert "Summary: Latency is" in text


def sockperf(run, pair, port, server, check, *options):
    """A client for a second, and ones that take longer until something was accelerated."""

    def ask(turn):
        client = run.run("client", [build.tool("sockperf"), *options, "-t", 1 << turn], vma=pair.client, mode=pair.mode)
        check(client)
        return server, client

    _, client = expect.rounds(pair, ask, expect.of_port(port))
    server.stop()
    expect.acceleration(pair, port, server, client)


def sockperf_ping_pong(run, port, pair, size):
    sockperf(run, pair, port, sockperf_server(run, pair, port), check_ping_pong, "ping-pong", "--tcp", "-i", "127.0.0.1", "-p", port,
             "-m", size, *build.SOCKPERF_MANY, "--data-integrity")


def test_sockperf_ping_pong(run, port, pair):
    sockperf_ping_pong(run, port, pair, 14)


@pytest.mark.pairs(*pairing.ACCELERATED)
def test_sockperf_ping_pong_large(run, port, pair):
    sockperf_ping_pong(run, port, pair, 60000)


# sockperf takes 3 s however short the run: the pairings are only those where multiplexers are ours.
@pytest.mark.pairs(*pairing.ACCELERATED)
@pytest.mark.parametrize("how", ["select", "poll", "epoll"])
def test_sockperf_multiplexed(run, port, pair, how):
    server = sockperf_server(run, pair, port, how)
    sockperf(run, pair, port, server, check_ping_pong, "ping-pong", "-f", run.work / "feed", "-F", how, *build.SOCKPERF_MANY)


@pytest.mark.pairs(pairing.KERNEL, *pairing.ACCELERATED)
def test_sockperf_throughput(run, port, pair):

    def check(client):
        assert re.search(r"Message Rate is [1-9]", client.stdout()), client.stdout()
    sockperf(run, pair, port, sockperf_server(run, pair, port), check, "throughput", "--tcp", "-i", "127.0.0.1", "-p", port, "-m", 65000)


# ---- redis ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def redis(run, port, pair):
    server = run.start("server", [build.tool("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "",
                                  "--appendonly", "no", "--dir", run.work, "--daemonize", "no",
                                  "--enable-debug-command", "yes"], vma=pair.server, mode=pair.mode)
    run.wait_port(port, server)
    yield server
    server.stop()
    assert "crashed by signal" not in server.stdout()


def redis_cli(run, pair, port, *args, commands: str | None = None, vma: bool | None = None):
    return run.run("cli", [build.tool("redis-cli"), "-p", port, *args], mode=pair.mode,
                   vma=pair.client if vma is None else vma, stdin=commands.encode() if commands else None)


def benchmark(run, pair, port, *args):
    client = run.run("client", [build.tool("redis-benchmark"), "-p", port, "--csv", *args], vma=pair.client,
                     mode=pair.mode)
    rows = [line.split(",") for line in client.stdout().splitlines()[1:] if line.startswith('"')]
    assert rows and all(float(row[1].strip('"')) > 0 for row in rows), client.output()
    assert "rror" not in client.output(), client.output()
    return client


def benchmarks(run, pair, port, redis, *args, requests):
    """Each of them longer, until something was accelerated."""
    return expect.rounds(pair, lambda turn: (redis, benchmark(run, pair, port, *args, "-n", requests << min(turn, 6))), expect.of_port(port))[1]


def test_redis_benchmark(run, port, pair, redis):
    client = benchmarks(run, pair, port, redis, "-t", "set,get,lpush,lrange_100", "-c", 20, "-d", 100, requests=4000)
    expect.acceleration(pair, port, redis, client)


def test_redis_pipelined(run, port, pair, redis):
    client = benchmarks(run, pair, port, redis, "-t", "set,get", "-P", 64, "-c", 10, "-d", 500, requests=40000)
    expect.acceleration(pair, port, redis, client)


def test_redis_values(run, port, pair, redis):
    """Every value comes back as it was stored; one connection carries a few hundred commands."""
    rng = random.Random(7)
    values = {f"k{i}": f"{rng.getrandbits(rng.choice([8, 8, 800, 80000])):x}" for i in range(500)}
    store = redis_cli(run, pair, port, commands="".join(f"SET {k} {v}\n" for k, v in values.items()))
    assert store.stdout().split() == ["OK"] * len(values)

    def fetched(turn):
        times = 1 << min(turn, 6)
        fetch = redis_cli(run, pair, port, commands="".join(f"GET {k}\n" for k in values) * times)
        assert fetch.stdout().split() == list(values.values()) * times
        return redis, fetch

    _, fetch = expect.rounds(pair, fetched, expect.of_port(port))
    expect.acceleration(pair, port, redis, fetch)


def test_redis_mass_insertion(run, port, pair, redis):
    """redis-cli --pipe: non-blocking, both directions full at once."""
    count = 20000
    commands = "".join(f"SET key{i} value-{i}-{'x' * (i % 97)}\r\n" for i in range(count))
    piped = redis_cli(run, pair, port, "--pipe", commands=commands)
    assert f"errors: 0, replies: {count}" in piped.stdout()
    assert redis_cli(run, pair, port, "DBSIZE").stdout().strip() == str(count)
    assert redis_cli(run, pair, port, "GET", "key777").stdout().strip() == f"value-777-{'x' * (777 % 97)}"


def test_redis_background_save(run, port, pair, redis):
    """BGSAVE forks a server with live accelerated connections; clients go on, and the file holds the data. The client asks until both ends
    are accelerated."""
    fill = redis_cli(run, pair, port, commands="".join(f"SET k{i} {i * i}\n" for i in range(300)))
    assert fill.stdout().split() == ["OK"] * 300
    rounds = "".join(f"GET k{i}\n" for i in range(50))
    written = 0
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as end, os.fdopen(writer, "w") as commands:
        mixed = run.start("cli", [build.tool("redis-cli"), "-p", port], vma=pair.client, mode=pair.mode, stdin=end)

        def ask():
            nonlocal written
            commands.write(rounds)
            commands.flush()
            written += 1
            return not pair.both or (redis.log().accelerated(port) and mixed.log().accelerated(port))

        run.wait_until(ask, "both to be accelerated")
        commands.write("BGSAVE\n" + rounds + "BGSAVE SCHEDULE\n" + rounds)
    numbers = [line for line in mixed.ok().stdout().splitlines() if line.isdigit()]
    assert numbers == [str(i * i) for i in range(50)] * (written + 2)
    run.wait_until(lambda: "rdb_bgsave_in_progress:0" in redis_cli(run, pair, port, "INFO", "persistence").stdout(),
                   "the background save to end")
    info = redis_cli(run, pair, port, "INFO", "persistence").stdout()
    assert "rdb_last_bgsave_status:ok" in info and (run.work / "dump.rdb").stat().st_size > 1000
    assert redis_cli(run, pair, port, "DEBUG", "RELOAD").stdout().strip() == "OK"
    assert redis_cli(run, pair, port, "GET", "k17").stdout().strip() == "289"
    expect.acceleration(pair, port, redis, mixed)


def test_redis_save_under_load(run, port, pair, redis):
    """Forks while 20 connections are busy."""
    load = run.start("client", [build.tool("redis-benchmark"), "-p", port, "--csv", "-t", "set,get", "-n", 30000, "-c",
                                20, "-r", 1000], vma=pair.client, mode=pair.mode)
    for _ in range(3):
        reply = redis_cli(run, pair, port, "BGSAVE", vma=False).stdout()
        assert "Background saving" in reply or "already in progress" in reply
        run.wait_until(lambda: "rdb_bgsave_in_progress:0" in redis_cli(run, pair, port, "INFO", "persistence",
                                                                       vma=False).stdout(), "the save to end")
    load.ok()
    assert "rror" not in load.output()
    assert "rdb_last_bgsave_status:ok" in redis_cli(run, pair, port, "INFO", "persistence", vma=False).stdout()


def test_redis_publish_subscribe(run, port, pair, redis):
    listeners = [run.start("subscriber", [build.tool("redis-cli"), "-p", port, "SUBSCRIBE", "news"], vma=pair.client,
                           mode=pair.mode) for _ in range(3)]
    for listener in listeners:
        listener.wait_output("subscribe")
    words = []

    def publish(turn):
        more = [f"item-{turn}-{i}" for i in range(300 << min(turn, 6))]
        words.extend(more)
        sender = redis_cli(run, pair, port, commands="".join(f"PUBLISH news {word}\n" for word in more))
        assert sender.stdout().split() == ["3"] * len(more)
        return redis, sender

    _, sender = expect.rounds(pair, publish, expect.of_port(port))
    for listener in listeners:
        listener.wait_output(words[-1])
        assert [line for line in listener.stdout().splitlines() if line.startswith("item-")] == words
        listener.stop()
    expect.acceleration(pair, port, redis, sender)


# ---- nginx ------------------------------------------------------------------------------------------------------------

def serve_files(run, pair, port, sendfile="on"):
    www = run.work / "www"
    www.mkdir()
    sums = {name: random_file(www / name, size)
            for name, size in (("1k", 1024), ("100k", 100_000), ("8m", 8 << 20), ("empty", 0))}
    return nginx.start(run, pair, port, sendfile=sendfile, workers=2), sums


def curl(run, pair, port, names, *options):
    """Fetches the files over one connection and returns their hashes by name."""
    argv = [build.tool("curl"), "-sS", "--fail", "--max-time", patience.seconds(), *options]
    for i, name in enumerate(names):
        argv += ["-o", f"got{i}", f"http://127.0.0.1:{port}/{name}"]
    client = run.run("curl", argv, vma=pair.client, mode=pair.mode)
    return client, [sha256(run.work / f"got{i}") for i in range(len(names))]


@pytest.mark.parametrize("sendfile", ["on", "off"])
def test_nginx_content(run, port, pair, sendfile):
    server, sums = serve_files(run, pair, port, sendfile)
    names = ["1k", "8m", "empty", "100k"] * 4
    client, got = curl(run, pair, port, names)
    assert got == [sums[n] for n in names]
    _, got = curl(run, pair, port, names, "-H", "Connection: close")
    assert got == [sums[n] for n in names]
    _, got = curl(run, pair, port, ["8m", "100k", "1k", "8m"] * 2, "--parallel", "--parallel-immediate")
    assert sorted(got) == sorted([sums[n] for n in ["8m", "100k", "1k", "8m"] * 2])
    nginx.end(run, server)
    expect.acceleration(pair, port, server, client, offloaded=pair.mode == "latency")


@pytest.mark.parametrize("keep", [True, False], ids=["keepalive", "close"])
def test_nginx_wrk(run, port, pair, keep):
    server, _ = serve_files(run, pair, port)
    options = [] if keep else ["-H", "Connection: close"]

    def ask(turn):
        client = run.run("wrk", [build.tool("wrk"), "-t1", "-c", 20, "-d", f"{1 << min(turn, 3)}s", *options,
                                 f"http://127.0.0.1:{port}/1k"], vma=pair.client, mode=pair.mode)
        text = client.stdout()
        assert "Non-2xx" not in text, text
        # wrk closes its own connections at the end of the run: errors of reading may not happen before.
        assert "Socket errors" not in text, text
        assert int(re.search(r"(\d+) requests in", text)[1]) > 0
        return server, client

    _, client = expect.rounds(pair, ask, expect.of_port(port)) if keep else ask(0)
    nginx.end(run, server)
    expect.acceleration(pair, port, server, client, offloaded=keep)


@pytest.mark.pairs(pairing.KERNEL, *pairing.ACCELERATED)
def test_nginx_reload(run, port, pair):
    """SIGHUP under load: old workers drain and exit, new ones accept; no request fails."""
    server, _ = serve_files(run, pair, port)
    client = run.start("wrk", [build.tool("wrk"), "-t1", "-c", 10, "-d", "2s", "-H", "Connection: close",
                               f"http://127.0.0.1:{port}/1k"], vma=pair.client, mode=pair.mode)
    log = run.work / "nginx-error.log"
    for number in (1, 2):
        server.send_signal(signal.SIGHUP)
        run.wait_until(lambda: log.read_text().count("exited with code 0") >= 2 * number, "old workers to exit")
    client.ok()
    assert "Socket errors" not in client.stdout() and "Non-2xx" not in client.stdout(), client.stdout()
    nginx.end(run, server)


# ---- iperf3 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["-P1"], ["-P4"], ["-P1", "-R"], ["-P4", "-R"], ["-P1", "--bidir"],
                                     ["-P1", "-l", "97"]], ids=" ".join)
def test_iperf3(run, port, pair, options):
    """More than all buffers hold."""
    sizes = (20, 100, 500) if "97" in options else (100, 1024, 8192)
    server, client = expect.rounds(pair, lambda turn: run_iperf3(run, port, pair, sizes[min(turn, 2)], options), expect.of_port(port))
    expect.acceleration(pair, port, server, client)


def run_iperf3(run, port, pair, mib, options):
    server = run.start("server", [build.tool("iperf3"), "-s", "-1", "-p", port, "--json"], vma=pair.server,
                       mode=pair.mode)
    run.wait_port(port, server)
    client = run.run("client", [build.tool("iperf3"), "-c", "127.0.0.1", "-p", port, "-n", f"{mib}M", "--json", *options],
                     vma=pair.client, mode=pair.mode)
    result = json.loads(client.stdout())
    assert "error" not in result, result["error"]
    # iperf3 counts what had been read when the sender's "done" came: what was under way then is not in it.
    kinds = ["sum_received"] + (["sum_received_bidir_reverse"] if "--bidir" in options else [])
    for kind in kinds:
        assert result["end"][kind]["bytes"] > (mib << 20) // 50, result["end"][kind]
    server.ok()
    assert "error" not in json.loads(server.stdout())
    return server, client


# ---- memcached, python, nc, socat ---------------------------------------------------------------------------------------


def test_memcached(run, port, pair):
    server = run.start("server", [build.tool("memcached"), "-u", "root", "-l", "127.0.0.1", "-p", port, "-U", 0, "-t",
                                  2], vma=pair.server, mode=pair.mode)
    run.wait_port(port, server)

    def ask(_):
        client = run.run("client", [PYTHON, PROGRAMS / "memcached_client.py", port, 400], vma=pair.client, mode=pair.mode)
        assert "all values as stored" in client.stdout()
        return server, client

    _, client = expect.rounds(pair, ask, expect.of_port(port))
    server.stop()
    expect.acceleration(pair, port, server, client)


def test_python_http_server(run, port, pair):
    www = run.work / "www"
    www.mkdir()
    sums = {name: random_file(www / name, size) for name, size in (("small", 3000), ("large", 4 << 20))}
    server = run.start("server", [PYTHON, "-m", "http.server", port, "--bind", "127.0.0.1", "--directory", www,
                                  "--protocol", "HTTP/1.1"],  # else each connection ends with its first answer
                       vma=pair.server, mode=pair.mode)
    run.wait_port(port, server)
    names = ["small", "large", "small"]
    client, got = curl(run, pair, port, names)
    assert got == [sums[n] for n in names]
    server.stop()
    expect.acceleration(pair, port, server, client, offloaded=pair.mode == "latency")


ASKS = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
    for i in range(int(sys.argv[2])):
        block = b"%d " % i * (i % 400 + 1)
        s.sendall(block)
        got = b""
        while len(got) < len(block):
            got += s.recv(len(block) - len(got))
        assert got == block, i
print("all answers")
"""


def test_process_a_connection(run, port, pair):
    """The server forks for each connection and closes its own copy: the child holds it alone, and is accelerated."""
    server = run.start("server", [build.tool("socat"), f"TCP4-LISTEN:{port},fork,reuseaddr", "PIPE"], vma=pair.server,
                       mode=pair.mode)
    run.wait_port(port, server)

    def ask(turn):
        for _ in range(2):
            client = run.run("client", [PYTHON, "-c", ASKS, port, 400 << min(turn, 6)], vma=pair.client, mode=pair.mode)
            assert "all answers" in client.stdout()
        return server, client

    _, client = expect.rounds(pair, ask, expect.of_port(port))
    server.stop()
    expect.acceleration(pair, port, server, client)


@pytest.mark.parametrize("waits", ["", "EPOLLIN", "EPOLLIN|EPOLLONESHOT"])
def test_child_goes_by_itself(run, port, pair, waits):
    """A server goes on with its connections after a child that had copies of them, and of the epoll set they are in, is gone, however it
    went. The client asks until that has been seen: the helper's turn may come late."""
    serves = """
import os, select, signal, socket, sys
def received():
    if events:
        assert waiting.poll() == [(s.fileno(), select.EPOLLIN)]
    data = s.recv(100000)
    if events & select.EPOLLONESHOT:
        waiting.modify(s, events)
    return data
events = 0
for name in filter(None, sys.argv[2].split("|")):
    events |= getattr(select, name)
waiting = select.epoll()
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    s, _ = listener.accept()
    if events:
        waiting.register(s, events)
    children = 0
    while data := received():
        s.sendall(data)
        if data.startswith(b"2"):
            children += 1
            if (pid := os.fork()) == 0:
                if children % 2:
                    os._exit(0)
                signal.pause()
            if children % 2 == 0:
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
print(children > 0 and "forked")
"""
    asks_on = """
import os, socket, sys
def ask_until(path):
    while not os.path.exists(path):
        s.sendall(b"and on")
        assert s.recv(6, socket.MSG_WAITALL) == b"and on"
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as s:
    ask_until(sys.argv[2])
    for i in range(20, 30):
        s.sendall(b"%d" % i)
        assert s.recv(2, socket.MSG_WAITALL) == b"%d" % i
    ask_until(sys.argv[3])
"""
    ways = [run.work / "before", run.work / "after"]
    server = run.start("server", [PYTHON, "-c", serves, port, waits], vma=pair.server, mode=pair.mode)
    run.wait_port(port, server)
    client = run.start("client", [PYTHON, "-c", asks_on, port, *ways], vma=pair.client, mode=pair.mode)
    for times, way in enumerate(ways):
        if pair.both:
            server.wait_log(lambda log: log.accelerated(port) > times, f"the server to be accelerated, {way.name} its children")
        way.touch()
    client.ok()
    server.ok()
    assert "forked" in server.stdout()


@pytest.mark.parametrize("tool", ["nc", "socat"])
@pytest.mark.parametrize("family", ["4", "6"])
def test_file_transfer(run, port, pair, tool, family):
    def transfer(turn):
        source = run.work / f"source-{turn}"
        wanted = random_file(source, 16 << 20 + min(turn, 3))
        target = run.work / f"target-{turn}"
        server, client = transfer_file(run, port, pair, tool, family, source, target)
        assert target.stat().st_size == source.stat().st_size
        assert sha256(target) == wanted
        return server, client

    server, client = expect.rounds(pair, transfer, expect.of_port(port))
    expect.acceleration(pair, port, server, client)


def transfer_file(run, port, pair, tool, family, source, target):
    host = "127.0.0.1" if family == "4" else "::1"
    if tool == "nc":
        server = run.start("server", [build.tool("nc"), "-l", "-N", host, port], vma=pair.server, mode=pair.mode,
                           stdout=target.open("wb"))
        client_argv = [build.tool("nc"), "-N", host, port]
    else:
        server = run.start("server", [build.tool("socat"), "-u", f"TCP{family}-LISTEN:{port},reuseaddr", f"CREATE:{target}"],
                           vma=pair.server, mode=pair.mode)
        client_argv = [build.tool("socat"), "-u", "-", f"TCP{family}:{host if family == '4' else '[::1]'}:{port}"]
    run.wait_port(port, server)
    client = run.start("client", client_argv, vma=pair.client, mode=pair.mode, stdin=source.open("rb"))
    return server.ok(), client.ok()


@pytest.mark.pairs(pairing.VMA_LATENCY)
def test_acceleration_can_be_missed(run, port, pair):
    """The check that a connection was accelerated is one that fails: with acceleration turned off it does."""
    server = sockperf_server(run, pair, port)
    client = run.run("client", [build.tool("sockperf"), "ping-pong", "--tcp", "-i", "127.0.0.1", "-p", port, "-t", 1],
                     vma=True, mode="latency", env={"VMA_OFFLOADED_SOCKETS": "0"})
    server.stop()
    with pytest.raises(AssertionError):
        expect.acceleration(pair, port, server, client)
