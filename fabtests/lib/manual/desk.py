# SPDX-License-Identifier: BSD-2-Clause
"""Terminals at which a page's commands are typed, on a host of their own where the project is installed below /usr/local:
network, processes, /tmp and /usr/local are nobody else's. Each terminal is a bash behind a pty."""

import fcntl
import os
import pathlib
import pty
import re
import signal
import struct
import termios

from lib import build
from lib.manual import page

# In this order: the build may be below /tmp itself.
_FURNISH = """set -e
mount --bind "$BUILD/.libs" /usr/local/lib
mount --bind "$BUILD" /usr/local/bin
mount --bind "$TOP/include" /usr/local/include
mount --bind "$PLACE/links" /usr/local/sbin
mount --bind "$PLACE/tmp" /tmp
unset BUILD TOP PLACE
exec bash
"""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _children(pid) -> list[int]:
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Desk:
    def __init__(self, run, host):
        self.run, self.host = run, host
        self.place = run.work / "desk"
        self.tmp, self.terminals, self.pid = self.place / "tmp", {}, None
        for folder in (self.tmp, self.place / "links"):
            folder.mkdir(parents=True)
        self.tmp.chmod(0o1777)
        (self.tmp / "libvma.conf").touch()
        (self.place / "links" / "udp_lat").symlink_to("/usr/local/bin/vma_lat")

    def terminal(self, name) -> "Terminal":
        if name not in self.terminals:
            self.terminals[name] = Terminal(self, name)
        return self.terminals[name]

    def start(self, name, stdin, stdout):
        """The first of them makes the place, the others enter it."""
        env = {"BUILD": str(build.build_dir()), "TOP": str(build.TOP), "PLACE": str(self.place), "PATH": _PATH, "TERM": "xterm",
               "LD_LIBRARY_PATH": "/usr/local/lib", "VMA_CONFIG_FILE": "/tmp/libvma.conf", "VMA_STATS_SHMEM_DIR": "/tmp/"}
        options = {"env": env, "stdin": stdin, "stdout": stdout, "netns": self.host.file}
        if self.pid is None:
            # Processes of its own, from number 1 on: pgrep and vma_stats find nobody else's.
            own = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]
            proc = self.run.start(name, [*own, "sh", "-c", _FURNISH], **options)
            self.pid = self.run.wait_until(lambda: _children(proc.pid), "the terminal", proc=proc)[0]
            return proc, lambda: self.pid
        enter = f"unset BUILD TOP PLACE; exec nsenter --target {self.pid} --mount --pid bash"
        proc = self.run.start(name, ["sh", "-c", enter], **options)
        return proc, lambda: next(iter(_children(proc.pid)), proc.pid)

    def finish(self):
        """Ctrl-C wherever something still runs, then the ends of the shells: of the first one last."""
        for terminal in [*self.terminals.values()][::-1]:
            terminal.close()

    def release(self):
        """In any case, at the end of the test."""
        for terminal in self.terminals.values():
            terminal.release()


class Terminal:
    """Commands one after the other, and what was seen since the last began."""

    def __init__(self, desk, name):
        self.desk, self.name = desk, name
        self.text, self.count, self.running = "", 0, None
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        os.set_blocking(self._master, False)
        read, self._type = os.pipe()
        with os.fdopen(slave, "wb", buffering=0) as stdout, os.fdopen(read, "rb") as stdin:
            self.proc, self._shell = desk.start(f"{name} terminal", stdin, stdout)
        self.proc.may_fail = True  # it ends as the last command did
        self._write("exec 2>&1; cd /tmp")

    def _write(self, line):
        os.write(self._type, (line + "\n").encode())

    def look(self) -> str:
        """All that was seen since the last command began."""
        while True:
            try:
                data = os.read(self._master, 65536)
            except (BlockingIOError, OSError):  # EIO: nobody has it open
                return self.text
            self.text += data.decode(errors="replace")

    def begin(self, command):
        self.look()
        self.text, self.running = "", command
        self.count += 1
        # The status comes behind all that is seen, in a sequence that no terminal shows. The next command may ask for it.
        told = rf"printf '\033[{self.count};%dz' $status"
        self._write("{ " + command + "\n} </dev/null; status=$?; " + told + "; (exit $status)")

    def ended(self) -> int | None:
        """The status of the last command, if it has ended."""
        found = re.search(rf"\x1b\[{self.count};(\d+)z", self.look())
        return int(found[1]) if found else None

    def wait(self, condition, what):
        try:
            return self.desk.run.wait_until(condition, what, proc=self.proc)
        except AssertionError as error:
            raise AssertionError(f"{self.running}: {error}\n{self.look()}") from None

    def wait_seen(self, seen):
        """Until all lines are there; at once wrong when the command has ended without them."""
        def is_there():
            status = self.ended()
            lost = page.missing(seen, self.look())
            assert lost is None or status is None, f"ended with {status}; not seen: {lost}"
            return lost is None
        self.wait(is_there, f"{seen} to be seen")

    def wait_end(self) -> int:
        self.wait(lambda: self.ended() is not None, "the end")
        return self.ended()

    def interrupt(self):
        """As Ctrl-C does: to what the shell has started."""
        for pid in _children(self._shell()):
            try:
                os.kill(pid, signal.SIGINT)
            except ProcessLookupError:
                pass

    def close(self):
        if self.count and self.ended() is None:
            self.interrupt()
            self.wait_end()
        self._write("exit")
        self.proc.wait()

    def release(self):
        os.close(self._type)
        os.close(self._master)
