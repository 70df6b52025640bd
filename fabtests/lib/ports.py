# SPDX-License-Identifier: BSD-2-Clause
"""Ports for tests: picking a free one, and seeing in the kernel's tables when somebody listens on it."""

import os
import random
import socket

# Below the usual ephemeral range, so that no outgoing connection takes a port between the pick and its use.
_FIRST, _LAST = 15000, 32000
_picker = random.Random(os.getpid())


def free_port() -> int:
    for _ in range(1000):
        port = _picker.randrange(_FIRST, _LAST)
        with socket.socket(socket.AF_INET6) as s:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            try:
                s.bind(("::", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free TCP port found")


def is_listening(port: int) -> bool:
    """True once a TCP socket of this network namespace listens on the port. Disturbs nobody, unlike a connect()."""
    return _has("tcp", port, "0A")


def is_bound(port: int) -> bool:
    """True once a UDP socket is bound to the port."""
    return _has("udp", port, "07")


def _has(table: str, port: int, state: str) -> bool:
    wanted = f":{port:04X}"
    for name in (f"/proc/net/{table}", f"/proc/net/{table}6"):
        try:
            with open(name) as f:
                for line in f:
                    fields = line.split()
                    if len(fields) > 3 and fields[3] == state and fields[1].endswith(wanted):
                        return True
        except FileNotFoundError:
            pass
    return False
