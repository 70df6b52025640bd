# SPDX-License-Identifier: BSD-2-Clause
"""liars.py visit HONEST LIAR | asks PORT WHAT QUOTA | listens PORT WHAT QUOTA: who lies to another user, and to whom.

visit: one connection to HONEST, each byte of which is looked at, and one after the other to LIAR, where anything may come; until there is a line of
    input.
asks, listens: has liar.so, and lies in that role until QUOTA is reached, or nobody wants to have to do with its user any more. WHAT: words, written so
    often each; messages, so many of each of the six kinds, with commas; fds, so many that bring one which they may not; meets, no lies
    but so many that are met."""

import contextlib
import ctypes
import os
import pathlib
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import users  # noqa: E402

REQUEST, ACCEPT = 2, 3
MESSAGES = range(1, 7)
EXCHANGES = {"words": 16, "messages": 24, "fds": 24, "meets": 24}  # after which a liar takes another connection
UNTIL_MET = 256  # exchanges
UNMET = 24  # connections, one after the other, behind which the other side takes this user for no guest any more
BURST = 16 if "LIAR_EACH" in os.environ else 8  # words that change while a line is under way: of all of them most do nothing
PACE = 0.05 * float(os.environ.get("FABTESTS_PATIENCE", "1"))  # seconds after which a liar's stream is taken for one that has stopped


class Liar:
    def __init__(self, what, role, quota):
        self.library = ctypes.CDLL(None)
        for name in "liar_segments", "liar_spoil", "liar_written":
            getattr(self.library, name).restype = ctypes.c_ulong
        self.what, self.quota = what, [int(word) for word in quota.split(",")]
        self.own = ACCEPT if role == "asks" else REQUEST  # what it sends to be met
        self.rounds = self.connections = self.spoiled = self.unmet = self.since_met = 0
        self.lies = self._lies()

    def _lies(self):
        return [self.library.liar_lies(kind) for kind in MESSAGES]

    def is_done(self):
        return self.unmet >= UNMET or self._has_all()

    def _has_all(self):
        if self.what == "words":
            return self.rounds >= self.quota[0]
        if self.what == "messages":
            return all(lies >= quota for lies, quota in zip(self._lies(), self.quota))
        if self.what == "meets":
            return self.spoiled >= self.quota[0]
        return self.library.liar_lies(self.own) >= self.quota[0]

    def begin(self):
        """What was told to somebody who doesn't listen any more doesn't count."""
        if self.since_met or self.connections == 0:
            self.unmet, self.lies = 0, self._lies()
        else:
            self.unmet += 1
        self.connections += 1
        self.before = self.library.liar_segments()
        self.since_met = self.exchanges = 0

    def goes_on(self):
        """Between two lines of a connection."""
        self.exchanges += 1
        met = self.library.liar_segments() > self.before
        self.since_met += met
        self.spoiled += self.since_met == 1
        if met and self.what == "words" and self.since_met > 1:
            self.rounds = self.library.liar_spoil(BURST)
        most = EXCHANGES[self.what]
        return self.since_met < most and self.exchanges < (UNTIL_MET if self.what == "words" else most) and (self.what == "fds" or not self.is_done())

    def tell(self):
        lies = self._lies() if self._has_all() else self.lies
        print("connections", self.connections, "met", self.spoiled, "rounds", self.rounds, "words", self.library.liar_written(), "lies", *lies, flush=True)


def asks(port, what, quota):
    liar = Liar(what, "asks", quota)
    while not liar.is_done():
        liar.begin()
        with contextlib.suppress(OSError), users.connected("127.0.0.1", port) as sock:
            sock.settimeout(PACE)
            sock.sendall(users.line(0))
            while sock.recv(65536) and liar.goes_on():
                sock.sendall(users.line(0))
    liar.tell()


def listens(port, what, quota):
    liar = Liar(what, "listens", quota)
    with socket.create_server(("127.0.0.1", int(port))) as listener:
        while not liar.is_done():
            liar.begin()
            with contextlib.suppress(OSError), listener.accept()[0] as sock:
                sock.settimeout(PACE)
                while (data := sock.recv(65536)) and liar.goes_on():
                    sock.sendall(data)
    liar.tell()


def visit(honest, liar):
    with users.connected("127.0.0.1", honest) as sock:
        while not users.is_told():
            users.ask_all(sock, 20)
            with contextlib.suppress(OSError), users.connected("127.0.0.1", liar) as other:
                other.settimeout(2 * PACE)
                other.sendall(users.line(0))
                while other.recv(65536):
                    other.sendall(users.line(0))
        users.ask_all(sock, users.LINES)
        sock.sendall(b"last")
        assert users.exactly(sock, 4) == b"last"


if __name__ == "__main__":
    {"asks": asks, "listens": listens, "visit": visit}[sys.argv[1]](*sys.argv[2:])
