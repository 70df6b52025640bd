# SPDX-License-Identifier: BSD-2-Clause
"""A terminal for a full-screen program: a pty, and the screen that a VT100 would show of what the program writes."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios

from . import patience

# Cursor position, erase, movement, and what has no effect here; then characters.
SEQUENCE = re.compile(rb"\x1b\[([?0-9;]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b[=>78MDE]|[\x0e\x0f]|\r|\n|\x08|\t|([\x20-\x7e\x80-\xff]+)")


class Terminal:
    def __init__(self, argv, lines=24, columns=100, env=None):
        self.lines, self.columns = lines, columns
        self.raw = b""
        self._rest = b""
        self._clear()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                self._tell_size(0)  # before it can ask: of a later one it hears only when it listens for SIGWINCH
                os.execvpe(argv[0], [str(a) for a in argv], {**os.environ, "TERM": "vt100", **(env or {})})
            finally:
                os._exit(127)
        self.settings = termios.tcgetattr(self.fd)

    def _clear(self):
        self.line = self.column = 0
        self.top, self.bottom = 0, self.lines - 1  # what scrolls
        self.screen = [[" "] * self.columns for _ in range(self.lines)]

    def resize(self, lines, columns):
        self.lines, self.columns = lines, columns
        self._clear()
        self._tell_size(self.fd)

    def _tell_size(self, fd):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", self.lines, self.columns, 0, 0))

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.screen)

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self, condition, what):
        """Reads until condition(text of the screen) holds."""
        deadline = patience.Deadline()
        while not condition(self.text()):
            if not self._read(deadline):
                raise AssertionError(f"no {what} on the screen:\n{self.text()}")
        return self.text()

    def read_all(self):
        """Reads until the program has ended."""
        deadline = patience.Deadline()
        while self._read(deadline):
            pass

    def finish(self):
        """Waits for the program's end; its exit status."""
        self.read_all()
        return self.close()

    def close(self):
        if self.pid is None:
            return None
        os.close(self.fd)
        done, status = os.waitpid(self.pid, os.WNOHANG)
        if not done:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
        self.pid = None
        return os.waitstatus_to_exitcode(status)

    def _read(self, deadline):
        while not select.select([self.fd], [], [], deadline.left())[0]:
            if deadline.over():
                return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # EIO: the program has ended
            return False
        self.raw += data
        self._show(self._rest + data)
        return bool(data)

    def _show(self, data):
        at = 0
        while at < len(data):
            match = SEQUENCE.match(data, at)
            if not match:
                if data[at] == 0x1b and len(data) - at < 16:
                    break  # the rest of it comes later
                at += 1
                continue
            at = match.end()
            self._apply(match)
        self._rest = data[at:]

    def _apply(self, match):
        whole = match.group(0)
        if match.group(3):
            for byte in match.group(3).decode("latin-1"):
                if self.line < self.lines and self.column < self.columns:
                    self.screen[self.line][self.column] = byte
                self.column += 1
        elif whole == b"\r":
            self.column = 0
        elif whole in (b"\n", b"\x1bD"):
            self._down()
        elif whole == b"\x1bM":
            self._up()
        elif whole == b"\x08":
            self.column = max(self.column - 1, 0)
        elif whole == b"\t":
            self.column = (self.column // 8 + 1) * 8
        elif match.group(2):
            self._control(match.group(2).decode(), [int(n or 0) for n in match.group(1).lstrip(b"?").split(b";")])

    def _down(self):
        if self.line == self.bottom:
            del self.screen[self.top]
            self.screen.insert(self.bottom, [" "] * self.columns)
        else:
            self.line = min(self.line + 1, self.lines - 1)

    def _up(self):
        if self.line == self.top:
            del self.screen[self.bottom]
            self.screen.insert(self.top, [" "] * self.columns)
        else:
            self.line = max(self.line - 1, 0)

    def _control(self, letter, numbers):
        count = max(numbers[0], 1)
        if letter == "H":
            self.line = min(max(numbers[0], 1), self.lines) - 1
            self.column = max(numbers[1] if len(numbers) > 1 else 1, 1) - 1
        elif letter == "J":
            for line in range(self.line if numbers[0] == 0 else 0, self.lines):
                start = self.column if numbers[0] == 0 and line == self.line else 0
                self.screen[line][start:] = [" "] * (self.columns - start)
        elif letter == "K":
            start, end = {0: (self.column, self.columns), 1: (0, self.column + 1)}.get(numbers[0], (0, self.columns))
            if self.line < self.lines:
                self.screen[self.line][start:end] = [" "] * (min(end, self.columns) - start)
        elif letter == "r":
            bottom = numbers[1] if len(numbers) > 1 and numbers[1] else self.lines
            self.top, self.bottom = count - 1, min(bottom, self.lines) - 1
            self.line = self.column = 0
        elif letter == "C":
            self.column += count
        elif letter == "D":
            self.column = max(self.column - count, 0)
        elif letter == "A":
            self.line = max(self.line - count, 0)
        elif letter == "B":
            self.line = min(self.line + count, self.lines - 1)
