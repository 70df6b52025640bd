# SPDX-License-Identifier: BSD-2-Clause
"""Checked datagrams between every pairing of processes: nothing damaged, repeated, out of order or of a wrong source;
nothing lost where receivers acknowledge, and elsewhere exactly what SO_RXQ_OVFL counts."""

import os
import random
import re

import pytest

from lib import build, datagrams, expect, netns, pairing, ports

PROGRAM = "sockets/programs/datagrams/traffic"
SEED = int(os.environ.get("FABTESTS_SEED", "0")) or random.randrange(1, 1 << 32)

# (bound to, sent to, sent from)
FAMILIES = {
    "4": ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
    "4-any": ("0.0.0.0", "127.0.0.1", "127.0.0.1"),
    "4-others": ("127.0.0.2", "127.0.0.2", "127.0.0.3"),
    "6": ("::1", "::1", "::1"),
    "6-any": ("::", "::1", "::1"),
    "mapped": ("::ffff:127.0.0.1", "::ffff:127.0.0.1", "::ffff:127.0.0.1"),
    "dual": ("::", "127.0.0.1", "127.0.0.1"),
    "dual-mapped": ("::", "::ffff:127.0.0.1", "::ffff:127.0.0.1"),
}

pytestmark = pytest.mark.pairs(*datagrams.PAIRS)


def free_ports(count):
    """Below the ephemeral ones, where only these tests have UDP sockets."""
    found = set()
    while len(found) < count:
        found.add(ports.free_port())
    return sorted(found)


class Traffic:
    """Options that all processes of a run share; server is who receives, client who sends."""

    def __init__(self, run, pair, count, family="4", places=(None, None), **options):
        self.run, self.pair, self.places = run, pair, places
        bound, to, source = FAMILIES[family] if isinstance(family, str) else family
        self.ports = free_ports(count)
        self.options = {"bind": bound, "to": to, "from": source, "ports": ",".join(map(str, self.ports)), "seed": SEED,
                        "numbered": int(pair.both), **options}

    def start(self, role, vma, place=None, **options):
        merged = {**self.options, **options}
        argv = [x for name, value in merged.items() for x in (f"--{name.replace('_', '-')}", value)]
        name = {"receive": "server", "send": "client"}.get(role, role)
        return self.run.start(name, [build.program(PROGRAM), role, *argv], vma=vma, mode=self.pair.mode,
                              netns=place.file if place else None)

    def receive(self, vma=None, **options):
        proc = self.start("receive", self.pair.server if vma is None else vma, self.places[0], **options)
        return proc.wait_output("ready")

    def send(self, vma=None, **options):
        return self.start("send", self.pair.client if vma is None else vma, self.places[1], **options)


def totals(receiver):
    """(sent, received, dropped) over the ports of a receiver, as it says at its end."""
    lines = re.findall(r"^port \d+: \d+ flows, (\d+) sent, (\d+) received, (\d+) dropped$", receiver.stdout(), re.M)
    assert lines, receiver.output()
    return tuple(sum(int(line[i]) for line in lines) for i in range(3))


def run_two(run, pair, count, **options):
    """A process that receives and one that sends, to their ends."""
    traffic = Traffic(run, pair, count, **options)
    server = traffic.receive()
    client = traffic.send()
    client.ok()
    server.ok()
    datagrams.acceleration(server, client, receiver_has=pair.server, sender_has=pair.client)
    return totals(server)


@pytest.mark.parametrize("wait", ["block", "poll", "epoll"])
def test_window(run, pair, wait):
    """Three senders to three receivers, every length and call form; 500 a flow, with HELLO and END."""
    sent, received, dropped = run_two(run, pair, 3, wait=wait, senders=3, here=3, datagrams=500)
    assert (sent, received, dropped) == (9 * 502, 9 * 502, 0)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "4"])
def test_families(run, pair, family):
    sent, received, _ = run_two(run, pair, 1, family=family, senders=2, here=2, datagrams=300)
    assert sent == received == 2 * 302


@pytest.mark.parametrize("family", ["4", "6", "dual"])
def test_connected(run, pair, family):
    sent, received, _ = run_two(run, pair, 1, family=family, senders=2, here=2, datagrams=500, connected=1)
    assert sent == received == 2 * 502


def test_flood(run, pair):
    """No acknowledgements: what does not arrive was dropped and counted."""
    wait = "epoll" if pair.server else "block"
    sent, received, dropped = run_two(run, pair, 2, mode="flood", wait=wait, senders=2, here=2, datagrams=8000)
    assert sent == received + dropped >= 4 * 8002 and received > 0


def test_mixed_senders(run, pair):
    """Senders with and without the library at once, to the same sockets."""
    traffic = Traffic(run, pair, 2, senders=4, here=2, datagrams=500)
    server = traffic.receive()
    clients = [traffic.send(vma=True), traffic.send(vma=False, first_id=2)]
    for client, has in zip(clients, (True, False)):
        client.ok()
        datagrams.acceleration(server, client, receiver_has=pair.server, sender_has=has)
    server.ok()
    assert totals(server)[:2] == (8 * 502, 8 * 502)


def test_mixed_receivers(run, pair):
    """One sender to receivers with and without the library."""
    traffic = Traffic(run, pair, 2)
    servers = [traffic.receive(vma=vma, ports=port) for vma, port in zip((True, False), traffic.ports)]
    client = traffic.send(datagrams=1000)
    client.ok()
    for server in servers:
        assert totals(server.ok())[:2] == (1002, 1002)
    if datagrams.UDP_IS_ACCELERATED and pair.client:
        reached = {to.rsplit(":", 1)[1] for _, to in datagrams.routes(client.log())}
        assert str(traffic.ports[0]) in reached and str(traffic.ports[1]) not in reached


