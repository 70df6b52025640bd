#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""An echo server and its client on Python's asyncio, as a service written in Python would be: an interpreter between
every two calls. `asyncio_echo.py server PORT` or `asyncio_echo.py client PORT SECONDS`, which prints one JSON line."""
from __future__ import annotations

import asyncio
import json
import sys
import time

MESSAGE = b"x" * 64


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(port: int) -> None:
    async with await asyncio.start_server(echo, "127.0.0.1", port) as server:
        await server.serve_forever()


async def ask(port: int, seconds: float) -> float:
    """Round trips a second, one at a time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count, start = 0, time.monotonic()
    while time.monotonic() - start < seconds:
        for _ in range(100):
            writer.write(MESSAGE)
            await reader.readexactly(len(MESSAGE))
        count += 100
    took = time.monotonic() - start
    writer.close()
    return count / took


if __name__ == "__main__":
    role, port = sys.argv[1], int(sys.argv[2])
    if role == "server":
        asyncio.run(serve(port))
    else:
        print(json.dumps({"rate": asyncio.run(ask(port, float(sys.argv[3])))}))
