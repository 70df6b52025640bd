# SPDX-License-Identifier: BSD-2-Clause
"""What tests of the wire lab share: its addresses, sockets in its hosts, programs that answer commands."""

import contextlib
import ctypes
import json
import os
import pathlib
import socket
import subprocess

from lib import build

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
LEFT, RIGHT = "10.99.0.1", "10.99.0.2"
LEFT6, RIGHT6 = "fd99::1", "fd99::2"
PATIENCE = 20  # seconds


@contextlib.contextmanager
def inside(host):
    """Sockets that are made in it belong to the host. Only this thread goes there."""
    with open("/proc/thread-self/ns/net", encoding="ascii") as home:
        host.enter()
        try:
            yield
        finally:
            if _libc.setns(home.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")


def is_listening(host, port) -> bool:
    """True once a TCP socket of the host listens on the port, IPv4."""
    with inside(host), open("/proc/thread-self/net/tcp", encoding="ascii") as table:
        return any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in list(table)[1:])


def udp_socket(host, family=socket.AF_INET):
    with inside(host):
        made = socket.socket(family, socket.SOCK_DGRAM)
    made.settimeout(PATIENCE)
    return made


def xdp_of(host) -> bool:
    """Whether a program is attached to the host's wire."""
    shown = subprocess.run(["ip", "-n", host.name, "-j", "link", "show", "wire"], capture_output=True, check=True)
    return "xdp" in json.loads(shown.stdout)[0]


def set_sysctl(host, name: str, value):
    with inside(host):
        pathlib.Path("/proc/sys/net", name).write_text(str(value), encoding="ascii")


class Asked:
    """A program that answers each line of its standard input with one line."""

    def __init__(self, run, host, name, *argv, env=None, preexec=None):
        """On the host, or where `preexec` leads."""
        read, self._write = os.pipe()
        try:
            self.proc = run.start(name, argv, stdin=read, netns=host.file if host else None, preexec=preexec,
                                  env={"FI_LOG_LEVEL": "warn", **(env or {})})
        finally:
            os.close(read)
        self._run = run
        self._lines = 0

    def next_line(self) -> str:
        def lines():
            return self.proc.stdout().split("\n")[:-1]
        self._run.wait_until(lambda: len(lines()) > self._lines, "an answer", PATIENCE, self.proc)
        self._lines += 1
        return lines()[self._lines - 1]

    def ask(self, command: str) -> str:
        os.write(self._write, f"{command}\n".encode())
        return self.next_line()

    def do(self, *commands: str):
        for command in commands:
            assert self.ask(command) == "ok", command

    def close(self):
        if self._write >= 0:
            os.close(self._write)
            self._write = -1

    def finish(self):
        """The end of its input; it must end well, unless it has ended before."""
        self.close()
        if self.proc.alive():
            self.proc.ok()


class FrameEcho(Asked):
    """programs/frame_echo on the host's wire."""

    def __init__(self, run, host, *argv):
        super().__init__(run, host, "echo", build.program("ether/programs/frame_echo"), "wire", *argv)

    def opened(self) -> str:
        return self.next_line()

    def counters(self) -> dict[str, int]:
        words = self.ask("counters").split()
        return dict(zip(words[::2], map(int, words[1::2])))
