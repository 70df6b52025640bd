# SPDX-License-Identifier: BSD-2-Clause
"""A UDP client of an echo: udp_asker.py 4|6 ADDRESS PORT COUNT connected|unconnected [quit]. Sizes go through what fits one frame and
what does not. It asks COUNT times, and until its standard input ends. Ends with "ok", or with "refused" when a connected socket is told
that nobody is there."""

import itertools
import os
import random
import select
import socket
import sys


def input_has_ended():
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main():
    family = socket.AF_INET if sys.argv[1] == "4" else socket.AF_INET6
    to = (sys.argv[2], int(sys.argv[3]))
    connected = sys.argv[5] == "connected"
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(60 * float(os.environ["FABTESTS_PATIENCE"]))
    if connected:
        s.connect(to)
    chance = random.Random(7)
    try:
        for i in itertools.count():
            if i >= int(sys.argv[4]) and input_has_ended():
                break
            message = chance.randbytes((1, 64, 1000, 1400, 1472, 1473, 3000, 20000)[i % 8])
            if connected:
                s.send(message)
            else:
                s.sendto(message, to)
            answer, source = s.recvfrom(65536)
            assert answer == message, (i, len(answer), len(message))
            assert source[:2] == to, source
        if connected and len(sys.argv) > 6:
            s.send(b"quit")
            s.recv(10)
            s.settimeout(0.1)
            while True:
                s.send(b"more")
                try:
                    s.recv(10)
                except TimeoutError:  # its socket was still there, and nobody reads any more
                    pass
    except ConnectionRefusedError:
        print("refused", flush=True)
        return
    print("ok", flush=True)


main()
