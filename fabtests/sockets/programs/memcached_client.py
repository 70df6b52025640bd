# SPDX-License-Identifier: BSD-2-Clause
"""Client of memcached's text protocol: stores, reads back and compares random values on several connections."""

import os
import random
import socket
import sys


class Client:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=60 * float(os.environ["FABTESTS_PATIENCE"]))
        self.file = self.sock.makefile("rwb")

    def set(self, key, value):
        self.file.write(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
        self.file.flush()
        return self.file.readline() == b"STORED\r\n"

    def get(self, *keys):
        self.file.write(b"get %s\r\n" % b" ".join(keys))
        self.file.flush()
        found = {}
        while (line := self.file.readline()) != b"END\r\n":
            _, key, _flags, size = line.split()
            found[key] = self.file.read(int(size))
            assert self.file.read(2) == b"\r\n"
        return found


def main():
    port, rounds = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(rounds)
    clients = [Client(port) for _ in range(8)]
    kept = {}
    for i in range(rounds):
        client = rng.choice(clients)
        key = b"key%d" % rng.randrange(200)
        value = rng.randbytes(rng.choice([1, 60, 1000, 5000, 200_000]))
        assert client.set(key, value), key
        kept[key] = value
        asked = rng.sample(sorted(kept), min(len(kept), 5))
        got = rng.choice(clients).get(*asked)
        assert got == {k: kept[k] for k in asked}, f"values differ in round {i}"
    print(f"{rounds} rounds, {len(kept)} keys: all values as stored")


main()
