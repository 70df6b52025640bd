# SPDX-License-Identifier: BSD-2-Clause
"""A program that sends back what it gets: arguments `tcp` (one connection) or `udp`, its address, its port."""

SCRIPT = """
import socket, sys
kind, here, port = sys.argv[1:]
family = socket.AF_INET6 if ":" in here else socket.AF_INET
s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.bind((here, int(port)))
if kind == "tcp":
    s.listen()
print("ready", flush=True)
if kind == "tcp":
    talk, _ = s.accept()
    while data := talk.recv(8):
        talk.sendall(data)
while kind == "udp":
    data, peer = s.recvfrom(8)
    s.sendto(data, peer)
"""
