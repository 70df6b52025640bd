# SPDX-License-Identifier: BSD-2-Clause
"""offers.py victim PORT FIFO [FIFO] | plain PORT FIFO FIFO | thief PORT FIFO | locks FOLDER | untraced serve|ask KIND PORT | pairs: who takes part when an offer is copied to another connection's name
(test_offers.py). Each prints its own port, and says what it has done.

victim: a server that nobody may trace. It answers the first connection, then, when the second FIFO has a writer, all that the second one has sent, and when the
first has, the first again.
plain: the first connection, which checks every answer, from when the first FIFO has a writer until the second has one. thief: the second one, which sends until FIFO has a writer;
whatever comes by it behind its answer is stolen.
locks: holds the lock of FOLDER and is stopped. untraced: what containers.py does, by a process that nobody may trace. pairs: connections within one process."""

import ctypes
import fcntl
import os
import signal
import socket
import sys
import threading

import containers

PR_SET_DUMPABLE = 4
ROUNDS = 20  # before, fewer than offload a connection; three times as many behind
SIZE = 16
END = b"." * SIZE
LARGE = 1 << 22  # bytes: more than the thief sends, so that the victim has few calls of its connection


def exactly(sock, size):
    data = sock.recv(size, socket.MSG_WAITALL)
    assert len(data) == size, f"the end after {len(data)} bytes"
    return data


def line(number):
    return f"secret {number:>{SIZE - 8}}\n".encode()


def answer(sock, first, count):
    for number in range(first, first + count):
        assert exactly(sock, SIZE) == line(number)
        sock.sendall(line(number))


def answer_to_the_end(sock, number):
    while (said := exactly(sock, SIZE)) != END:
        assert said == line(number)
        sock.sendall(line(number))
        number += 1


def ask(sock, first, count):
    for number in range(first, first + count):
        sock.sendall(line(number))
        assert exactly(sock, SIZE) == line(number)


def may_not_be_traced():
    assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0) == 0


def say(what):
    print(what, flush=True)


def wait_for(fifo):
    with open(fifo, "rb"):
        pass


def waiting_for(fifo):
    over = threading.Thread(target=wait_for, args=(fifo,))
    over.start()
    return over


def victim(port, fifo, all_sent=None):
    may_not_be_traced()
    listener = socket.create_server(("127.0.0.1", port))
    say("ready")
    first, _ = listener.accept()
    answer(first, 0, ROUNDS)
    say("first answered")
    second, _ = listener.accept()
    wait_for(all_sent)
    said = b""
    while not said.endswith(END):
        said += second.recv(LARGE)
    second.sendall(said)
    say("second answered")
    wait_for(fifo)
    answer_to_the_end(first, ROUNDS)
    say("done")


def plain(port, fifo, last):
    sock = socket.create_connection(("127.0.0.1", port))
    say(f"port {sock.getsockname()[1]}.")
    ask(sock, 0, ROUNDS)
    wait_for(fifo)
    over = waiting_for(last)
    number = ROUNDS
    while over.is_alive():
        ask(sock, number, 1)
        number += 1
    ask(sock, number, 3 * ROUNDS)
    sock.sendall(END)


def thief(port, fifo):
    sock = socket.create_connection(("127.0.0.1", port))
    say(f"port {sock.getsockname()[1]}.")
    over = waiting_for(fifo)
    number = 0
    while over.is_alive():
        sock.sendall(line(number))
        number += 1
        over.join(0.001)  # the victim reads nothing meanwhile, and has only so much room
    sock.sendall(END)
    say("sent all")
    assert exactly(sock, (number + 1) * SIZE).endswith(END)
    say("answered")
    try:
        stolen = sock.recv(1000)
    except ConnectionResetError:
        stolen = b""
    assert not stolen, f"stolen: {stolen!r}"


def locks(folder):
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(held, fcntl.LOCK_EX)
    say("locked")
    os.kill(os.getpid(), signal.SIGSTOP)


def pairs():
    for one, other in containers.pairs():
        containers.talk(one, other, containers.LINES)


def untraced(verb, kind, port):
    may_not_be_traced()
    {"serve": containers.serve, "ask": containers.ask_all}[verb](kind, port)


if __name__ == "__main__":
    verb, *args = sys.argv[1:]
    globals()[verb](*[int(a) if a.isdigit() else a for a in args])
