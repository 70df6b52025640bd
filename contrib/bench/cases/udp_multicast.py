# SPDX-License-Identifier: BSD-2-Clause
"""One sender and three receivers of a multicast group, in a network of their own: at a pace at which nobody may miss
anything, and at full speed, where each receiver got or knows to have lost every single message. The sender has one CPU,
the receivers share the other."""
from __future__ import annotations

import contextlib
from typing import Any

from benchlib import parsers, procs
from benchlib.bench import Bench
from benchlib.model import KERNEL, Case, Metric, Mode, at_least, never_more

RECEIVERS = 3
SIZE = 64
RATE = 500_000
SECONDS = 0.4
GROUP = ("239.9.9.9", "12345")  # the network is ours alone
PATIENCE = 20.0

PACE = Metric("pace", "paced, sent", "messages/s")
MISSED = Metric("missed", "paced, missed by the worst receiver", "messages", lower_is_better=True)
SENT = Metric("sent", "full speed, sent", "messages/s")
RECEIVED = Metric("received", "full speed, received by the slowest receiver", "messages/s")
DROPPED = Metric("dropped", "full speed, dropped at the worst receiver", "%", lower_is_better=True)
UNEXPLAINED = Metric("unexplained", "full speed, neither received nor counted as dropped", "messages",
                     lower_is_better=True)


class UdpMulticast(Case):
    name = "udp-multicast"
    title = "multicast, 3 receivers, 64 B"
    seconds = 3
    by_hand = ("LD_PRELOAD=libvma.so udp_group receive 239.9.9.9 12345 &  # three of them\n"
               f"LD_PRELOAD=libvma.so udp_group send 239.9.9.9 12345 {SIZE} {SECONDS} {RATE}")
    helpers = ("udp_group",)
    needs = ("ip",)
    needs_root = True
    metrics = (PACE, MISSED, SENT, RECEIVED, DROPPED, UNEXPLAINED)
    targets = (at_least(f"paced {RATE:,}/s, sent", PACE, limit=0.99 * RATE),
               never_more(f"paced {RATE:,}/s, missed by any receiver, any round", MISSED, limit=0),
               never_more("full speed, neither received nor counted as dropped, any receiver, any round", UNEXPLAINED,
                          limit=0))
    compare = ((PACE, KERNEL.key), (SENT, KERNEL.key), (RECEIVED, KERNEL.key))

    def run(self, bench: Bench, mode: Mode) -> dict[str, float]:
        with procs.network_namespace() as namespace:
            paced, counts = _send(bench, mode, namespace, str(RATE))
            figures = {PACE.key: paced["sent"] / paced["seconds"],
                       MISSED.key: float(max(paced["sent"] - count["received"] for count in counts)),
                       "paced_unexplained": float(max(unexplained(count) for count in counts))}
            full, counts = _send(bench, mode, namespace)
        fewest = min(count["received"] for count in counts)
        return {**figures, SENT.key: full["sent"] / full["seconds"], RECEIVED.key: fewest / full["seconds"],
                DROPPED.key: 100 * (1 - fewest / full["sent"]),
                UNEXPLAINED.key: float(max(unexplained(count) for count in counts))}


def unexplained(count: dict[str, Any]) -> int:
    """Messages of those sent before the receiver's last that it neither got nor knows to have been dropped, and those
    that it got twice or in the wrong place. A gap in the sequence that the socket did not count, or the other way
    round, is a message too."""
    not_counted = max(abs(count["before"] - count["received"] - count["dropped"]),
                      abs(count["missing"] - count["dropped"]))
    return int(not_counted + count["misplaced"])


def _send(bench: Bench, mode: Mode, namespace: procs.Namespace, *rate: str) \
        -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the sender and what each of the receivers counted."""
    program = bench.helper("udp_group")
    with contextlib.ExitStack() as running:
        receive = [program, "receive", *GROUP]
        receivers = [running.enter_context(bench.stepped(mode, receive, bench.server_cpu, namespace))
                     for _ in range(RECEIVERS)]
        for receiver in receivers:
            if (said := procs.next_line(receiver, PATIENCE)) != "ready":
                raise procs.RunError(f"a receiver is not ready: {said}")
        sender = running.enter_context(bench.stepped(mode, [program, "send", *GROUP, str(SIZE), str(SECONDS), *rate],
                                                     namespace=namespace))
        sent = parsers.json_line(procs.next_line(sender, PATIENCE))
        return sent, [parsers.json_line(procs.next_line(receiver, PATIENCE)) for receiver in receivers]
