# SPDX-License-Identifier: BSD-2-Clause
"""A client whose connection an Ethernet port carries: python3 port_client.py WHAT HOST PORT. WHAT is `echo` (asks until
it is told to end by an error or the end of the stream, which it prints) or `forking` (a stream both ways, with
a child each time that it was offloaded)."""

import itertools
import os
import select
import socket
import sys

CHILDREN = 6
AHEAD = 1 << 20


def echo(sock):
    number = 0
    try:
        while True:
            ask = b"%8d" % number
            sock.sendall(ask)
            got = b""
            while len(got) < len(ask):
                piece = sock.recv(len(ask) - len(got))
                if not piece:
                    print("end", flush=True)
                    return
                got += piece
            assert got == ask
            number += 1
            if number == 1000:
                print("going", flush=True)
    except OSError as error:
        print(f"error {error.errno}", flush=True)


def offloaded() -> int:
    """How often the library's log says that a connection left the kernel."""
    with open(os.environ["VMA_LOG_FILE"].replace("%d", str(os.getpid())), encoding="utf-8") as log:
        return log.read().count("accelerated: port")


def forking(sock):
    """Each time that the connection has left the kernel a child brings it back; what was sent comes again, byte for byte."""
    block = bytes(range(256)) * 64
    forked, got, sent = 0, 0, 0
    sock.setblocking(False)
    for number in itertools.count():
        wants = forked < CHILDREN and sent - got < AHEAD
        readable, writable, _ = select.select([sock], [sock] if wants else [], [])
        if writable:
            sent += sock.send((block + block)[sent % len(block):][:len(block)])
        if readable:
            piece = sock.recv(8192)
            if not piece:
                break
            assert piece == (block + block)[got % len(block):][:len(piece)], got
            got += len(piece)
        if number % 32 == 0 and forked < CHILDREN and offloaded() > forked:
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            forked += 1
            if forked == CHILDREN:
                sock.shutdown(socket.SHUT_WR)
    assert got == sent, (got, sent)
    print("offloaded", offloaded())


connection = socket.create_connection((sys.argv[2], int(sys.argv[3])))
if "USER_TIMEOUT" in os.environ:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(os.environ["USER_TIMEOUT"]))
if sys.argv[1] == "echo":
    echo(connection)
else:
    forking(connection)
