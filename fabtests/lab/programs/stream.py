#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""One end of a TCP connection that sends and checks bytes whose values follow from their positions.

Prints how each direction ended: `sent N end` or `received N ECONNRESET`, and how long it took until all had left. A wrong
byte is exit status 3. SIGUSR1 makes it fork, SIGUSR2 send no more."""

import argparse
import errno
import fcntl
import os
import random
import signal
import socket
import struct
import sys
import termios
import threading
import time

LENGTH = 1048573  # a prime: bytes at another place would not fit
TELL_EACH = 1 << 18  # bytes received


def pattern(listener: bool) -> bytes:
    """What that side sends, over and over."""
    return random.Random(1 + listener).randbytes(LENGTH)


def how(error: OSError | None) -> str:
    return "end" if error is None else errno.errorcode[error.errno]


def fork_once(*_):
    """The child ends at once; but for a moment the socket is of two processes."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def wait_until_left(connection):
    """Until the other side's host has all. Its buffer, or the ring, may hold any part of it, and so may ours before."""
    while struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, b"\0" * 4))[0] != 0:
        time.sleep(0.001)  # nothing tells of it


enough = threading.Event()


def source(connection, block: bytes, args):
    at, error = 0, None
    doubled = memoryview(block + block)
    begin = time.monotonic()
    try:
        while at < args.bytes and not enough.is_set():
            size = min(args.piece, args.bytes - at, LENGTH)
            at += connection.send(doubled[at % LENGTH:at % LENGTH + size])
        if args.rate:
            wait_until_left(connection)
        took = time.monotonic() - begin
        connection.shutdown(socket.SHUT_WR)
        print(f"leaving took {took:.3f} s", flush=True)
    except OSError as e:
        error = e
    print("sent", at, how(error), flush=True)


def sink(connection, block: bytes, args):
    at, error, told = 0, None, 0
    doubled = block + block
    try:
        while data := connection.recv(args.piece):
            start = at % LENGTH
            if data != doubled[start:start + len(data)]:
                print("wrong byte after", at, flush=True)
                os._exit(3)
            at += len(data)
            if at >= told + TELL_EACH:
                told = at
                print("at", at, flush=True)
    except OSError as e:
        error = e
    print("received", at, how(error), flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["listen", "connect"])
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("what", choices=["sink", "both"], help="receive only, or send too")
    parser.add_argument("bytes", type=int, help="to send, before it shuts its side down")
    parser.add_argument("piece", type=int, help="bytes of one call")
    parser.add_argument("--rate", type=int, help="SO_MAX_PACING_RATE, bytes a second")
    return parser.parse_args()


def connected(args):
    if args.role == "connect":
        return socket.create_connection((args.address, args.port))
    family = socket.AF_INET6 if ":" in args.address else socket.AF_INET
    with socket.create_server((args.address, args.port), family=family) as listener:
        return listener.accept()[0]


def main():
    args = arguments()
    signal.signal(signal.SIGUSR1, fork_once)
    signal.signal(signal.SIGUSR2, lambda *_: enough.set())
    listens = args.role == "listen"
    connection = connected(args)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if args.rate:
        so_max_pacing_rate = 47  # not in Python's module
        connection.setsockopt(socket.SOL_SOCKET, so_max_pacing_rate, args.rate)
    sender = threading.Thread(target=source, args=(connection, pattern(listens), args))
    if args.what == "both":
        sender.start()
    sink(connection, pattern(not listens), args)
    if args.what == "both":
        sender.join()
    connection.close()


sys.exit(main())
