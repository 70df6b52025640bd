# SPDX-License-Identifier: BSD-2-Clause
"""vmad as guardian of connections: a running one, and deaths for it to see."""

import signal
import socket

from . import build, patience


class Vmad:
    """A running vmad of its own path."""

    def __init__(self, run, *prefix):
        self.path = run.work / "vmad.sock"
        self._run = run
        self.proc = run.start("vmad", [*prefix, build.build_dir() / "vmad", "--console", "--verbose", "5",
                                        "--agent-socket", "", "--broker", "", "--socket", self.path])
        self.says("vmad listens at")

    def says(self, text: str, count: int = 1):
        self._run.wait_until(lambda: self.proc.stdout().count(text) >= count, f"vmad to say: {text}", proc=self.proc)

    def connect(self):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(str(self.path))  # waits while others are in the queue, if there is no time-out
        sock.settimeout(patience.seconds())
        return sock


def killed(proc, number=signal.SIGKILL):
    proc.may_fail = True
    proc.send_signal(number)
    proc.wait()
