# SPDX-License-Identifier: BSD-2-Clause
"""charged.py serve PORT | fill ADDRESS PORT CONNECTIONS: two ends whose rings are filled by one of them. They go on with each line of their input.

serve: sends back lines until one says "hold": reads nothing of that connection from then on, but with the next line of its input all, to its end.
fill: asks by all connections, then fills their rings, then ends."""

import contextlib
import pathlib
import socket
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "sockets/programs"))
import users  # noqa: E402

HOLD = b"hold".ljust(16)
AT_ONCE = 50  # lines
PIECE = b"z" * 16384


def answer(sock, goes_on):
    with sock, contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while (line := users.exactly(sock, 16)) != HOLD:
            sock.sendall(line)
        goes_on.wait()
        while sock.recv(1 << 20):
            pass


def listen(listener, goes_on):
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0], goes_on), daemon=True).start()


def serve(port):
    goes_on = threading.Event()
    with socket.create_server(("0.0.0.0", int(port))) as listener:
        threading.Thread(target=listen, args=(listener, goes_on), daemon=True).start()
        print("ready", flush=True)
        sys.stdin.readline()
        goes_on.set()
        sys.stdin.readline()


def fill(address, port, connections):
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(users.connected(address, port)) for _ in range(int(connections))]
        while not users.is_told():
            for sock in socks:
                users.ask_all(sock, AT_ONCE)
        sys.stdin.readline()
        for sock in socks:
            sock.sendall(HOLD)
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    sock.send(PIECE)
        print("full", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    {"serve": serve, "fill": fill}[sys.argv[1]](*sys.argv[2:])
