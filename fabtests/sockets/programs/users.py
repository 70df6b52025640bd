# SPDX-License-Identifier: BSD-2-Clause
"""users.py serve ADDRESS PORT | ask ADDRESS PORT [SOURCE] | slow ADDRESS PORT | peek ADDRESS PORT | hold NAME...: the two ends of a connection
whose processes are of different users. Each byte is looked at, each wait has an end.

serve: sends back what comes, to one peer after the other, until one says "last".
ask: as many lines as take both ends past the point where they are accelerated (FABTEST_LIFT: until there is a line of input), by SOURCE if there is one.
slow: the same, but says its SO_COOKIE when it is connected, and goes on with the next line of its input.
peek: looks at each answer before it reads it.
hold: has abstract names, until its input ends."""

import contextlib
import os
import select
import socket
import sys
import time

LINES = 2000
PATIENCE = 60 * float(os.environ.get("FABTESTS_PATIENCE", "1"))  # seconds
SO_COOKIE = 57


def line(number):
    return f"{number:>15}\n".encode()


def exactly(sock, size, flags=0):
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data), flags)
        assert more, f"the end after {len(data)} bytes"
        data += more
    return data


def ask_all(sock, count, peek=False):
    for number in range(count):
        sock.sendall(line(number))
        if peek:
            seen = sock.recv(16, socket.MSG_PEEK)
            assert line(number).startswith(seen) and seen, seen
        assert exactly(sock, 16) == line(number)


def is_told():
    return bool(select.select([sys.stdin], [], [], 0)[0])


def connected(address, port, source=None):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.settimeout(PATIENCE)
    if source:
        sock.bind((source, 0))
    sock.connect((address, int(port)))
    return sock


def serve(address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, int(port)), family=family) as listener:
        print("ready", flush=True)
        last = False
        while not last:
            with listener.accept()[0] as sock, contextlib.suppress(ConnectionResetError, BrokenPipeError):  # who was killed
                while data := sock.recv(65536):
                    last |= data == b"last"
                    sock.sendall(data)


def ask(address, port, source=None, peek=False, slow=False):
    with connected(address, port, source) as sock:
        if slow:
            print("cookie", int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8), "little"), flush=True)
            sys.stdin.readline()
        ask_all(sock, LINES, peek)
        until = time.monotonic() + PATIENCE
        while os.environ.get("FABTEST_LIFT") == "1" and not is_told() and time.monotonic() < until:
            ask_all(sock, LINES // 10)
        sock.sendall(b"last")
        assert exactly(sock, 4) == b"last"


def hold(*names):
    kept = []
    for name in names:
        kept.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        kept[-1].bind("\0" + name)
        kept[-1].listen(64)
    print("holds", flush=True)
    sys.stdin.readline()


def main(what, *args):
    if what == "slow":
        ask(*args, slow=True)
    elif what == "peek":
        ask(*args, peek=True)
    else:
        {"serve": serve, "ask": ask, "hold": hold}[what](*args)


if __name__ == "__main__":
    main(*sys.argv[1:])
