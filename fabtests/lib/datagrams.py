# SPDX-License-Identifier: BSD-2-Clause
"""What the debug logs must say about UDP sockets, and the pairings that datagram tests run in."""

import re

from . import pairing

# The one switch: True once libvma.so accelerates UDP sockets. Scenarios then warm up until the logs say so (and fail if
# they never do), and each test judges the logs at its end.
UDP_IS_ACCELERATED = True
# The same for datagrams to multicast groups.
MULTICAST_IS_ACCELERATED = True

# Every pairing but the throughput profile, which only differs in when a socket is offloaded.
PAIRS = [pairing.KERNEL, pairing.VMA_LATENCY, pairing.VMA_SERVER, pairing.VMA_CLIENT]

_RECEIVER = re.compile(r"fd=\d+ UDP (\S+): accelerated: ")
_ROUTE = re.compile(r"fd=\d+ UDP (\S+) -> (\S+): accelerated: ")
_BACK = re.compile(r"fd=\d+ UDP .*: (?:back to the kernel|not accelerated): (.*)")


def receivers(log) -> list[str]:
    """Addresses of the sockets that were accelerated for receiving."""
    return [m[1] for line in log.lines if (m := _RECEIVER.search(line))]


def routes(log) -> list[tuple[str, str]]:
    """(from, to) of the routes that were accelerated for sending."""
    return [(m[1], m[2]) for line in log.lines if (m := _ROUTE.search(line))]


def reasons(log) -> list[str]:
    """Why sockets went back, or stayed where they were."""
    return [m[1] for line in log.lines if (m := _BACK.search(line))]


def warm_up_env(pair) -> dict[str, str]:
    """The programs' own warm-up (datagrams/side.hpp) waits for acceleration where it is to come."""
    return {"FABTEST_LIFT": "1"} if UDP_IS_ACCELERATED and pair.both else {}


def acceleration(receiver, sender, *, receiver_has: bool, sender_has: bool):
    """Datagrams went from `sender` to `receiver`, which have the library or not: what was accelerated?"""
    for proc, has in ((receiver, receiver_has), (sender, sender_has)):
        if not has:
            assert not proc.log().lines, f"{proc.name} runs without the library, and yet it logged"
    if not UDP_IS_ACCELERATED:
        return
    if receiver_has and sender_has:
        assert receivers(receiver.log()), f"{receiver.name}: no socket was accelerated\n{_text(receiver)}"
        assert routes(sender.log()), f"{sender.name}: no route was accelerated\n{_text(sender)}"
    elif sender_has:
        assert not routes(sender.log()), f"{sender.name}: to a socket without the library?\n{_text(sender)}"


def separated(receiver, sender):
    """Both have the library, and must not have met: they are in different network namespaces."""
    for proc in (receiver, sender):
        assert not routes(proc.log()), f"{proc.name}: a route out of its namespace\n{_text(proc)}"


def _text(proc) -> str:
    return "\n".join(line for line in proc.log().lines if " UDP " in line) or "(no line about UDP in the log)"
