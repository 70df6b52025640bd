# SPDX-License-Identifier: BSD-2-Clause
"""A client of VMA's agent protocol: what a process tells vmad of its TCP connections. Run as a program it is such a process; its
connections are the kernel's, put into repair mode, so that they vanish without a word when it dies, as those past the kernel do."""

import contextlib
import os
import pathlib
import socket
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # for who runs it as a program

from lib import patience  # noqa: E402

INIT, STATE, EXIT, FLOW = 1, 2, 3, 4
ACK = 0x80
VERSION = 3
CLOSED, ESTABLISHED = 0, 4
_TCP_REPAIR = 19


def header(code: int, status: int = 0, version: int = VERSION, pid: int | None = None) -> bytes:
    return struct.pack("=BBBBi", code, version, status, 0, os.getpid() if pid is None else pid)


def init(**more) -> bytes:
    return header(INIT, **more) + struct.pack("=I", 9 << 12 | 8 << 8 | 6 << 4)


def state(fid: int, local: tuple[str, int], remote: tuple[str, int], now: int, kind: int = socket.SOCK_STREAM, **more) -> bytes:
    ports = struct.pack("!HH", local[1], remote[1])
    return (header(STATE, **more) + struct.pack("=I", fid) + socket.inet_aton(local[0]) + socket.inet_aton(remote[0]) + ports +
            bytes((kind, now)))


def flow(status: int, kind: int = 3, action: int = 1) -> bytes:
    return header(FLOW, status) + struct.pack("=BBII4sH4sH", kind, action, 1, 2, bytes(4), 0, bytes(4), 0)


class Client:
    """This process'. `folder` and `daemon` are vmad's."""

    def __init__(self, folder, daemon):
        name = pathlib.Path(folder, f"vma_agent.{os.getpid()}")
        self._pid_file = open(f"{name}.pid", "w", encoding="ascii")  # pylint: disable=consider-using-with
        self._path = f"{name}.sock"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(self._path)
        self.sock.connect(str(daemon))
        self.sock.settimeout(patience.seconds())

    def greet(self):
        self.sock.send(init())
        answer = self.sock.recv(100)
        assert len(answer) == 12 and answer[:8] == header(INIT | ACK), answer

    def close_pid_file(self):
        self._pid_file.close()

    def close(self):
        self.close_pid_file()
        self.sock.close()
        os.unlink(self._path)


def _main(folder, daemon):
    """Obeys lines, and answers each with one: connect ADDRESS PORT; close NUMBER; tell LOCAL PORT REMOTE PORT TIMES; exit; unwatch."""
    client = Client(folder, daemon)
    client.greet()
    print("ready", flush=True)
    connections = []
    for line in sys.stdin:
        verb, *words = line.split()
        if verb == "connect":
            sock = socket.create_connection((words[0], int(words[1])))
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
            connections.append(sock)
            client.sock.send(state(len(connections), sock.getsockname(), sock.getpeername(), ESTABLISHED))
        elif verb == "close":
            sock = connections[int(words[0]) - 1]
            client.sock.send(state(int(words[0]), sock.getsockname(), sock.getpeername(), CLOSED))
        elif verb == "tell":
            for number in range(int(words[4])):
                client.sock.send(state(1000 + number, (words[0], int(words[1]) + number), (words[2], int(words[3])), ESTABLISHED))
        elif verb == "exit":
            client.sock.send(header(EXIT))
        elif verb == "unwatch":
            client.close_pid_file()
        print("ok", flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
