# SPDX-License-Identifier: BSD-2-Clause
"""vmad introduces the two ends of a connection within the host: whom, and whom not."""

import ctypes
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys

import pytest

from lib import broker, build
from lib.broker import ABSENT, ACCEPTOR, AGAIN, CONNECTOR, MET, NOT_TCP, REFUSED, REMOTE, Asker, Connection, are_joined, introduced
from lib.wire import set_sysctl

_TCP_REPAIR = 19


def _heard(proc):
    return json.loads(proc.stdout().splitlines()[-1])


@pytest.fixture
def ends(run, vmad, port):
    """ends(...): what two processes hear that are the ends of a connection and ask, the connector's and the acceptor's."""
    def start(address="127.0.0.1", connect_to=None, connect_port=None, connector=(), acceptor=(), hosts=None):
        program = [sys.executable, "-B", broker.__file__, vmad.path]
        left, right = (hosts.left.file, hosts.right.file) if hosts else (None, None)
        run.work.chmod(0o755)
        one = run.start("acceptor", [*acceptor, *program, "accept", address, port], netns=right)
        one.wait_output("listens")
        other = run.start("connector", [*connector, *program, "connect", connect_to or address, connect_port or port], netns=left)
        other.ok()
        one.ok()
        return _heard(other), _heard(one)
    return start


@pytest.mark.parametrize("first", ["connector", "acceptor"])
@pytest.mark.parametrize("how", [{}, {"address": "::1", "family": socket.AF_INET6},
                                 {"family": socket.AF_INET6, "listen_at": "::ffff:127.0.0.1"}], ids=["ipv4", "ipv6", "mapped"])
def test_one_process(ask, how, first):
    conn = Connection(**how)
    socks = [conn.connector, conn.acceptor]
    if first == "acceptor":
        socks.reverse()
    heard = introduced(ask(), socks[0], ask(), socks[1])
    assert [answer.role for answer in heard] == ([CONNECTOR, ACCEPTOR] if first == "connector" else [ACCEPTOR, CONNECTOR])
    for answer in heard:
        assert (answer.user, answer.group, answer.process) == (os.getuid(), os.getgid(), os.getpid())
        assert answer.network == answer.own_network == broker.network_of(conn.connector)
    assert are_joined(*heard)
    conn.close()


def test_after_data(ask):
    """Whatever has gone over the connection by then."""
    conn = Connection()
    conn.connector.sendall(b"x" * 100000)
    got = 0
    while got < 70000:
        got += len(conn.acceptor.recv(70000 - got))
    conn.acceptor.sendall(b"y" * 1000)
    assert are_joined(*introduced(ask(), conn.acceptor, ask(), conn.connector))


def test_one_asker_for_many(ask):
    """Answers say which question they are of, and come in any order."""
    one, other = ask(), ask()
    conns = [Connection() for _ in range(20)]
    for number, conn in enumerate(conns):
        one.ask(conn.connector, 100 + number)
    for number, conn in reversed(list(enumerate(conns))):
        other.ask(conn.acceptor, 200 + number)
    heard = {answer.number: answer for answer in (asker.hear() for asker in [one, other] * 20)}
    assert sorted(heard) == [*range(100, 120), *range(200, 220)]
    assert all(are_joined(heard[100 + number], heard[200 + number]) for number in range(20))
    assert len({answer.pair for answer in heard.values()}) == 20


def test_two_namespaces(ends, hosts):
    connector, acceptor = ends("10.99.0.2", hosts=hosts)
    assert (connector["result"], acceptor["result"]) == (MET, MET)
    assert (connector["role"], acceptor["role"]) == (CONNECTOR, ACCEPTOR)
    assert (connector["word"], acceptor["word"]) == ("accept", "connect")
    assert (connector["sent"], acceptor["sent"]) == ("accept", "connect")
    assert connector["process"] != acceptor["process"]
    assert connector["pair"] == acceptor["pair"]
    left = broker.inside(hosts.left, lambda: broker.network_of(socket.socket()))
    right = broker.inside(hosts.right, lambda: broker.network_of(socket.socket()))
    assert (connector["own_network"], connector["network"]) == (left, right)
    assert (acceptor["own_network"], acceptor["network"]) == (right, left)


