# SPDX-License-Identifier: BSD-2-Clause
"""ping.py (tcp|udp|connected) (serve ADDRESS PORT | ask ADDRESS PORT TURNS): small messages there and back, with the socket calls of
Python. TURNS 0: until standard input ends. Who serves goes on until the other one has ended."""

import itertools
import os
import select
import socket
import sys

END = b"end"  # of datagrams


def serve(kind, address, port):
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    if kind == "tcp":
        server.listen()
    print("ready", flush=True)
    if kind == "tcp":
        talk, _peer = server.accept()
        while data := talk.recv(4, socket.MSG_WAITALL):
            talk.sendall(data)
        return
    data = b""
    while data != END:
        data, peer = server.recvfrom(100)
        server.sendto(data, peer)


def has_ended(turn, turns):
    return turn == turns if turns else turn % 100 == 0 and bool(select.select([sys.stdin], [], [], 0)[0])


def ask(kind, address, port, turns):
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    client.settimeout(60 * float(os.environ.get("FABTESTS_PATIENCE", "1")))
    if kind != "udp":
        client.connect((address, port))
    for turn in itertools.count():
        last = has_ended(turn, turns)
        if last and kind == "tcp":
            return
        data = END if last else turn.to_bytes(4, "big")
        if kind == "udp":
            client.sendto(data, (address, port))
        else:
            client.sendall(data)
        got = client.recv(4, socket.MSG_WAITALL if kind == "tcp" else 0)
        assert got == data, (got, data)
        if last:
            return


def main():
    kind, part, address, *numbers = sys.argv[1:]
    (serve if part == "serve" else ask)(kind, address, *map(int, numbers))
    print("done", flush=True)


main()
