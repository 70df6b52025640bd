# SPDX-License-Identifier: BSD-2-Clause
"""first_byte.py serve|call|both HOST PORT COUNT WHO HOW: connections one after the other, of which each carries a question and
an answer. WHO sends first: client, server, or nobody, who closes at once. HOW one waits: recv, poll, select or epoll.
`both` is one thread that has both ends."""
import select
import socket
import sys

ASKED, ANSWERED = b"question", b"answer"
role, host, port, count, who, how = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:]
family = socket.AF_INET6 if ":" in host else socket.AF_INET


def listen():
    made = socket.create_server((host, port), family=family)
    print("listens", flush=True)
    return made


def wait(end):
    """Until it can be read: as `how` says."""
    if how == "epoll":
        with select.epoll() as waits:
            waits.register(end, select.EPOLLIN)
            waits.poll()
    elif how == "poll":
        waits = select.poll()
        waits.register(end, select.POLLIN)
        waits.poll()
    elif how == "select":
        select.select([end], [], [])


def exchange(end, begins):
    """One end's part."""
    if who == "nobody":
        return
    if begins:
        end.sendall(ASKED)
        wait(end)
        answered = end.recv(100)
        assert answered == ANSWERED, answered
        return
    wait(end)
    asked = end.recv(100)
    assert asked == ASKED, asked
    end.sendall(ANSWERED)


if role == "serve":
    listener = listen()
    for _ in range(count):
        with listener.accept()[0] as end:
            exchange(end, who == "server")
            assert end.recv(1) == b""
elif role == "call":
    for _ in range(count):
        with socket.create_connection((host, port)) as end:
            exchange(end, who == "client")
else:
    listener = listen()
    for _ in range(count):
        with socket.create_connection((host, port)) as near, listener.accept()[0] as far:
            first, second = (far, near) if who == "server" else (near, far)
            first.sendall(ASKED)
            assert second.recv(100) == ASKED
            second.sendall(ANSWERED)
            assert first.recv(100) == ANSWERED
print("done", flush=True)