def test_published_port(ends, hosts, port):
    """Both addresses and the port are others at each end."""
    hosts.right.ip("addr", "add", "10.98.0.1/32", "dev", "lo")
    hosts.right.ip("route", "add", "10.98.0.9/32", "dev", "wire")
    rules = f"""table ip published {{
        chain in {{ type nat hook prerouting priority -100; tcp dport 80 dnat to 10.98.0.1:{port}; }}
        chain from {{ type nat hook input priority 100; ip daddr 10.98.0.1 snat to 10.98.0.9; }}
    }}"""
    done = subprocess.run(["ip", "netns", "exec", hosts.right.name, build.tool("nft"), "-f", "-"], input=rules, text=True,
                          capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"this kernel translates no addresses: {done.stderr.splitlines()[0]}")
    connector, acceptor = ends("10.98.0.1", "10.99.0.2", 80, hosts=hosts)
    assert (connector["result"], acceptor["result"]) == (MET, MET)
    assert (connector["word"], acceptor["word"]) == ("accept", "connect")


def test_fast_open(ask, hosts):
    """Data in the SYN, and an answer before the connector knows of the connection."""
    set_sysctl(hosts.left, "ipv4/tcp_fastopen", 3)

    def listen():
        listener = socket.create_server(("10.99.0.1", 0))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)
        return listener

    with broker.inside(hosts.left, listen) as listener:
        opened = 0
        for _ in range(3):  # the first gets the cookie for it
            connector = broker.inside(hosts.left, socket.socket)
            connector.sendto(b"early" * 20, socket.MSG_FASTOPEN, listener.getsockname())
            acceptor = listener.accept()[0]
            acceptor.send(b"as early")
            opened += bool(acceptor.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[5] & 32)  # TCPI_OPT_SYN_DATA
            assert are_joined(*introduced(ask(), connector, ask(), acceptor))
        assert opened


def test_syn_cookies(ask, hosts):
    """The acceptor's side knows nothing of the handshake until it is over."""
    set_sysctl(hosts.right, "ipv4/tcp_syncookies", 2)
    conn = Connection("10.99.0.2", connect_in=hosts.left, accept_in=hosts.right)
    assert are_joined(*introduced(ask(), conn.connector, ask(), conn.acceptor))


@pytest.mark.parametrize("patience", ["200"])
def test_the_other_never_asks(ask, patience, vmad):
    del patience
    conn = Connection()
    one, other = ask(), ask()
    for asker, sock in ((one, conn.connector), (other, conn.acceptor)):
        asker.ask(sock, 7)
        assert asker.hear().result == ABSENT
    assert are_joined(*introduced(one, conn.connector, other, conn.acceptor))
    assert vmad.proc.alive()


def test_other_hosts(ask):
    """No other end in this host, as vmad sees it: a connection that is older than it, and one that was made of numbers (TCP_REPAIR)."""
    asker = ask()
    with socket.socket() as unconnected, socket.socket() as repaired, socket.create_server(("127.0.0.1", 0)) as listener:
        repaired.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
        repaired.bind(("127.0.0.1", 0))
        repaired.connect(listener.getsockname())
        repaired.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 0)
        for sock in (unconnected, listener, repaired):
            asker.ask(sock)
            assert asker.hear().result == REMOTE
        repaired.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)  # it goes without a word


@pytest.mark.parametrize("known", ["1024"])
def test_forgotten(ask, known):
    """Connections by the thousand take the places of the oldest; the youngest are always known."""
    del known
    old = Connection()
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(processors)])  # each has cookies of its own
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for _ in range(4096):
                socket.create_connection(listener.getsockname()).close()
                listener.accept()[0].close()
    finally:
        os.sched_setaffinity(0, processors)
    asker = ask()
    for sock in (old.connector, old.acceptor):
        asker.ask(sock)
        assert asker.hear().result == REMOTE
    new = Connection()
    assert are_joined(*introduced(asker, new.connector, ask(), new.acceptor))


def test_own_other_end(ask):
    """A socket that is connected to itself has no other end."""
    asker = ask()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.connect(sock.getsockname())
        asker.ask(sock)
        assert asker.hear().result == REMOTE


def test_closed_meanwhile(ask):
    one, other = ask(), ask()
    conn = Connection()
    conn.connector.close()
    other.ask(conn.acceptor)
    assert other.hear().result == REMOTE
    conn = Connection()
    one.ask(conn.connector)
    one.close()  # who has asked is gone, its connection is not
    other.ask(conn.acceptor, 5)
    other.cancel(5)
    again = ask()
    again.ask(conn.connector, 6)
    other.ask(conn.acceptor, 5)  # the number is free
    assert (again.hear().result, other.hear().result) == (MET, MET)


