# SPDX-License-Identifier: BSD-2-Clause
"""Runs in a guest, as its process 1: starts commands, passes on what they print, tells how they ended. It speaks JSON,
a message a line, over a virtio-serial port with guest.py, which lists the messages. Few imports: each costs time."""

import json
import os
import select
import signal

CHUNK = 65536  # as much as a pipe holds


class Agent:
    def __init__(self, port: int):
        self.port = port
        self.pids = {}  # pid: command's number
        self.pipes = {}  # descriptor: (command's number, "out" or "err")
        self.poll = select.poll()
        self.poll.register(port, select.POLLIN)
        # A child's end wakes the loop. Process 1 also gets those whose parents are gone.
        self.wake, writer = os.pipe()
        for end in (self.wake, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self.poll.register(self.wake, select.POLLIN)

    def say(self, **message):
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self.port, data):]

    def run(self):
        self.say(ready=True)
        rest = b""
        while True:
            for fd, _ in self.poll.poll():
                if fd == self.port:
                    rest = self.listen(rest)
                elif fd == self.wake:
                    os.read(self.wake, CHUNK)
                    self.reap()
                elif fd in self.pipes:  # else closed since poll() looked
                    self.pass_on(fd)

    def listen(self, rest: bytes) -> bytes:
        """Obeys what has come. Takes and returns the beginning of a message whose end has not."""
        data = os.read(self.port, CHUNK)
        if not data:
            raise SystemExit("the host has closed the channel")  # process 1 ends, and so the guest
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            self.obey(json.loads(line))
        return rest

    def obey(self, message):
        if message["do"] == "start":
            self.start(message["id"], message["argv"], message["env"], message["cwd"])
        elif message["do"] == "signal":
            for pid in [pid for pid, command in self.pids.items() if command == message["id"]]:
                try:
                    (os.killpg if message["all"] else os.kill)(pid, message["number"])
                except ProcessLookupError:
                    pass
        elif message["do"] == "read":
            try:
                with open(message["path"], "rb") as file:
                    self.say(id=message["id"], out=file.read().decode("latin-1"))
                self.say(id=message["id"], exit=0)
            except OSError as error:
                self.say(id=message["id"], err=str(error))
                self.say(id=message["id"], exit=1)

    def start(self, command, argv, env, cwd):
        ends = {}
        for stream in ("out", "err"):
            reader, ends[stream] = os.pipe()
            os.set_blocking(reader, False)
            self.pipes[reader] = (command, stream)
            self.poll.register(reader, select.POLLIN)
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                signal.set_wakeup_fd(-1)
                for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
                    signal.signal(ignored_by_python, signal.SIG_DFL)
                os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
                os.dup2(ends["out"], 1)
                os.dup2(ends["err"], 2)
                os.chdir(cwd)
                os.execvpe(argv[0], argv, env)
            except OSError as error:
                os.write(2, f"{argv[0]}: {error}\n".encode())
            finally:
                os._exit(127)
        self.pids[pid] = command
        for end in ends.values():
            os.close(end)

    def pass_on(self, fd):
        """What the pipe has now."""
        command, stream = self.pipes[fd]
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        if data:
            self.say(id=command, **{stream: data.decode("latin-1")})
        else:
            self.poll.unregister(fd)
            del self.pipes[fd]
            os.close(fd)

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            command = self.pids.pop(pid, None)
            if command is not None:
                # What it printed comes before the news of its end. Its children may go on printing.
                for fd in [fd for fd, (owner, _) in self.pipes.items() if owner == command]:
                    self.pass_on(fd)
                self.say(id=command, exit=os.waitstatus_to_exitcode(status))


def open_port() -> int:
    """The only virtio-serial port there is. Its name has a number that depends on how many devices come before it."""
    (name,) = os.listdir("/sys/class/virtio-ports")
    return os.open(f"/dev/{name}", os.O_RDWR | os.O_CLOEXEC)


if __name__ == "__main__":
    Agent(open_port()).run()
