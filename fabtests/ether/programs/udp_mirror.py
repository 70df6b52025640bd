# SPDX-License-Identifier: BSD-2-Clause
"""A UDP server: answers each datagram with what it was told of it, as JSON, and the bytes' SHA-256.

udp_mirror.py 4|6 ADDRESS PORT [reuseport] [wait] [group=ADDRESS] [stamps=FLAGS]
"group": it joins that one on the interface `wire`.
"stamps": SO_TIMESTAMPNS, and SO_TIMESTAMPING with those flags.
"wait": nothing is read until a line comes on standard input. `quit` ends it, `stampsFLAGS` is SO_TIMESTAMPING from then on, `fork` makes a child that answers in its place."""

import hashlib
import json
import os
import socket
import struct
import sys


SO_TIMESTAMPNS, SO_TIMESTAMPING = 35, 37


def nanoseconds(data):
    seconds, rest = struct.unpack("qq", data[:16])
    return seconds * 10**9 + rest


def told(ancillary):
    said = {}
    for level, kind, data in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, socket.IP_TTL):
            said["ttl"] = struct.unpack("i", data)[0]
        elif (level, kind) == (socket.IPPROTO_IP, socket.IP_TOS):
            said["tos"] = data[0]
        elif (level, kind) == (socket.IPPROTO_IP, socket.IP_PKTINFO):
            said["to"] = socket.inet_ntop(socket.AF_INET, data[8:12])
            said["interface"] = struct.unpack("i", data[:4])[0]
        elif (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            said["time"] = nanoseconds(data)
        elif (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPING):
            said["times"] = [nanoseconds(data[at:at + 16]) for at in range(0, 48, 16)]
        elif (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
            said["to"] = socket.inet_ntop(socket.AF_INET6, data[:16])
            said["interface"] = struct.unpack("i", data[16:20])[0]
        elif (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT):
            said["ttl"] = struct.unpack("i", data)[0]
        elif (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_TCLASS):
            said["tos"] = struct.unpack("i", data)[0]
    return said


def join(s, family, group):
    interface = socket.if_nametoindex("wire")
    if family == socket.AF_INET:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                     socket.inet_aton(group) + bytes(4) + struct.pack("i", interface))
    else:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP,
                     socket.inet_pton(socket.AF_INET6, group) + struct.pack("i", interface))


def main():
    family = socket.AF_INET if sys.argv[1] == "4" else socket.AF_INET6
    s = socket.socket(family, socket.SOCK_DGRAM)
    if "reuseport" in sys.argv:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    ip_pktinfo = getattr(socket, "IP_PKTINFO", 8)
    socket.IP_PKTINFO = ip_pktinfo
    for name in ip_pktinfo, socket.IP_RECVTTL if hasattr(socket, "IP_RECVTTL") else 12, socket.IP_RECVTOS:
        s.setsockopt(socket.IPPROTO_IP, name, 1)
    if family == socket.AF_INET6:
        for name in socket.IPV6_RECVPKTINFO, socket.IPV6_RECVHOPLIMIT, socket.IPV6_RECVTCLASS:
            s.setsockopt(socket.IPPROTO_IPV6, name, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    for flags in (int(word[7:]) for word in sys.argv if word.startswith("stamps=")):
        s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)
    groups = [word[6:] for word in sys.argv if word.startswith("group=")]
    if groups:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((sys.argv[2], int(sys.argv[3])))
    for group in groups:
        join(s, family, group)
    print("ready", flush=True)
    if "wait" in sys.argv:
        sys.stdin.readline()
    while True:
        data, ancillary, _flags, source = s.recvmsg(65536, 512)
        answer = {"sha": hashlib.sha256(data).hexdigest(), "length": len(data), "pid": os.getpid(), **told(ancillary)}
        if data[:5] == b"count":
            answer["number"] = data[5:].decode()
        if data[:6] == b"stamps":
            s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, int(data[6:]))
        if data == b"fork" and os.fork() != 0:
            os.wait()
            return
        s.sendto(json.dumps(answer).encode(), source)
        if data == b"quit":
            return


main()
