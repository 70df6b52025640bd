# SPDX-License-Identifier: BSD-2-Clause
"""users.py serve|crowd ADDRESS PORT | ask ADDRESS PORT [SOURCE] | slow|peek|fill ADDRESS PORT | hold NAME... | ahead PORT: the two ends of a
connection whose processes are of different users, and who wants to be in their way. Each byte is looked at, each wait has an end.

serve: sends back what comes, to one peer after the other, until one says "last".
crowd: to all at once.
ask: as many lines as take both ends past the point where they are accelerated (FABTEST_LIFT: until there is a line of input), by SOURCE if there is one.
slow: the same, but says at which names the ends could meet when it is connected, and goes on with the next line of its input.
peek: looks at each answer before it reads it.
hold: has abstract names, and listens at every second one, until its input ends.
ahead: has those of connections to PORT that are yet to come, as far as they can be known.
fill: has connections without the library, and keeps whoever has it waiting at their names."""

import contextlib
import os
import resource
import select
import selectors
import socket
import sys
import time

LINES = 2000
PATIENCE = 60 * float(os.environ.get("FABTESTS_PATIENCE", "1"))  # seconds
SO_COOKIE = 57
NAMES = 8  # of a connection
PLACES = 32  # of meetings with one user, at a time
COOKIES = 4096  # that a processor takes for itself at a time
TO_COME = 700  # connections whose names somebody has, or fewer where he may not have as many descriptors


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


def cookie_of(sock):
    return int.from_bytes(sock.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8), "little")


def name_of(cookie, inode, source, target, number):
    return f"vma4/t{cookie:x}.{inode:x}.{source}.{target}.{number}"


def names_of(sock):
    """At which the connector's end waits."""
    numbers = cookie_of(sock), os.fstat(sock.fileno()).st_ino, sock.getsockname()[1], sock.getpeername()[1]
    return [name_of(*numbers, number) for number in range(NAMES)]


def holder_of(name):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.bind("\0" + name)
    return sock


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


def crowd(address, port):
    with socket.create_server((address, int(port))) as listener, selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        print("ready", flush=True)
        last = False
        while not last:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    selector.register(listener.accept()[0], selectors.EVENT_READ)
                    continue
                data = b""
                with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                    data = key.fileobj.recv(65536)
                    key.fileobj.sendall(data)
                last |= data == b"last"
                if not data:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


def ask(address, port, source=None, peek=False, slow=False):
    with connected(address, port, source) as sock:
        if slow:
            print("names", *names_of(sock), flush=True)
            sys.stdin.readline()
        ask_all(sock, LINES, peek)
        until = time.monotonic() + PATIENCE
        while os.environ.get("FABTEST_LIFT") == "1" and not is_told() and time.monotonic() < until:
            ask_all(sock, LINES // 10)
        sock.sendall(b"last")
        assert exactly(sock, 4) == b"last"


def hold(*names):
    kept = [holder_of(name) for name in names]
    for sock in kept[1::2]:
        sock.listen(64)
    print("holds", flush=True)
    sys.stdin.readline()


def ahead(port):
    """Cookies are counters, one for each processor. The names are those of the library that had no ports in them, and of its follower."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    processors = os.sched_getaffinity(0)
    to_come = min(TO_COME, (most - 100) // (2 * NAMES * len(processors)))
    kept = []
    for processor in processors:
        os.sched_setaffinity(0, [processor])
        cookie = 0
        while cookie % COOKIES == 0 or cookie % COOKIES > COOKIES - to_come:
            with socket.socket() as sock:
                cookie, inode = cookie_of(sock), os.fstat(sock.fileno()).st_ino
        for later in range(to_come):
            for number in range(NAMES):
                kept.append(holder_of(f"vma1/t{cookie + later:x}.{number}"))
                kept.append(holder_of(name_of(cookie + later, inode + later, 32768, port, number)))
    print("holds", flush=True)
    sys.stdin.readline()


class Filler:
    """A connection at whose name somebody listens, takes whoever comes, and says nothing."""

    def __init__(self, address, port):
        self.sock = connected(address, port)
        self.listener = holder_of(names_of(self.sock)[0])
        self.listener.listen(1)
        self.listener.setblocking(False)
        self.link = None
        self.asked = 0

    def is_met(self):
        """Whether somebody waits for it. Else it is used until somebody does."""
        if self.link is None:
            ask_all(self.sock, 1)
            self.asked += 1
            with contextlib.suppress(BlockingIOError):
                self.link = self.listener.accept()[0]
                self.link.setblocking(False)
        return self.link is not None

    def is_over(self):
        """Who waited has gone, or nobody has come at several of those calls at which one may."""
        if self.link is None:
            return self.asked > 64
        with contextlib.suppress(BlockingIOError):
            while self.link.recv(4096):
                pass
            return True
        return False

    def close(self):
        for sock in self.sock, self.listener, self.link:
            if sock is not None:
                sock.close()


def fill(address, port):
    fillers = []
    said = False
    while not is_told():
        fillers += [Filler(address, port) for _ in range(2 * PLACES - len(fillers))]
        met = sum(filler.is_met() for filler in fillers)
        if met >= PLACES and not said:
            print("holds", flush=True)
            said = True
        for filler in [one for one in fillers if one.is_over()]:
            filler.close()
            fillers.remove(filler)


def main(what, *args):
    if what == "slow":
        ask(*args, slow=True)
    elif what == "peek":
        ask(*args, peek=True)
    else:
        {"serve": serve, "crowd": crowd, "ask": ask, "hold": hold, "ahead": ahead, "fill": fill}[what](*args)


if __name__ == "__main__":
    main(*sys.argv[1:])
