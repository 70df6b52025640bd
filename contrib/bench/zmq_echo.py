#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Request and reply by ZeroMQ (python3-zmq), 64 bytes. Usage: zmq_echo.py server PORT | client PORT SECONDS"""
import json
import sys
import time

import zmq


def main() -> None:
    s = zmq.Context().socket(zmq.REP if sys.argv[1] == "server" else zmq.REQ)
    where = f"tcp://127.0.0.1:{sys.argv[2]}"
    if sys.argv[1] == "server":
        s.bind(where)
        while True:
            s.send(s.recv())
    s.connect(where)
    message = bytes(64)
    count, start = 0, time.monotonic()
    while time.monotonic() < start + float(sys.argv[3]):
        for _ in range(50):
            s.send(message)
            s.recv()
        count += 50
    print(json.dumps({"rate": count / (time.monotonic() - start)}))


if __name__ == "__main__":
    main()
