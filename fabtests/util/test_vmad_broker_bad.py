# SPDX-License-Identifier: BSD-2-Clause
"""What vmad's broker bears of those who ask badly, and what it says where there can be no broker. Others are served meanwhile."""

import contextlib
import os
import pathlib
import random
import resource
import select
import signal
import socket
import struct

import pytest

from lib import broker, build
from lib.broker import ABSENT, ASK, BUSY, CANCEL, MET, NOT_TCP, OTHER_VERSION, REMOTE, Connection, are_joined, introduced, request
from lib.guardian import Vmad
from lib.introducer import IN_TREE
from lib.patience import seconds


@pytest.fixture
def serves(ask, vmad, run):
    """serves(): whether vmad still does, all others, and has closed what it was given."""
    before = vmad.descriptors()

    def check(mine=0):
        conn = Connection()
        one, other = ask(), ask()
        heard = introduced(one, conn.connector, other, conn.acceptor)
        joined = are_joined(*heard)
        for each in (*heard, conn, one, other):
            (each.sock if isinstance(each, broker.Answer) else each).close()
        run.wait_until(lambda: vmad.descriptors() <= before + mine, "vmad to close what it has of others")
        return joined
    return check


def _foreign(kind):
    if kind == "file":
        return open(os.devnull, "rb")  # pylint: disable=consider-using-with
    if kind == "pipe":
        return os.fdopen(os.pipe()[0], "rb")
    family, sort, protocol = {"udp": (socket.AF_INET, socket.SOCK_DGRAM, 0), "unix": (socket.AF_UNIX, socket.SOCK_STREAM, 0),
                              "netlink": (socket.AF_NETLINK, socket.SOCK_RAW, 0), "raw": (socket.AF_INET, socket.SOCK_RAW, 6),
                              "mptcp": (socket.AF_INET, socket.SOCK_STREAM, 262)}[kind]
    try:
        return socket.socket(family, sort, protocol)
    except OSError as error:
        pytest.skip(f"no {kind} socket: {error}")


@pytest.mark.parametrize("kind", ["udp", "unix", "netlink", "raw", "mptcp", "file", "pipe"])
def test_foreign_descriptors(ask, serves, kind):
    """Are no TCP sockets; whoever passes one is heard on."""
    asker = ask()
    with _foreign(kind) as given:
        for number in range(3):  # as many as may be under way to be closed
            asker.ask(given, number)
            assert asker.hear().result == NOT_TCP
    assert serves(1)


GARBAGE = {"one byte": b"\1", "short": request(ASK, 1)[:-1], "long": request(ASK, 1) + b"\0", "magic": request(ASK, 1, magic=7),
           "length": request(ASK, 1, length=15), "kind": request(77, 1), "answer": request(broker.ANSWER, 1), "naked": request(ASK, 1),
           "huge": b"\0" * 60000, "empty": b""}


