# SPDX-License-Identifier: BSD-2-Clause
"""A running vmad with a broker, which has a tree of control groups in a mount namespace of its own."""

import os
import socket
import subprocess

import pytest

from . import build, patience
from .guardian import killed

_SO_PEERPIDFD = 77
# In a mount namespace of its own: the tree, then the program.
IN_TREE = ("unshare", "-m", "sh", "-c", 'mount -t cgroup2 none "$0" || exit 77; exec "$@"')


class Introducer:
    """Of a machine, if there is one, and then where the library looks for it."""

    def __init__(self, run, rules="", options=(), machine=None):
        if os.geteuid() != 0:
            pytest.skip("only root can load a program that hears of connections")
        self._run = run
        self.path = machine.file("/run/vma/broker") if machine else run.work / "broker"
        self.tree, self.config, self._machine = run.work / "tree", run.work / "vmad.conf", machine
        self.tree.mkdir()
        self.config.write_text(rules, encoding="utf-8")
        self._options = options
        self.stopped = False
        self.start()

    def command(self, *options):
        broker = ["--broker", self.path] if self._machine is None else []
        command = [*IN_TREE, self.tree, build.build_dir() / "vmad", "--console", "-v", "6", "--agent-socket", "", "--socket", "",
                   *broker, "--config", self.config, "--cgroup", self.tree, *options]
        return command if self._machine is None else self._machine.command(*command)

    def start(self):
        self.proc = self._run.start("vmad", self.command(*self._options))
        self._run.wait_until(lambda: "vmad introduces" in self.proc.stdout() or "no broker" in self.proc.stderr() or not self.proc.alive(),
                             "vmad to introduce")
        if not self.proc.alive() and self.proc.wait() == 77:
            self.proc.may_fail = True
            pytest.skip(f"no control groups of version 2 here: {self.proc.stderr()}")
        if "no broker" in self.proc.stderr():
            said = self.proc.stderr().strip()
            assert "Operation not permitted" in said or "Invalid argument" in said and "refuses" not in said, said
            pytest.skip(f"no program can hear of connections here: {said}")

    def kill(self):
        killed(self.proc)

    def finish(self):
        if not self.stopped:
            assert self.proc.alive(), self.proc.output()
            assert self.proc.stop() == 0
            assert not self.path.exists()

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.proc.pid}/fd"))

    def remove_group(self, name):
        subprocess.run([*IN_TREE, self.tree, "rmdir", f"{self.tree}/{name}"], check=True, capture_output=True, timeout=patience.seconds())

    @staticmethod
    def knows_groups() -> bool:
        one, other = socket.socketpair()
        with one, other:
            try:
                os.close(one.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD))
            except OSError:
                return False
            return True
