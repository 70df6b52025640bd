# SPDX-License-Identifier: BSD-2-Clause
"""The static probes of a library as readelf shows them, and how often somebody comes by one: counted by the kernel (perf_event_open),
without any tool."""

import ctypes
import os
import pathlib
import re
import struct
import subprocess
import typing

SYSCALL = {"x86_64": 298, "aarch64": 241}
NOTE = re.compile(r"Provider: (\S+)\s+Name: (\S+)\s+Location: (0x[0-9a-f]+), Base: (0x[0-9a-f]+), Semaphore: (0x[0-9a-f]+)"
                  r"\s+Arguments: ?(.*)")


class Probe(typing.NamedTuple):
    provider: str
    name: str
    address: int
    base: int
    semaphore: int
    arguments: int


def probes(library) -> list[Probe]:
    text = subprocess.run(["readelf", "-nW", library], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout
    return [Probe(found[1], found[2], int(found[3], 16), int(found[4], 16), int(found[5], 16), len(found[6].split()))
            for found in NOTE.finditer(text)]


def place_in_file(library, address: int) -> int:
    text = subprocess.run(["readelf", "-lW", library], capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["LOAD"]:
            offset, start, _, size = (int(word, 16) for word in words[1:5])
            if start <= address < start + size:
                return address - start + offset
    raise AssertionError(f"{address:#x} is in no segment of {library}")


def _processors():
    for part in pathlib.Path("/sys/devices/system/cpu/online").read_text().strip().split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


class Count:
    """How often anybody comes by an address of a library, which should be a copy for the test alone. By processor: of a process the kernel
    counts a uprobe in the threads that are there only. OSError: it lets nobody count."""

    def __init__(self, library, address: int):
        kind = int(pathlib.Path("/sys/bus/event_source/devices/uprobe/type").read_text())
        path = ctypes.create_string_buffer(os.fsencode(os.path.realpath(library)))
        attributes = bytearray(128)
        struct.pack_into("IIQ", attributes, 0, kind, len(attributes), 0)
        struct.pack_into("QQ", attributes, 56, ctypes.addressof(path), place_in_file(library, address))
        libc = ctypes.CDLL(None, use_errno=True)
        self._fds = []
        for processor in _processors():
            fd = libc.syscall(SYSCALL[os.uname().machine], (ctypes.c_char * 128).from_buffer(attributes), -1, processor, -1, 0)
            if fd < 0:
                self.close()
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            self._fds.append(fd)

    def read(self) -> int:
        return sum(struct.unpack("Q", os.read(fd, 8))[0] for fd in self._fds)

    def close(self):
        for fd in self._fds:
            os.close(fd)
        self._fds = []
