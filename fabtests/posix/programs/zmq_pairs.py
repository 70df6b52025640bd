# SPDX-License-Identifier: BSD-2-Clause
"""ZeroMQ by python3-zmq: one side of several patterns. Usage: zmq_pairs.py server|client PATTERN PORT TIMES. What is asked and answered
is so many times as long."""

import hashlib
import sys

import zmq

MESSAGES = 3000


def message(number):
    """Small ones, and large ones between."""
    return b"%06d" % number + bytes([number % 251]) * (200_000 if number % 500 == 499 else number % 700)


def digest(messages):
    total = hashlib.sha256()
    count = 0
    for one in messages:
        total.update(one)
        count += 1
    return f"{count} {total.hexdigest()}".encode()


WANTED = digest(map(message, range(MESSAGES)))


def server(pattern, make, where, times):
    if pattern == "request":
        with make(zmq.REP) as s:
            s.bind(where)
            while (got := s.recv()) != b"end":
                s.send(got)
            s.send(b"end")
    elif pattern == "push":
        with make(zmq.PULL) as s:
            s.bind(where)
            assert digest(s.recv() for _ in range(MESSAGES)) == WANTED
    elif pattern == "publish":
        with make(zmq.XPUB) as s:
            s.setsockopt(zmq.XPUB_VERBOSE, 1)  # each subscription is told
            s.bind(where)
            for _ in range(3):
                assert s.recv() == b"\x01"
            for number in range(MESSAGES):
                s.send(message(number))
    elif pattern == "router":
        with make(zmq.ROUTER) as s:
            s.bind(where)
            for _ in range(4 * 500 * times):
                s.send_multipart(s.recv_multipart())


def client(pattern, make, where, times):
    if pattern == "request":
        with make(zmq.REQ) as s:
            s.connect(where)
            for number in range(600 * times):
                s.send(message(number))
                assert s.recv() == message(number)
            s.send(b"end")
            assert s.recv() == b"end"
    elif pattern == "push":
        with make(zmq.PUSH) as s:
            s.connect(where)
            for number in range(MESSAGES):
                s.send(message(number))
    elif pattern == "publish":
        subscribers = [make(zmq.SUB) for _ in range(3)]
        for s in subscribers:
            s.connect(where)
            s.subscribe(b"")
        for s in subscribers:
            with s:
                assert digest(s.recv() for _ in range(MESSAGES)) == WANTED
    elif pattern == "router":
        dealers = [make(zmq.DEALER) for _ in range(4)]
        for s in dealers:
            s.connect(where)
        for number in range(500 * times):
            for s in dealers:
                s.send_multipart([message(number), b"", b"%d" % number])
            for s in dealers:
                assert s.recv_multipart() == [message(number), b"", b"%d" % number]
        for s in dealers:
            s.close()


def main():
    role, pattern, port, times = sys.argv[1:]
    context = zmq.Context()

    def make(kind):
        s = context.socket(kind)
        s.rcvtimeo = s.sndtimeo = 40_000
        s.rcvhwm = s.sndhwm = 100_000
        return s

    (server if role == "server" else client)(pattern, make, f"tcp://127.0.0.1:{port}", int(times))
    context.term()
    print("all as sent")


if __name__ == "__main__":
    main()
