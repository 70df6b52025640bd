# SPDX-License-Identifier: BSD-2-Clause
"""ping.py (tcp|udp|connected) (serve|ask) ADDRESS PORT TURNS: small messages there and back, with the socket calls of Python."""

import socket
import sys


def serve(kind, address, port, turns):
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    if kind == "tcp":
        server.listen()
    print("ready", flush=True)
    if kind == "tcp":
        talk, _peer = server.accept()
        for _ in range(turns):
            talk.sendall(talk.recv(4, socket.MSG_WAITALL))
        talk.recv(1)
        return
    for _ in range(turns):
        data, peer = server.recvfrom(100)
        server.sendto(data, peer)


def ask(kind, address, port, turns):
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    client.settimeout(20)
    if kind != "udp":
        client.connect((address, port))
    for turn in range(turns):
        data = turn.to_bytes(4, "big")
        if kind == "udp":
            client.sendto(data, (address, port))
        else:
            client.sendall(data)
        got = client.recv(4, socket.MSG_WAITALL if kind == "tcp" else 0)
        assert got == data, (got, data)


def main():
    kind, part, address, port, turns = sys.argv[1:]
    (serve if part == "serve" else ask)(kind, address, int(port), int(turns))
    print("done", flush=True)


main()
