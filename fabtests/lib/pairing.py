# SPDX-License-Identifier: BSD-2-Clause
"""Which side of a connection has the preload library, and with which profile."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Pairing:
    server: bool  # the server has libvma.so
    client: bool  # the client has libvma.so
    mode: str = "default"  # "default" or "latency" (VMA_SPEC)

    @property
    def both(self) -> bool:
        return self.server and self.client

    def __str__(self) -> str:
        name = f"{'vma' if self.server else 'kernel'}-{'vma' if self.client else 'kernel'}"
        return f"{name}-{self.mode}" if self.server or self.client else name


KERNEL = Pairing(False, False)
VMA_DEFAULT = Pairing(True, True, "default")
VMA_LATENCY = Pairing(True, True, "latency")
VMA_SERVER = Pairing(True, False, "latency")
VMA_CLIENT = Pairing(False, True, "latency")

# Every pairing of (server, client), and both profiles where both sides take part.
ALL = [KERNEL, VMA_LATENCY, VMA_DEFAULT, VMA_SERVER, VMA_CLIENT]
ACCELERATED = [VMA_LATENCY, VMA_DEFAULT]
