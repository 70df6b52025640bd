# SPDX-License-Identifier: BSD-2-Clause
"""Message systems: ZeroMQ, gRPC, nanomsg, mosquitto; and programs in Go, to which no library can be preloaded, as the other side of
programs that have it. The same messages without the library, with it, and with VMA_SPEC=latency."""

import pathlib
import re

import pytest

from lib import build, expect, nginx, pairing

pytestmark = pytest.mark.pairs(pairing.KERNEL, *pairing.ACCELERATED)
PROGRAMS = pathlib.Path(__file__).parent / "programs"
PYTHON = "/usr/bin/python3"


def has_module(run, name, package):
    look = run.start("look", [PYTHON, "-c", f"import {name}"])
    look.may_fail = True
    if look.wait() != 0:
        pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize("pattern", ["request", "push", "publish", "router"])
def test_zeromq(run, pair, port, pattern):
    has_module(run, "zmq", "python3-zmq")
    answers = pattern in ("request", "router")

    def talk(turn):
        words = [pattern, port, 1 << min(turn, 6)]
        server = run.start("server", [PYTHON, PROGRAMS / "zmq_pairs.py", "server", *words], vma=pair.server, mode=pair.mode)
        run.wait_port(port, server)
        client = run.run("client", [PYTHON, PROGRAMS / "zmq_pairs.py", "client", *words], vma=pair.client, mode=pair.mode)
        assert client.stdout() == server.ok().stdout() == "all as sent\n"
        return server, client

    server, client = expect.rounds(pair, talk, expect.of_port(port)) if answers else talk(0)
    expect.acceleration(pair, port, server, client, offloaded=answers)


def test_grpc(run, pair, port):
    has_module(run, "grpc", "python3-grpcio")
    server = run.start("server", [PYTHON, PROGRAMS / "grpc_pairs.py", "server", port], vma=pair.server, mode=pair.mode)
    run.wait_port(port, server)

    def ask(turn):
        client = run.run("client", [PYTHON, PROGRAMS / "grpc_pairs.py", "client", port, 1 << min(turn, 4)], vma=pair.client, mode=pair.mode)
        assert client.stdout() == "all as sent\n"
        return server, client

    _, client = expect.rounds(pair, ask, expect.of_port(port))
    server.stop()
    expect.acceleration(pair, port, server, client)


def test_nanomsg(run, pair, port):
    """nanocat asks once every few milliseconds, and prints what comes back."""
    tool = build.tool("nanocat")
    server = run.start("server", [tool, "--rep", "--bind", f"tcp://127.0.0.1:{port}", "--data", "answer", "--ascii"],
                       vma=pair.server, mode=pair.mode)
    run.wait_port(port, server)
    client = run.start("client", [tool, "--req", "--connect", f"tcp://127.0.0.1:{port}", "--data", "question", "--ascii",
                                  "--interval", "0.005"], vma=pair.client, mode=pair.mode)
    found = expect.of_port(port)
    run.wait_until(lambda: client.stdout().count("answer\n") > 60 and (not pair.both or found(server, client)),
                   "sixty answers, and both to be accelerated", proc=client)
    assert set(client.stdout().split("\n")[:-1]) == {"answer"}
    assert set(server.stdout().split("\n")[:-1]) == {"question"}
    client.stop()
    server.stop()
    expect.acceleration(pair, port, server, client)


@pytest.fixture
def broker(run, pair, port):
    (run.work / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nuser root\n")
    server = run.start("server", [build.tool("mosquitto"), "-c", run.work / "mosquitto.conf", "-v"], vma=pair.server, mode=pair.mode)
    run.wait_port(port, server)
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize("quality", [0, 1, 2])
def test_mosquitto(run, pair, port, broker, quality):
    """A thousand messages or more to three subscribers, in order, at each quality of service; a large retained one."""
    options = ["-h", "127.0.0.1", "-p", port, "-q", quality]

    def publish(turn):
        words = [f"item {number} {'x' * (number % 90)}" for number in range(1000 << min(turn, 4))]
        subscribers = [run.start("subscriber", [build.tool("mosquitto_sub"), *options, "-t", "news/#", "-C", len(words)], vma=pair.client,
                                 mode=pair.mode) for _ in range(3)]
        run.wait_until(lambda: broker.stderr().count("Sending SUBACK") == 3 * (turn + 1), "three subscriptions", proc=broker)
        run.run("publisher", [build.tool("mosquitto_pub"), *options, "-t", "news/a", "-l"], vma=pair.client, mode=pair.mode,
                stdin="".join(f"{word}\n" for word in words).encode())
        for one in subscribers:
            assert one.ok().stdout().splitlines() == words
        return broker, subscribers[0]

    _, subscriber = expect.rounds(pair, publish, expect.of_port(port)) if quality > 0 else publish(0)
    expect.acceleration(pair, port, broker, subscriber, offloaded=quality > 0)
    large = "y" * 100_000
    run.run("publisher", [build.tool("mosquitto_pub"), *options, "-t", "kept", "-r", "-s"], vma=pair.client, mode=pair.mode, stdin=large.encode())
    kept = run.run("subscriber", [build.tool("mosquitto_sub"), *options, "-t", "kept", "-C", 1], vma=pair.client, mode=pair.mode)
    assert kept.stdout() == large + "\n"


# ---- programs in Go ------------------------------------------------------------------------------------------------------------


def test_go_client(run, pair, port):
    """hey asks nginx."""
    (run.work / "www").mkdir()
    (run.work / "www" / "page").write_text("x" * 5000)
    server = nginx.start(run, pair, port)
    for options in ([], ["-disable-keepalive"]):
        client = run.run("client", [build.tool("hey"), "-n", 2000, "-c", 20, *options, f"http://127.0.0.1:{port}/page"],
                         vma=pair.client, mode=pair.mode)
        assert re.search(r"\[200\]\s+2000 responses", client.stdout()) and "Error distribution" not in client.stdout(), client.output()
    nginx.end(run, server)
    assert server.log().accelerated(port) == 0


def test_go_server(run, pair, port):
    """A client in Python asks nats-server."""
    server = run.start("server", [build.tool("nats-server"), "-a", "127.0.0.1", "-p", port], vma=pair.server, mode=pair.mode)
    run.wait_port(port, server)
    client = run.run("client", [PYTHON, PROGRAMS / "nats_client.py", port], vma=pair.client, mode=pair.mode)
    assert client.stdout() == "all as sent\n"
    assert client.log().accelerated(port) == 0
    server.stop()
