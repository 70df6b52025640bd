# SPDX-License-Identifier: BSD-2-Clause
"""containers.py serve KIND PORT | ask KIND PORT [stays] | enter FOLDER | forks PORT ROUNDS [no-proc] | passes FIFO: what processes of several namespaces do with sockets. Each
byte is looked at, each wait has an end.

serve, ask: datagrams or a stream, as many lines as take both ends past the point where they are accelerated. stays: the server does.
enter: connections within the process, before and after it goes to a mount namespace with an empty directory at FOLDER.
forks: a connection to "serve stream" that a child of another pid namespace uses in turns with its parent; no-proc: where neither has /proc.
passes: a connection with unread bytes is in a message until FIFO is opened by a writer; then the bytes are read."""

import ctypes
import os
import pathlib
import socket
import sys
import time

CLONE_NEWNS, CLONE_NEWPID = 0x20000, 0x20000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
LINES = 2000
PATIENCE = 60 * float(os.environ.get("FABTESTS_PATIENCE", "1"))  # seconds

_libc = ctypes.CDLL(None, use_errno=True)


def must(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def line(number):
    return f"{number:>15}\n".encode()


def exactly(sock, size):
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more, f"the end after {len(data)} bytes"
        data += more
    return data


def ask(sock, first, count):
    for number in range(first, first + count):
        sock.sendall(line(number))
        answer = sock.recv(100) if sock.type == socket.SOCK_DGRAM else exactly(sock, 16)
        assert answer == line(number), f"{answer!r} instead of {number}"


def serve(kind, port):
    if kind == "datagrams":
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", port))
        print("ready", flush=True)
        while True:
            data, sender = sock.recvfrom(100)
            if data == b"end":
                return
            sock.sendto(data, sender)
    listener = socket.create_server(("127.0.0.1", port))
    print("ready", flush=True)
    sock = listener.accept()[0]
    while data := sock.recv(100):
        sock.sendall(data)


def both_accelerated():
    """What the logs say; where FABTEST_LIFT is 1, as everywhere."""
    logs = pathlib.Path(os.environ["VMA_LOG_FILE"]).parent.glob("*.log")
    return os.environ.get("FABTEST_LIFT") != "1" or sum(": accelerated: " in log.read_text() for log in logs) >= 2


def ask_all(kind, port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "datagrams" else socket.SOCK_STREAM)
    sock.settimeout(PATIENCE)
    sock.connect(("127.0.0.1", port))
    until = time.monotonic() + PATIENCE
    ask(sock, 0, LINES)
    while not both_accelerated() and time.monotonic() < until:
        ask(sock, 0, LINES // 10)
    if kind == "datagrams" and "stays" not in sys.argv:
        sock.send(b"end")
    sock.close()


def pairs():
    """One of each kind."""
    listener = socket.create_server(("127.0.0.1", 0))
    stream = socket.create_connection(listener.getsockname())
    yield stream, listener.accept()[0]
    one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    for sock in one, other:
        sock.bind(("127.0.0.1", 0))
    one.connect(other.getsockname())
    other.connect(one.getsockname())
    yield one, other


def talk(one, other, count):
    for sock in one, other:
        sock.settimeout(PATIENCE)
    for number in range(count):
        for sender, receiver in (one, other), (other, one):
            sender.sendall(line(number))
            assert receiver.recv(100) == line(number)


def enter(folder):
    before = list(pairs())
    for one, other in before:
        talk(one, other, LINES)
    must(_libc.unshare(CLONE_NEWNS))
    must(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    must(_libc.mount(b"none", folder.encode(), b"tmpfs", 0, b"mode=0700"))
    for one, other in [*before, *pairs(), *pairs()]:
        talk(one, other, LINES)


def forks(port, rounds, no_proc):
    if no_proc:
        must(_libc.unshare(CLONE_NEWNS))
        must(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
        must(_libc.mount(b"none", b"/proc", b"tmpfs", 0, None))
    sock = socket.create_connection(("127.0.0.1", port))
    sock.settimeout(PATIENCE)
    ask(sock, 0, LINES)
    must(_libc.unshare(CLONE_NEWPID))
    mine, childs = socket.socketpair()
    child = os.fork()
    turn = mine if child else childs
    turn.settimeout(PATIENCE)
    for number in range(rounds):  # the child's come between its parent's
        if not child:
            assert turn.recv(1) == b"x"
        ask(sock, number * LINES, LINES)
        turn.send(b"x")
        if child:
            assert turn.recv(1) == b"x"
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    ask(sock, 0, LINES)


def passes(fifo):
    one, other = next(pairs())
    talk(one, other, LINES)
    one.sendall(bytes(range(256)))
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    socket.send_fds(mine, [b"x"], [one.fileno(), other.fileno()])  # the first is of the kernel then, and sends nothing again
    other.close()
    print("passed", flush=True)
    with open(fifo, "rb"):
        received = socket.socket(fileno=socket.recv_fds(theirs, 1, 2)[1][1])
    received.settimeout(PATIENCE)
    assert exactly(received, 256) == bytes(range(256))
    talk(one, received, 10)


if __name__ == "__main__":
    {"serve": lambda: serve(sys.argv[2], int(sys.argv[3])),
     "ask": lambda: ask_all(sys.argv[2], int(sys.argv[3])),
     "enter": lambda: enter(sys.argv[2]),
     "passes": lambda: passes(sys.argv[2]),
     "forks": lambda: forks(int(sys.argv[2]), int(sys.argv[3]), "no-proc" in sys.argv)}[sys.argv[1]]()
