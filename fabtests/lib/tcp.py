# SPDX-License-Identifier: BSD-2-Clause
"""Our TCP against the kernel's, for the tests of the wire lab: the program that plays one connection of ours, the bridge
between the two, the bytes of their streams, and what the kernel says of its end."""

import contextlib
import functools
import hashlib
import os
import socket
import subprocess
import threading

from lib import build, netns, patience
from lib.wire import LEFT, LEFT6, RIGHT, RIGHT6, Asked, inside, set_sysctl

PORT = 7000
FAMILIES = [(socket.AF_INET, LEFT, RIGHT), (socket.AF_INET6, LEFT6, RIGHT6)]
_BLOCK = 65536
_FIRST = bytes((i * 7 + (i >> 8)) & 255 for i in range(_BLOCK))


@functools.lru_cache(maxsize=256)
def _block(number: int) -> bytes:
    return _FIRST.translate(bytes((byte + number * 31) & 255 for byte in range(256)))


def stream(size: int) -> bytes:
    """The first bytes of a test's stream, as byte_at() of programs/tcp_host.hpp makes them."""
    blocks = b"".join(_block(number % 256) for number in range((size + _BLOCK - 1) // _BLOCK))
    return blocks[:size]


def no_offloads(run, host, *more):
    """The host's frames have their checksums: over veth they are left out, the kernel's and ours. `more`: what else it shall
    not do."""
    words = [word for name in ("tx", *more) for word in (name, "off")]
    run.run("ethtool", [build.tool("ethtool"), "-K", "wire", *words], netns=host.file)


class Bridge(Asked):
    """programs/bad_bridge between two hosts that have a third one in the middle; chances in percent."""

    def __init__(self, run, hosts, loss=0, duplicates=0, held_back=0, marked=0, seed=7):
        super().__init__(run, hosts.middle, "bridge", build.program("ether/programs/bad_bridge"), "left", "right", loss,
                         duplicates, held_back, marked, seed)
        assert self.next_line() == "bridging"

    def end(self) -> dict[str, int]:
        """What it has done."""
        self.close()
        self.proc.ok()
        words = self.next_line().split()
        return dict(zip(words[::2], map(int, words[1::2])))


@contextlib.contextmanager
def bridged(run, **chances):
    """Two hosts with a Bridge between them: (hosts, bridge). Its counts are in bridge.done afterwards."""
    made = netns.hosts(middle=True)
    try:
        for host in (made.left, made.right):  # it hands on bytes, and not that a checksum is left out
            no_offloads(run, host, "tso", "gso")
        bridge = Bridge(run, made, **chances)
        yield made, bridge
        bridge.done = bridge.end()
    finally:
        made.remove()


class Talk(Asked):
    """programs/tcp_talk: a connection of ours that does what the test says."""

    def __init__(self, run, host):
        super().__init__(run, host, "talk", build.program("ether/programs/tcp_talk"), "wire")
        assert self.next_line() == "ready"

    def settle(self, **settings):
        """Of the next connections; do("settle"): and of this one."""
        self.do(*(f"set {name}={value}" for name, value in settings.items()))

    def begin(self, command: str):
        """A command whose answer comes later: next_line()."""
        os.write(self._write, f"{command}\n".encode())

    def _dict(self, command: str) -> dict:
        words = self.ask(command).split()
        return {name: int(value) if value.isdigit() else value for name, value in zip(words[::2], words[1::2])}

    def info(self) -> dict:
        return self._dict("info")

    def counters(self) -> dict:
        return self._dict("counters")


def kernel_socket(host, family=socket.AF_INET, **options):
    """A stream socket of the host. Options: those of SOL_SOCKET (SO_...) and of TCP (TCP_...) by their names."""
    with inside(host):
        made = socket.socket(family, socket.SOCK_STREAM)
    made.settimeout(patience.seconds())
    for name, value in options.items():
        level = socket.SOL_SOCKET if name.startswith("SO_") else socket.IPPROTO_TCP
        made.setsockopt(level, getattr(socket, name), value)
    return made


def kernel_listener(host, address, port=PORT, **options):
    made = kernel_socket(host, socket.AF_INET6 if ":" in address else socket.AF_INET, SO_REUSEADDR=1, **options)
    made.bind((address, port))
    made.listen(64)
    return made


def accepted(listener):
    sock, _address = listener.accept()
    sock.settimeout(patience.seconds())
    return sock


def echoed(host, address, data) -> bytes:
    """The hash of what comes back of `data` over one connection of the kernel's, whole and to its end."""
    with kernel_socket(host, socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
        sock.connect((address, PORT))

        def send():
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        got = hashlib.sha256()
        while piece := sock.recv(1 << 16):
            got.update(piece)
        sender.join()
        return got.digest()


@contextlib.contextmanager
def echoing(host, address, count: int):
    """The kernel sends back what comes over `count` connections, one after the other."""
    with kernel_listener(host, address) as listener:

        def serve():
            for _ in range(count):
                with accepted(listener) as sock:
                    while data := sock.recv(1 << 16):
                        sock.sendall(data)

        server = threading.Thread(target=serve)
        server.start()
        yield
        server.join()


def seen_by_kernel(host, *filters) -> list[str]:
    """What `ss` has for the one connection that the filter ("sport = :7000") leaves, in words; [] if there is none."""
    shown = subprocess.run(["ip", "netns", "exec", host.name, build.tool("ss"), "-tainHOo", *filters],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(shown) <= 1, shown
    return shown[0].split() if shown else []


def value_of(words: list[str], name: str) -> str:
    """"7,7" of "wscale:7,7"."""
    return next(word.split(":", 1)[1] for word in words if word.startswith(f"{name}:"))


def kernel_counters(host) -> dict[str, int]:
    """Of /proc/net/netstat and snmp: "TcpExtTCPDeliveredCE" and the like."""
    found = {}
    with inside(host):
        for name in ("netstat", "snmp"):
            with open(f"/proc/thread-self/net/{name}", encoding="ascii") as file:
                lines = file.read().splitlines()
            for names, values in zip(lines[::2], lines[1::2]):
                group = names.split(":")[0]
                found.update((group + key, int(value))
                             for key, value in zip(names.split()[1:], values.split()[1:]))
    return found


def tcp_sysctl(host, **values):
    for name, value in values.items():
        set_sysctl(host, f"ipv4/{name}", value)


class Exchange:
    """The kernel's side of a stream both ways at once: sends `size` bytes and their end, and reads to the end."""

    def __init__(self, sock, size: int):
        self._sock, self._data = sock, stream(size)
        self._hash, self._count, self._error = hashlib.sha256(), 0, None
        self._threads = [threading.Thread(target=self._caught, args=[part]) for part in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _caught(self, part):
        try:
            part()
        except OSError as error:
            self._error = error

    def _send(self):
        self._sock.sendall(self._data)
        self._sock.shutdown(socket.SHUT_WR)

    def _receive(self):
        while piece := self._sock.recv(1 << 18):
            self._hash.update(piece)
            self._count += len(piece)

    def got(self, size: int):
        """Waits for the end; what came must be the first `size` bytes of our stream."""
        for thread in self._threads:
            thread.join()
        if self._error:
            raise self._error
        assert self._count == size
        assert self._hash.digest() == hashlib.sha256(stream(size)).digest()


def exchange(talk, sock, size: int, back: int | None = None):
    """`size` bytes from the kernel to us and `back` from us to it, at the same time, to both ends."""
    back = size if back is None else back
    kernel = Exchange(sock, size)
    answer = talk.ask(f"finish {back}")
    assert answer == f"read {size}"
    kernel.got(back)
