# SPDX-License-Identifier: BSD-2-Clause
"""A client whose connection an Ethernet port carries: python3 port_client.py WHAT HOST PORT [SIZE]. WHAT is `echo` (asks until
it is told to end by an error or the end of the stream, which it prints) or `forking` (a stream both ways, with a child every so
often)."""

import hashlib
import os
import socket
import sys
import threading

CHILDREN = 6


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


def forking(sock, size):
    block = bytes(range(256)) * 64
    sender = threading.Thread(target=lambda: [sock.sendall(block) for _ in range(size // len(block))])
    sender.start()
    digest, got, forked = hashlib.sha256(), 0, 0
    while piece := sock.recv(8192):
        digest.update(piece)
        got += len(piece)
        if got > (forked + 1) * size // (CHILDREN + 1):
            forked += 1
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
    sender.join()
    sock.shutdown(socket.SHUT_WR)
    print(got, digest.hexdigest())


connection = socket.create_connection((sys.argv[2], int(sys.argv[3])))
if sys.argv[1] == "echo":
    echo(connection)
else:
    forking(connection, int(sys.argv[4]))
