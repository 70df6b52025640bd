# SPDX-License-Identifier: BSD-2-Clause
"""The two guests and the wire between them."""

import platform
import socket

from . import errors, kernel
from .guest import Guest

BOOT_TIMEOUT = 120.0  # seconds; it takes some 6 on two idle processors


def missing() -> str:
    """Why the lab cannot run here; empty if it can."""
    if platform.machine() != "x86_64":
        return f"the guests run this machine's programs, which must be x86_64 and not {platform.machine()}"
    try:
        for name in errors.TOOLS:
            errors.find(name)
    except errors.LabError as error:
        return str(error)
    return ""


class Lab:
    """A context: two guests that are up, with rxe0 on eth0, and gone at its end."""

    def __init__(self, *, mtu: int = 1500, memory: int = 768, say=lambda text: None):
        """`mtu` of the wire in bytes: 9000 is what RDMA's largest, 4096, needs. `memory` of a guest in MiB."""
        self.server, self.client = self.guests = [Guest("server", 1, mtu), Guest("client", 2, mtu)]
        self.server.peer, self.client.peer = self.client, self.server
        self._memory = memory
        self._say = say

    def __enter__(self) -> "Lab":
        reason = missing()
        if reason:
            raise errors.LabError(reason)
        try:
            image = kernel.get(self._say)
            for guest, wire in zip(self.guests, socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)):
                with wire:
                    guest.boot(image, wire, self._memory)
            for guest in self.guests:
                guest.wait_ready(BOOT_TIMEOUT)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for guest in self.guests:
            guest.power_off()

    def restore(self):
        """As after booting: no command runs, both devices are there and their ports up."""
        for guest in self.guests:
            guest.end_commands()
            guest.restore()
