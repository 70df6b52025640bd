# SPDX-License-Identifier: BSD-2-Clause
"""Unmodified programs whose TCP goes by an Ethernet port of ours (VMA_ETHERNET), in the wire lab: one side has the library,
the other one the kernel only."""

import dataclasses

from lib import tcp
from lib.wire import LEFT, LEFT6, RIGHT, RIGHT6

ENV = {"VMA_ETHERNET": "wire"}


@dataclasses.dataclass(frozen=True)
class Sides:
    """For peers.start(): who has the library. Both sides would have to have their own shared directory."""
    server: bool
    client: bool
    mode: str = "default"
    both: bool = False

    def __str__(self):
        return f"{'port' if self.server else 'kernel'}-{'port' if self.client else 'kernel'}"


KERNEL, SERVER, CLIENT = Sides(False, False), Sides(True, False), Sides(False, True)


class Lab:
    """Two hosts on a wire: `left` has the library and its port, `right` the kernel, whose checksums are there."""

    def __init__(self, run, hosts):
        self.run, self.hosts = run, hosts
        self.left, self.right = hosts.left, hosts.right
        tcp.no_offloads(run, hosts.right)
        # What a receiver that lags leaves unread must fit the stack, or its connection stays on the kernel: 6 MiB of the
        # 8 MiB that a queue takes. Newer kernels let 32 MiB wait, and beside other work iperf3's server never caught up.
        tcp.tcp_sysctl(hosts.left, tcp_rmem="4096 131072 4194304")

    def program(self, name, argv, *, ours=True, env=None, **options):
        """Started on the left with the library, or on the right without it."""
        host = self.left if ours else self.right
        return self.run.start(name, argv, vma=ours, netns=host.file, env={**ENV, **(env or {})}, **options)

    def peers(self, sides: Sides, family="4"):
        """Options of peers.start(): the side with the library on the left."""
        left, right = (LEFT6, RIGHT6) if family == "6" else (LEFT, RIGHT)
        if family == "mapped":
            left, right = f"::ffff:{LEFT}", f"::ffff:{RIGHT}"
        on_left = {"netns": self.left.file, "env": {**ENV, "FABTEST_LIFT": "1"} if sides != KERNEL else ENV}
        on_right = {"netns": self.right.file}
        at = right if sides.client else left
        server, client = (on_right, on_left) if sides.client else (on_left, on_right)
        return {"server_options": server, "client_options": client}, ["--at", at]


def offloaded(proc) -> int:
    """How many connections of the process have left the kernel for the port so far."""
    return sum("accelerated: port wire" in line for line in proc.log().lines)


def until_offloaded(attempt, size, least=1):
    """attempt(size) gives the process that has the library. Its first connections are on the kernel while the port is being opened,
    however fast they are: what is too small for that is made four times as large, some times."""
    for _ in range(7):
        proc = attempt(size)
        if offloaded(proc) >= least:
            return
        size *= 4
    verdicts = "\n".join(verdict.line for verdict in proc.log().verdicts())
    raise AssertionError(f"{offloaded(proc)} connections went by the port, expected {least}\n{verdicts}")
