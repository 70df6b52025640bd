# SPDX-License-Identifier: BSD-2-Clause
"""stopped.py ADDRESS PORT idle | unread | poll | select | epoll: a client of users.py's server, who is stopped or ends. It goes on with each line
of its input, and says where it is.

idle: has nothing under way, and says what it hears at last.
unread: the same, but sends what nobody reads first.
poll, select, epoll: sends as long as that call says that there is room, and then gets back what it has sent."""

import select
import sys

import users

CHUNK = 4096
BRIEFLY = 0.2  # seconds, many times what it takes the library to look around


def say(*words):
    print(*words, flush=True)


def outcome(sock):
    try:
        data = sock.recv(1)
        return f"{len(data)} bytes"
    except OSError as error:
        return type(error).__name__


def pattern(place, size):
    """Of a stream whose bytes tell where they are."""
    return b"".join(number.to_bytes(8, "big") for number in range(place // 8, (place + size) // 8))


def by_poll(sock):
    waiter = select.poll()
    waiter.register(sock, select.POLLOUT)
    return lambda: waiter.poll(BRIEFLY * 1000)


def by_select(sock):
    return lambda: select.select([], [sock], [], BRIEFLY)[1]


def by_epoll(sock):
    waiter = select.epoll()
    waiter.register(sock, select.EPOLLOUT)
    return lambda: waiter.poll(BRIEFLY)


WAYS = {"poll": by_poll, "select": by_select, "epoll": by_epoll}


def fill(sock, way):
    """Sends until no room comes. Bytes sent. Who is told of room finds some, at the latest the third time."""
    has_room = WAYS[way](sock)
    sock.setblocking(False)
    sent, refused, piece = 0, 0, b""
    while True:
        piece = piece or pattern(sent, CHUNK)
        try:
            number = sock.send(piece)
        except BlockingIOError:
            if not has_room():
                return sent
            refused += 1
            assert refused < 3, "told of room that isn't there"
            continue
        sent, piece, refused = sent + number, piece[number:], 0


def full(sock, way):
    sent = fill(sock, way)
    say("full", sent)
    sys.stdin.readline()
    sock.setblocking(True)
    sock.settimeout(users.PATIENCE)
    heard = 0
    while heard < sent:
        data = sock.recv(65536)
        assert data and data == pattern(heard // 8 * 8, len(data) + 16)[heard % 8:heard % 8 + len(data)], heard
        heard += len(data)
    say("all came back")
    sock.sendall(b"last")
    assert users.exactly(sock, 4) == b"last"


def main(address, port, what):
    with users.connected(address, port) as sock:
        while not users.is_told():
            users.ask_all(sock, users.LINES // 10)
        sys.stdin.readline()
        say("goes on")
        sys.stdin.readline()
        if what in WAYS:
            full(sock, what)
            return
        if what == "unread":
            sock.sendall(users.line(1))
        say("waits")
        say("heard", outcome(sock))


if __name__ == "__main__":
    main(*sys.argv[1:])