@pytest.mark.parametrize("sent", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage(ask, serves, sent):
    asker = ask()
    asker.sock.send(sent)
    assert asker.is_cut()
    assert serves()


@pytest.mark.parametrize("count", [2, 3, 100])
def test_too_many_descriptors(ask, serves, count):
    asker, conn = ask(), Connection()
    socket.send_fds(asker.sock, [request(ASK, 1)], [conn.connector.fileno()] * count)
    assert asker.is_cut()
    assert serves()


def test_a_descriptor_with_a_cancel(ask, serves):
    asker, conn = ask(), Connection()
    socket.send_fds(asker.sock, [request(CANCEL, 1)], [conn.connector.fileno()])
    assert asker.is_cut()
    assert serves()


def test_another_version(ask, serves):
    """Is told vmad's, however long its messages are; what comes with them is closed."""
    asker, conn = ask(), Connection()
    socket.send_fds(asker.sock, [request(9, 5, version=2, length=40) + b"\0" * 24], [conn.connector.fileno()])
    heard = asker.hear()
    assert (heard.result, heard.number, heard.version) == (OTHER_VERSION, 5, broker.VERSION)
    assert serves(1)


def test_a_number_that_waits(ask, serves):
    asker, conn = ask(), Connection()
    asker.ask(conn.connector, 1)
    asker.ask(conn.acceptor, 1)
    assert asker.is_cut()
    assert serves()


def test_a_thousand_clients(ask, vmad, serves):
    """Each sends something else; all are cut off, and nobody else notices."""
    seed = int(os.environ.get("VMA_TEST_SEED", random.randrange(1 << 32)))
    print(f"VMA_TEST_SEED={seed}")
    numbers = random.Random(seed)
    served = [ask() for _ in range(2)]
    conn = Connection()
    clients = [broker.Asker(vmad.path) for _ in range(1000)]
    for client in clients:
        message = bytearray(request(numbers.randrange(4), 1))
        message[numbers.randrange(12)] ^= numbers.randrange(1, 256)  # not the number
        message = message[:numbers.randrange(1, 17)]
        if numbers.randrange(2) and message[4:6] == struct.pack("=H", broker.VERSION):
            socket.send_fds(client.sock, [message], [conn.connector.fileno()] * numbers.randrange(1, 9))
        else:
            client.sock.send(message)
    assert are_joined(*introduced(served[0], conn.connector, served[1], conn.acceptor))
    for client in clients:
        if _is_open(client):  # those of another version were answered
            client.sock.send(b"and more")
        assert client.is_cut()
        client.close()
    assert serves(2)


def _is_open(client):
    with contextlib.suppress(BlockingIOError, ConnectionResetError):
        return client.sock.recv(1000, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    return False


def test_too_many_clients(run, vmad, serves):
    """1,024 of a user, who is hung up on then, until some have gone."""
    clients = [broker.Asker(vmad.path) for _ in range(1030)]
    for client in clients[1024:]:
        assert client.is_cut()
    conn = Connection()
    assert are_joined(*introduced(clients[0], conn.connector, clients[1], conn.acceptor))
    for client in clients:
        client.close()
    run.wait_until(lambda: vmad.descriptors() < 30, "vmad to close them")
    assert serves()


def test_who_does_not_read(ask, serves):
    """Isn't heard further once his answers have no room. When he reads they are all there."""
    asker, sent = ask(), 0
    asker.sock.setblocking(False)
    with socket.socket() as unconnected:
        with contextlib.suppress(BlockingIOError):
            for sent in range(100000):
                asker.ask(unconnected, sent)
    assert 0 < sent < 100000
    assert serves(1)
    asker.sock.settimeout(seconds())
    for number in range(sent):
        heard = asker.hear()
        assert (heard.number, heard.result) == (number, REMOTE)
    conn = Connection()
    assert are_joined(*introduced(asker, conn.connector, ask(), conn.acceptor))


@pytest.mark.parametrize("patience", ["60000"])
def test_who_does_not_read_is_cut_off(ask, serves, patience):
    """If others' questions are what he is told of: 1,024 answers are kept for him, and what the socket has room for."""
    del patience
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    idle, other = ask(), ask()
    conns = [Connection() for _ in range(2000)]
    for number, conn in enumerate(conns):
        idle.ask(conn.connector, number)
    with socket.socket() as unconnected:  # its answer would come after those
        idle.ask(unconnected, 5000)
    assert idle.sock.recv(1000, socket.MSG_PEEK)[16:20] == struct.pack("=I", REMOTE)  # so all of them wait
    heard = select.poll()
    heard.register(idle.sock, 0)  # hears of its end alone
    heard.register(other.sock, select.POLLIN)
    for number, conn in enumerate(conns):
        other.ask(conn.acceptor, number)
        if idle.sock.fileno() in dict(heard.poll(seconds() * 1000)):
            break
        answer = other.hear()
        assert answer.result in (MET, BUSY)
        if answer.sock:
            answer.sock.close()
    else:
        pytest.fail("vmad holds 2,000 answers for somebody who doesn't read")
    assert number > 1024
    assert idle.is_cut()
    assert serves(1)


def test_a_lingering_socket(ask, vmad, serves):
    """The last descriptor of a socket that would wait for minutes until its data is taken."""
    conn = Connection()
    conn.connector.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            conn.connector.send(b"x" * 65536)
    conn.connector.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
    asker = ask()
    vmad.proc.send_signal(signal.SIGSTOP)
    asker.ask(conn.connector)
    conn.connector.close()  # not the last one: the message has it
    vmad.proc.send_signal(signal.SIGCONT)
    assert asker.hear().result in (ABSENT, REMOTE)
    assert serves(1)


# ---- what another process closes ---------------------------------------------------------------------------------------

@pytest.fixture
def lingering():
    """lingering(): a connection whose connector's last descriptor is closed only when the acceptor is."""
    made = []

    def make():
        conn = Connection()
        made.append(conn)
        conn.connector.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                conn.connector.send(b"x" * 65536)
        conn.connector.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
        return conn

    yield make
    for conn in made:
        conn.acceptor.close()


@contextlib.contextmanager
def _held(vmad):
    """Meanwhile vmad takes nothing, so that what is sent stays with the message."""
    vmad.proc.send_signal(signal.SIGSTOP)
    yield
    vmad.proc.send_signal(signal.SIGCONT)


def _nested(conn):
    """A socket whose queue has the connector."""
    one, other = socket.socketpair()
    with other:
        socket.send_fds(other, [b"x"], [conn.connector.fileno()])
    return one


def _in_a_socket(asker, conn):
    with _nested(conn) as one:
        asker.ask(one)


def _one_too_many(asker, conn):
    socket.send_fds(asker.sock, [request(ASK, 1)], [asker.sock.fileno()] * 2 + [conn.connector.fileno()])


def _not_read(asker, conn):
    asker.sock.send(b"garbage")
    socket.send_fds(asker.sock, [b"and more"], [conn.connector.fileno()])


def _empty_and_not_read(asker, conn):
    asker.sock.send(b"garbage")
    socket.send_fds(asker.sock, [b""], [conn.connector.fileno()])


def _children(vmad):
    return len(pathlib.Path(f"/proc/{vmad.proc.pid}/task/{vmad.proc.pid}/children").read_text(encoding="ascii").split())


@pytest.mark.parametrize("give", [_in_a_socket, _one_too_many, _not_read, _empty_and_not_read])
def test_a_child_waits(run, ask, vmad, serves, lingering, give):
    """And vmad doesn't, whatever is let go of what it was given: others are served meanwhile."""
    asker, conn = ask(), lingering()
    with _held(vmad):
        give(asker, conn)
        conn.connector.close()  # not the last one: the message has it
    run.wait_until(lambda: _children(vmad) == 1, "a child of vmad's to wait")
    asker.close()
    assert serves(2)  # the child, and what it closes
    assert _children(vmad) == 1
    conn.acceptor.close()
    run.wait_until(lambda: _children(vmad) == 0, "the child to end")
    assert serves()


def test_vmad_ends_while_a_child_waits(ask, run, vmad, lingering):
    """And who has connected hears of it; the next one takes its place."""
    asker, other, conn = ask(), ask(), lingering()
    with _held(vmad):
        _in_a_socket(asker, conn)
        conn.connector.close()
    run.wait_until(lambda: _children(vmad) == 1, "a child of vmad's to wait")
    assert vmad.proc.stop() == 0
    assert asker.is_cut() and other.is_cut()
    vmad.start()


def test_four_children_of_a_user(ask, run, vmad, serves, lingering):
    """Who gives the fourth is cut off, as are those who connect then; who had connected is served. All is closed in the end."""
    conns = [lingering() for _ in range(5)]
    servants = [ask() for _ in range(2)]
    asker = ask()
    with _held(vmad):
        for conn in conns:
            _in_a_socket(asker, conn)
            conn.connector.close()
    assert asker.is_cut()
    run.wait_until(lambda: _children(vmad) == 4, "four children of vmad's to wait")
    assert ask().is_cut()
    conn = Connection()
    assert are_joined(*introduced(servants[0], conn.connector, servants[1], conn.acceptor))
    for each in conns:
        each.acceptor.close()
    run.wait_until(lambda: _children(vmad) == 0, "the children to end")
    assert serves(2)


def _fill(idle, other):
    """vmad reads no more of what `idle` asks, as it doesn't read the answers: a turn of vmad's takes 32 questions."""
    idle.sock.setblocking(False)
    sent = before = 0
    with socket.socket() as unconnected:
        while sent == 0 or sent > before:
            before = sent
            for _ in range(sent // 32 + 2):
                other.ask(unconnected)
                assert other.hear().result == REMOTE
            with contextlib.suppress(BlockingIOError):
                while True:
                    idle.ask(unconnected, sent)
                    sent += 1


@pytest.mark.parametrize("patience", ["60000"])
def test_a_pair_that_is_not_fetched(ask, run, vmad, serves, lingering, patience):
    """One has its end, and has sent to the other's, which vmad still holds for who doesn't read."""
    del patience
    idle, other, conn, late = ask(), ask(), Connection(), lingering()
    idle.ask(conn.connector, 100000)
    _fill(idle, other)
    other.ask(conn.acceptor)
    met = other.hear()
    assert met.result == MET
    socket.send_fds(met.sock, [b"x"], [late.connector.fileno()])
    late.connector.close()
    met.sock.close()
    idle.close()
    run.wait_until(lambda: _children(vmad) > 0, "a child of vmad's to wait")
    late.acceptor.close()
    run.wait_until(lambda: _children(vmad) == 0, "the child to end")
    assert serves(1)


# ---- where there is no broker --------------------------------------------------------------------------------------

@pytest.mark.parametrize("options, told", [
    (["--cgroup", "/proc/none"], "there is no broker: /proc/none: No such file"),
    (["--cgroup", "/proc"], "there is no broker: /proc: the program can't be attached"),
    (["--config", "/proc/none"], "there is no broker: /proc/none: No such file"),
    (["--config", "bad.conf"], "there is no broker: bad.conf:2: expected \"allow\" or \"deny\", found \"permit\""),
    (["--broker", "/proc/none/broker"], "there is no broker: /proc/none/broker"),
])
def test_all_else_goes_on(run, vmad, options, told):
    (run.work / "bad.conf").write_text("# mine\nbroker permit user * with user *\n", encoding="utf-8")
    other = Guardian(run, vmad.tree, "--broker", run.work / "other", "--config", vmad.config, "--cgroup", vmad.tree, *options)
    run.wait_until(lambda: "no broker" in other.proc.stderr(), "vmad to say so")
    assert told in other.proc.stderr()
    other.connect().close()
    assert other.proc.stop() == 0


class Guardian(Vmad):
    """A guardian that would be a broker too."""

    def __init__(self, run, tree, *options):
        super().__init__(run, *IN_TREE, tree)
        assert self.proc.stop() == 0
        self.proc = run.start("guardian", [*IN_TREE, tree, build.build_dir() / "vmad", "--console", "--agent-socket", "", "--socket",
                                           self.path, *options])
        self.says("vmad listens at")


def test_another_has_the_path(run, vmad):
    second = run.start("second", vmad.command())
    run.wait_until(lambda: "another vmad listens there" in second.stderr(), "the second to say so")
    assert "there is no broker" in second.stderr()
    assert second.stop() == 0


def test_without_rights(run, vmad):
    """Another user's vmad, with a tree that it may open."""
    run.work.chmod(0o777)
    command = vmad.command("--broker", run.work / "his")
    where = command.index(build.build_dir() / "vmad")
    his = run.start("his", [*command[:where], "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command[where:]])
    run.wait_until(lambda: "there is no broker: " in his.stderr(), "vmad to say so")
    assert "not permitted" in his.stderr()
    assert not (run.work / "his").exists()
    assert his.stop() == 0


@pytest.mark.parametrize("options, told", [
    (["--broker-connections", "10"], "--broker-connections is \"10\", expected a number from 1024 to 4194304"),
    (["--broker-patience", "0"], "--broker-patience is \"0\", expected a number from 1 to 60000"),
])
def test_options(run, options, told):
    proc = run.start("vmad", [build.build_dir() / "vmad", *options])
    assert proc.fails() == 2
    assert told in proc.stderr()
