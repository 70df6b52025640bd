# SPDX-License-Identifier: BSD-2-Clause
"""vmad's broker: a running one, and processes that ask it. Run as a program it is such a process, at one end of a connection:
broker.py BROKER connect|accept ADDRESS PORT. It prints what it heard, {} if nobody was introduced, after it has exchanged a word with
the other over the pair and over the connection."""

import dataclasses
import json
import pathlib
import socket
import struct
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # for who runs it as a program

from lib import patience  # noqa: E402

ASK, CANCEL, ANSWER = 1, 2, 3
MET, ABSENT, REMOTE, REFUSED, BUSY, NOT_TCP, AGAIN, OTHER_VERSION = range(8)
CONNECTOR, ACCEPTOR = 0, 1
MAGIC, VERSION = 0x564D4142, 1
SO_COOKIE, SO_NETNS_COOKIE = 57, 71
_HEADER, _ANSWER = "=IHHII", "=IHHIIIIIIiIQQQ"


def request(kind: int, number: int, magic: int = MAGIC, version: int = VERSION, length: int = 16) -> bytes:
    return struct.pack(_HEADER, magic, version, length, kind, number)


def network_of(sock: socket.socket) -> int:
    return struct.unpack("=Q", sock.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8))[0]


@dataclasses.dataclass
class Answer:
    number: int
    result: int
    role: int
    user: int
    group: int
    process: int
    network: int
    own_network: int
    pair: int
    cgroup: str
    version: int = VERSION
    sock: socket.socket | None = None  # of the pair


class Asker:
    """A connection to the broker."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(str(path))
        self.sock.settimeout(patience.seconds())

    def ask(self, sock, number: int = 1):
        socket.send_fds(self.sock, [request(ASK, number)], [sock.fileno()])

    def cancel(self, number: int):
        self.sock.send(request(CANCEL, number))

    def hear(self) -> Answer:
        data, fds, flags, _ = socket.recv_fds(self.sock, 1000, 4)
        assert len(data) >= 64 and not flags & socket.MSG_CTRUNC, (data, flags)
        magic, version, length, kind, number, result, role, user, group, process, size, network, own, pair = struct.unpack_from(
            _ANSWER, data)
        assert (magic, kind, length, len(data)) == (MAGIC, ANSWER, len(data), 64 + size), data
        assert len(fds) == (result == MET), (fds, result)
        if result != MET:
            assert not any(data[20:]), data
        sock = socket.socket(fileno=fds[0]) if fds else None
        if sock:
            sock.settimeout(patience.seconds())
        return Answer(number, result, role, user, group, process, network, own, pair, data[64:].decode(), version, sock)

    def is_cut(self) -> bool:
        """Whether vmad hangs up, perhaps after some answers."""
        try:
            while self.sock.recv(1000):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def inside(host, call):
    """What `call` returns in a thread in that network namespace: sockets stay there."""
    made = []

    def run():
        host.enter()
        made.append(call())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return made[0]


class Connection:
    """Both ends of one, the connector's and the acceptor's; in one network namespace or two."""

    def __init__(self, address="127.0.0.1", family=socket.AF_INET, listen_at=None, connect_in=None, accept_in=None):
        def listen():
            listener = socket.socket(family)
            listener.bind((listen_at or address, 0))
            listener.listen()
            return listener

        with (inside(accept_in, listen) if accept_in else listen()) as listener:
            target = (address, listener.getsockname()[1])

            def connect():
                return socket.create_connection(target, patience.seconds())

            self.connector = inside(connect_in, connect) if connect_in else connect()
            self.acceptor = listener.accept()[0]

    def close(self):
        self.connector.close()
        self.acceptor.close()


def introduced(a: Asker, one, b: Asker, other) -> tuple[Answer, Answer]:
    """Both ask, and meet."""
    a.ask(one, 1)
    b.ask(other, 2)
    heard = a.hear(), b.hear()
    assert [answer.result for answer in heard] == [MET, MET], heard
    assert [answer.number for answer in heard] == [1, 2]
    assert heard[0].pair == heard[1].pair
    assert heard[0].role != heard[1].role
    return heard


def are_joined(one: Answer, other: Answer) -> bool:
    one.sock.send(b"to the other")
    other.sock.send(b"to the one")
    return other.sock.recv(100) == b"to the other" and one.sock.recv(100) == b"to the one"


def _end(path, role, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if role == "connect":
        sock = socket.create_connection((address, port), patience.seconds())
    else:
        with socket.socket(family) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen()
            print("listens", flush=True)
            sock = listener.accept()[0]
    with sock, Asker(path) as asker:
        asker.ask(sock)
        heard = asker.hear()
        said = dataclasses.asdict(dataclasses.replace(heard, sock=None))
        if heard.result == MET:
            heard.sock.send(role.encode())
            said["word"] = heard.sock.recv(100).decode()
            heard.sock.close()
        sock.send(role.encode())
        said["sent"] = sock.recv(100).decode()
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    _end(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