one_process = pytest.mark.pairs(pairing.KERNEL, pairing.VMA_LATENCY, pairing.VMA_DEFAULT)


def by_itself(pair, begin):
    """The process of begin(1), or of begin(2), begin(4) ...: what it says is over before its provider is loaded, on some machine."""

    def one(turn):
        proc = begin(1 << turn).ok()
        return proc, proc

    proc, _ = expect.rounds(pair, one, lambda proc, _: datagrams.receivers(proc.log()) and datagrams.routes(proc.log()))
    datagrams.acceleration(proc, proc, receiver_has=pair.both, sender_has=pair.both)
    return proc


@one_process
@pytest.mark.parametrize("family", ["4", "6", "dual"])
def test_one_process(run, pair, family):
    """Both sockets in one process."""

    def begin(times):
        return Traffic(run, pair, 2, family=family, senders=2, here=2, datagrams=500 * times).start("alone", pair.both)

    sent, received, _ = totals(by_itself(pair, begin))
    assert sent == received and sent % (4 * 500) == 4 * 2


@one_process
@pytest.mark.parametrize("family", ["4", "6", "mapped"])
def test_itself(run, pair, family):
    """A socket that sends to itself, and later is connected to itself."""

    def begin(times):
        return Traffic(run, pair, 1, family=family, datagrams=400 * times).start("self", pair.both)

    said = re.search(r"itself: (\d+) sent and received", by_itself(pair, begin).stdout())
    assert said and int(said[1]) % 800 == 0


@pytest.mark.pairs(pairing.VMA_LATENCY)
@pytest.mark.parametrize("mode", ["window", "flood"])
def test_sleeping(run, pair, mode, monkeypatch):
    """Receivers that never spin."""
    plain = run.environment
    monkeypatch.setattr(run, "environment", lambda *a: {**plain(*a), "VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"})
    sent, received, dropped = run_two(run, pair, 2, mode=mode, senders=2, here=2, datagrams=1000)
    assert sent == received + dropped >= 4 * 1002


# ---- killed in mid-traffic ----------------------------------------------------------------------------------------------


def received_some(run, proc, times):
    """A receiver that goes on receives more: it has been sent to this often."""
    run.wait_until(lambda: proc.stdout().count("ready") and len(running_flows(proc)) >= times, "traffic", proc=proc)


def running_flows(proc):
    return re.findall(r"^port \d+: flow of sender \d+ at \S+ port \d+ is at 100$", proc.stdout(), re.M)


def test_sender_is_killed(run, pair):
    """Senders are killed one after another; the next, from a port of its own, is served as if they had not been."""
    traffic = Traffic(run, pair, 1, datagrams=300, restarts=1)
    server = traffic.receive(senders=1)
    for i in range(3):
        client = traffic.send(endless=1, first_id=i)
        received_some(run, server, i + 1)
        client.kill()
    last = traffic.send(first_id=3).ok()
    server.ok()
    assert "sender 3: 302 sent" in last.stdout()


def test_sender_is_restarted(run, pair):
    """The same, all from one port. (In flood mode, where each datagram tells which sender's it is.)"""
    traffic = Traffic(run, pair, 2, mode="flood", datagrams=300, restarts=1)
    number, own = traffic.ports
    server = traffic.receive(ports=number)
    options = {"ports": number, "from-port": own}
    for i in range(3):
        client = traffic.send(endless=1, first_id=i, **options)
        received_some(run, server, i + 1)
        client.kill()
    traffic.send(first_id=3, **options).ok()
    server.ok()


def test_receiver_is_killed(run, pair):
    """A receiver is killed in mid-traffic; another on the same port gets the same sender's datagrams, and only right
    ones. (In flood mode: nobody waits for the acknowledgements of the dead.)"""
    traffic = Traffic(run, pair, 1, mode="flood", restarts=1)
    servers = [traffic.receive()]
    client = traffic.send(endless=1)
    received_some(run, servers[0], 1)
    for _ in range(2):
        servers[-1].kill()
        servers.append(traffic.receive())
        received_some(run, servers[-1], 1)
    assert client.alive()
    client.kill()
    servers[-1].kill()


# ---- other network namespaces -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts():
    made = netns.hosts()
    yield made
    made.remove()


@pytest.mark.parametrize("family", ["4", "6"])
def test_other_host(run, pair, hosts, family):
    """Through a wire: the library must not take the way over memory."""
    addresses = {"4": ("10.99.0.1", "10.99.0.1", "10.99.0.2"), "6": ("fd99::1", "fd99::1", "fd99::2")}[family]
    traffic = Traffic(run, pair, 1, family=addresses, places=(hosts.left, hosts.right), datagrams=300)
    server, client = traffic.receive(), traffic.send()
    client.ok()
    assert totals(server.ok())[:2] == (302, 302)
    datagrams.separated(server, client)


def test_same_address_in_two_namespaces(run, pair, hosts):
    """The same address and port in two namespaces, with the same shared directory: the two pairs never meet. Each pair
    has a seed of its own, and a stranger's datagram would be taken for damage."""
    both = [Traffic(run, pair, 1, places=(host, host), datagrams=2000) for host in (hosts.left, hosts.right)]
    servers = [t.receive(ports=16000, seed=SEED + i) for i, t in enumerate(both)]
    clients = [t.send(ports=16000, seed=SEED + i) for i, t in enumerate(both)]
    for client, server in zip(clients, servers):
        client.ok()
        assert totals(server.ok())[:2] == (2002, 2002)
        datagrams.acceleration(server, client, receiver_has=pair.server, sender_has=pair.client)