def test_connected_again(ask):
    """A socket that has had another connection is at the end of its present one."""
    before = Connection()
    socket_of = before.connector
    one, other = ask(), ask()
    one.ask(before.acceptor, 1)
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        one.ask(datagrams, 2)
        assert one.hear().result == NOT_TCP  # so vmad has the other question
    with socket.create_server(("127.0.0.1", 0)) as listener:
        _disconnect(socket_of)
        socket_of.connect(listener.getsockname())
        after = listener.accept()[0]
        heard = introduced(other, socket_of, ask(), after)
        assert are_joined(*heard)
    assert one.hear().result == ABSENT


def _disconnect(sock):
    assert ctypes.CDLL(None).connect(sock.fileno(), struct.pack("=H14x", socket.AF_UNSPEC), 16) == 0


def test_asked_again(ask):
    """By another process that has the socket too: the last one counts."""
    conn = Connection()
    one, other = ask(), ask()
    one.ask(conn.connector, 1)
    other.ask(conn.connector, 2)
    assert one.hear().result == AGAIN
    one.ask(conn.acceptor, 3)
    assert (one.hear().result, other.hear().result) == (MET, MET)


# ---- who may meet --------------------------------------------------------------------------------------------------

AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def _results(heard):
    return tuple(each["result"] for each in heard)


def test_other_users_are_refused(ends):
    assert _results(ends(connector=AS_NOBODY)) == (REFUSED, REFUSED)


@pytest.mark.parametrize("rules", ["broker allow user root with user 65534"])
def test_other_users_are_allowed(ends, rules):
    del rules
    connector, acceptor = ends(connector=AS_NOBODY)
    assert (connector["result"], acceptor["result"]) == (MET, MET)
    assert (connector["user"], acceptor["user"], acceptor["group"]) == (0, 65534, 65534)


@pytest.mark.parametrize("rules", ["broker deny user * with user * port {port}"])
def test_ports(ends, ask, rules):
    """That of the acceptor, whichever end has it as its own."""
    del rules
    assert _results(ends()) == (REFUSED, REFUSED)
    conn = Connection()
    assert are_joined(*introduced(ask(), conn.connector, ask(), conn.acceptor))


@pytest.mark.parametrize("rules", ["broker deny user * cgroup */vma-{port}* with user *"])
@pytest.mark.parametrize("name, result", [("vma-{port}", REFUSED), ("other-{port}", MET)])
def test_control_groups(ends, vmad, rules, name, result, port):
    del rules
    name = name.format(port=port)
    enter = ("unshare", "-m", "sh", "-c", 'mount -t cgroup2 none "$1" && mkdir -p "$1/$2" && echo 0 >"$1/$2/cgroup.procs" && shift 2 &&'
             ' exec "$@"', "sh", vmad.tree, name)
    try:
        connector, acceptor = ends(acceptor=enter)
    finally:
        vmad.remove_group(name)
    if not vmad.knows_groups():
        pytest.skip("this kernel doesn't say which process has connected (Linux 6.5)")
    assert (connector["result"], acceptor["result"]) == (result, result)
    if result == MET:
        assert connector["cgroup"].endswith(f"/{name}")


# ---- vmad comes and goes -------------------------------------------------------------------------------------------

def test_killed_and_started_again(vmad, ask):
    """Those who have met don't notice; a new vmad knows new connections."""
    old = Connection()
    heard = introduced(ask(), old.connector, ask(), old.acceptor)
    waiting, unasked = ask(), Connection()
    waiting.ask(unasked.connector)
    vmad.kill()
    assert waiting.is_cut()
    assert are_joined(*heard)
    old.connector.send(b"on")
    assert old.acceptor.recv(10) == b"on"
    vmad.start()
    asker = ask()
    for sock in (old.connector, unasked.acceptor):
        asker.ask(sock)
        assert asker.hear().result == REMOTE
    new = Connection()
    assert are_joined(*introduced(ask(), new.connector, asker, new.acceptor))
    assert are_joined(*heard)


def test_an_end_of_the_pair_is_closed(ask):
    """Its other end hears that."""
    conn = Connection()
    one, other = introduced(ask(), conn.connector, ask(), conn.acceptor)
    one.sock.close()
    assert other.sock.recv(10) == b""


def test_stop_takes_the_path_away(vmad):
    assert vmad.proc.stop(number=signal.SIGTERM) == 0
    assert not pathlib.Path(vmad.path).exists()
    vmad.stopped = True
