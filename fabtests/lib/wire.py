# SPDX-License-Identifier: BSD-2-Clause
"""What tests of the wire lab share: its addresses, sockets in its hosts, programs that answer commands."""

import contextlib
import ctypes
import errno
import json
import mmap
import os
import pathlib
import socket
import struct
import subprocess

from lib import build, patience

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
LEFT, RIGHT = "10.99.0.1", "10.99.0.2"
LEFT6, RIGHT6 = "fd99::1", "fd99::2"


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
    made.settimeout(patience.seconds())
    return made


def xdp_of(host) -> bool:
    """Whether a program is attached to the host's wire."""
    shown = subprocess.run(["ip", "-n", host.name, "-j", "link", "show", "wire"], capture_output=True, check=True)
    return "xdp" in json.loads(shown.stdout)[0]


def hold_queue(host):
    """A bound AF_XDP socket on the first queue of the host's wire, without an XDP program, as a process leaves it that is ending. To be closed."""
    sol_xdp, rx_ring, umem_reg, fill_ring, completion_ring, xdp_copy = 283, 2, 4, 5, 6, 2  # <linux/if_xdp.h>
    frames = mmap.mmap(-1, 64 * 4096)
    with inside(host):
        held = socket.socket(44, socket.SOCK_RAW)
        index = socket.if_nametoindex("wire")
    start = ctypes.addressof(ctypes.c_char.from_buffer(frames))
    held.setsockopt(sol_xdp, umem_reg, struct.pack("QQIII4x", start, len(frames), 4096, 0, 0))
    for ring in (fill_ring, completion_ring, rx_ring):
        held.setsockopt(sol_xdp, ring, 64)
    address = struct.pack("HHIII", 44, xdp_copy, index, 0, 0)
    if _libc.bind(held.fileno(), address, len(address)) != 0:
        raise OSError(ctypes.get_errno(), "bind")
    return held


def bound_queue_sockets(pid: int) -> int:
    """AF_XDP sockets of the process that are bound: each such says that it can't be bound again, another that there is no such interface."""
    pidfd_getfd = 438  # <sys/syscall.h>
    process = os.pidfd_open(pid)
    count = 0
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            fd = _libc.syscall(pidfd_getfd, process, int(name), 0)
            if fd < 0:
                continue  # closed meanwhile
            if os.path.basename(os.readlink(f"/proc/self/fd/{fd}")).startswith("socket:"):
                with socket.socket(44, socket.SOCK_RAW, fileno=fd) as copy:
                    if copy.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == 44:
                        address = struct.pack("HHIII", 44, 0, 0, 0, 0)
                        assert _libc.bind(fd, address, len(address)) != 0
                        count += ctypes.get_errno() == errno.EBUSY
            else:
                os.close(fd)
    finally:
        os.close(process)
    return count


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
        self._run.wait_until(lambda: len(lines()) > self._lines, "an answer", proc=self.proc)
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
