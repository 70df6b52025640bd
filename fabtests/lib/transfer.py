# SPDX-License-Identifier: BSD-2-Clause
"""The program `transfer` with its progress file: a stream that can be watched, paused and cut off."""

import mmap
import re
import struct

from . import peers

PROGRAM = "sockets/programs/transfer"
SENT, RECEIVED, PAUSE_AT, GO_ON = range(4)


class Transfer:
    """direction: "up" (client to server), "down", or "both". Positions are read from outside, dead or alive."""

    def __init__(self, run, pair, direction="up", amount=1 << 50, piece=60_000, pause_at=0, **options):
        self.run, self.direction, self.piece = run, direction, piece
        path = run.work / f"progress-{len(run.procs)}"
        path.write_bytes(bytes(4096))
        path.chmod(0o666)
        with path.open("r+b") as f:
            self._map = mmap.mmap(f.fileno(), 4096)
        for side in ("server", "client"):
            self._set(side, PAUSE_AT, pause_at)
        self.server, self.client = peers.start(run, pair, PROGRAM, direction, amount, piece, 4711, path, **options)
        self.source, self.sink = (("client", "server") if direction == "up" else ("server", "client"))

    def _offset(self, side, word):
        return (0 if side == "server" else 32) + 8 * word

    def _get(self, side, word) -> int:
        return struct.unpack_from("Q", self._map, self._offset(side, word))[0]

    def _set(self, side, word, value):
        struct.pack_into("Q", self._map, self._offset(side, word), value)

    def sent(self) -> int:
        return self._get(self.source, SENT)

    def received(self) -> int:
        return self._get(self.sink, RECEIVED)

    def go_on(self):
        for side in ("server", "client"):
            self._set(side, GO_ON, 1)

    def proc(self, name):
        return getattr(self, name)

    def wait_received(self, amount: int):
        sides = ("server", "client") if self.direction == "both" else (self.sink,)
        for side in sides:
            self.run.wait_until(lambda s=side: self._get(s, RECEIVED) >= amount, f"{amount} bytes at the {side}",
                                proc=self.proc(side))

    def end_of(self, side: str, what: str) -> tuple[int, str]:
        """What a side that ended by itself said of its end: position and "end" or an error name."""
        text = self.proc(side).ok().stdout()
        found = re.search(rf"^{what} (\d+) (\w+)$", text, re.M)
        assert found, f"{side} said nothing of '{what}':\n{self.proc(side).output()}"
        return int(found[1]), found[2]
