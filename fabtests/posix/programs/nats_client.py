# SPDX-License-Identifier: BSD-2-Clause
"""A client of nats-server, by its text protocol: messages to itself through the server, one at a time and then many. Usage: PORT"""

import socket
import sys


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")
        assert self.file.readline().startswith(b"INFO")
        self.say(b'CONNECT {"verbose":false}\r\nSUB here 1\r\n')

    def say(self, what):
        self.socket.sendall(what)

    def publish(self, body):
        self.say(b"PUB here %d\r\n%s\r\n" % (len(body), body))

    def message(self):
        while not (line := self.file.readline()).startswith(b"MSG "):
            assert line, "the server has ended the connection"
            if line == b"PING\r\n":
                self.say(b"PONG\r\n")
        return self.file.read(int(line.split()[-1]) + 2)[:-2]


def main():
    client = Client(int(sys.argv[1]))
    for number in range(300):
        body = b"%d " % number * number
        client.publish(body)
        assert client.message() == body
    bodies = [bytes([number % 256]) * (number * 37) for number in range(400)]
    for body in bodies:
        client.publish(body)
    assert [client.message() for _ in bodies] == bodies
    print("all as sent")


if __name__ == "__main__":
    main()
