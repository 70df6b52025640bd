# SPDX-License-Identifier: BSD-2-Clause
"""A guest as the host sees it: its QEMU process, and the commands that its agent (agent.py) runs for us.

Messages are JSON, one a line. To the agent: do=start id argv env cwd; do=signal id number all (its session, or it
alone); do=read id path. From it: ready; id with out or err (what was printed, a byte a character); id with exit."""

import itertools
import json
import socket
import threading
import time

from . import qemu
from .errors import LabError

TIMEOUT = 200.0  # seconds; for what should take no time at all, on a machine that does much else
SHOWN = 2000  # characters of what a command printed, in an error
_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
        "no_proxy": "*"}


class Command:
    """One started command, as fabtests' Runner has them. `status`: None while it runs, -N if signal N ended it."""

    def __init__(self, guest, number: int, name: str, on_output=None):
        self.guest, self.number, self.name, self.on_output = guest, number, name, on_output
        self.status = None
        self.ended = None  # time.monotonic(), when the news came
        self._printed = {"out": bytearray(), "err": bytearray()}

    def stdout(self) -> str:
        return self._printed["out"].decode(errors="replace")

    def stderr(self) -> str:
        return self._printed["err"].decode(errors="replace")

    def output(self) -> str:
        return self.stdout() + self.stderr()

    def alive(self) -> bool:
        return self.status is None

    def wait(self, timeout: float = TIMEOUT) -> int:
        """Exit status. A command that does not end is killed, which is an AssertionError."""
        if not self.guest.wait_until(lambda: self.status is not None, timeout):
            self.kill()
            raise AssertionError(f"{self} did not end within {timeout:.0f} s\n{self.output()[-SHOWN:]}")
        return self.status

    def ok(self, timeout: float = TIMEOUT) -> "Command":
        """Waits for the end, which must be exit status 0."""
        status = self.wait(timeout)
        assert status == 0, f"{self} ended with status {status}\n{self.output()}"
        return self

    def wait_output(self, text: str, timeout: float = TIMEOUT) -> "Command":
        """Waits until it has printed `text`."""
        self.guest.wait_until(lambda: text in self.output() or not self.alive(), timeout)
        assert text in self.output(), f"{self} did not print {text!r}\n{self.output()}"
        return self

    def send_signal(self, number: int, everything: bool = False):
        """To the command alone, or to all processes of its session."""
        self.guest.say(do="signal", id=self.number, number=number, all=everything)

    def stop(self, number: int = 15) -> int:
        """Asks it to end, waits, and returns the exit status."""
        if self.alive():
            self.send_signal(number)
        return self.wait()

    def kill(self):
        """SIGKILL to it and everything of its session."""
        if self.alive():
            self.send_signal(9, everything=True)
            self.guest.wait_until(lambda: self.status is not None, TIMEOUT)

    def take(self, message):
        """News of it from the agent; the guest's lock is held."""
        for stream in ("out", "err"):
            self._printed[stream] += message.get(stream, "").encode("latin-1")
        if "exit" in message:
            self.status, self.ended = message["exit"], time.monotonic()

    def __str__(self):
        return f"{self.guest.role}: {self.name}"


class Guest:
    """One host. `role` is "server" or "client", and `peer` the other one; a host that is alone is a "system"."""

    kind, processors, library = "device", 1, ""  # see initramfs.py
    slowness = staticmethod(lambda: 1.0)  # what each time-out is multiplied by: who measures that puts a function here

    def __init__(self, role: str, number: int, mtu: int = 1500):
        self.role, self.mtu = role, mtu
        self.address, self.address6 = f"10.99.0.{number}", f"fd99::{number}"
        self.mac = f"52:54:00:00:00:{number:02x}"
        self.peer = None
        self.commands = []
        self._news = threading.Condition()
        self._ready = self._gone = False
        self._machine = None
        self._port = None
        self._mute = False

    # ---- from power on to power off

    def boot(self, kernel, wire: socket.socket | None, memory: int):
        self._port, theirs = socket.socketpair()
        with theirs:
            self._machine = qemu.Machine(self, kernel, wire, theirs, memory)
        threading.Thread(target=self._listen, name=f"lab {self.role}", daemon=True).start()

    def wait_ready(self, timeout: float):
        if not self.wait_until(lambda: self._ready, timeout):
            raise LabError(f"the {self.role} guest was not up after {timeout:.0f} s:\n{self.console()}")

    def power_off(self):
        """At once: it has nothing to lose."""
        if self._machine:
            self._machine.kill()
            self._port.close()

    def console(self, lines: int = 30) -> str:
        """The end of what kernel and init wrote on the serial console."""
        return "\n".join(self._machine.console().splitlines()[-lines:])

    # ---- commands

    def start(self, argv, *, env=None, cwd="/", name=None, on_output=None) -> Command:
        """`argv`: a list, or a string for the shell. `env` is added to an environment that is none of the host's.
        `on_output` is called with (command, stream, text) from another thread; stream is "out" or "err"."""
        argv = ["/bin/sh", "-c", argv] if isinstance(argv, str) else [str(word) for word in argv]
        lab = {"LAB_ROLE": self.role, "FABTESTS_PATIENCE": self.slowness()}
        if self.peer:
            lab |= {"LAB_ADDR": self.address, "LAB_ADDR6": self.address6,
                    "LAB_PEER": self.peer.address, "LAB_PEER6": self.peer.address6}
        env = {name: str(value) for name, value in {**_ENV, **lab, **(env or {})}.items()}
        return self._request(name or " ".join(argv), on_output, do="start", argv=argv, env=env, cwd=str(cwd))

    def run(self, argv, *, timeout: float = TIMEOUT, **options) -> str:
        """Starts argv and waits for exit status 0; what it printed on standard output."""
        return self.start(argv, **options).ok(timeout).stdout()

    def read(self, path) -> str:
        """A file of the guest."""
        return self._request(f"read {path}", None, do="read", path=str(path)).ok().stdout()

    def _request(self, name: str, on_output, **message) -> Command:
        with self._news:
            command = Command(self, len(self.commands), name, on_output)
            self.commands.append(command)
        self.say(id=command.number, **message)
        return command

    def end_commands(self):
        """Kills what still runs."""
        for command in self.commands:
            command.kill()

    # ---- the wire and the device, and what can happen to them

    def rdma_devices(self) -> list[str]:
        return [link["ifname"] for link in json.loads(self.run(["rdma", "-j", "link", "show"]))]

    def rdma_delete(self):
        """Takes the device away, from under whoever uses it."""
        self.run(["rdma", "link", "delete", "rxe0"])

    def rdma_add(self):
        self.run(["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0"])

    def link(self, up: bool):
        """The Ethernet interface, and with it the RDMA device's port."""
        self.run(["ip", "link", "set", "eth0", "up" if up else "down"])

    def mute(self, mute: bool):
        """Whatever goes to the peer is lost on the way. Nobody is told, as nobody is when a cable between switches breaks:
        while link(False) is told to the device, and a MAD that finds no route then is the end of rxe's GSI queue pair."""
        lossy = ["root", "netem", "loss", "100%"] if mute else ["root"]
        self.run(["tc", "qdisc", "replace" if mute else "delete", "dev", "eth0", *lossy])
        self._mute = mute

    def restore(self):
        """What the functions above broke is whole again."""
        self.link(True)
        if self._mute:
            self.mute(False)
        if "rxe0" not in self.rdma_devices():
            self.rdma_add()

    def listeners(self) -> set[str]:
        """Whatever waits for a peer: TCP and RDMA listeners, UDP sockets. Only good for seeing a difference."""
        return self._sockets() | self._rdma_listeners()

    def wait_listening(self, command: Command, before: set[str], timeout: float = TIMEOUT) -> bool:
        """Waits until somebody listens who did not `before`. False when the command ended, or the time was up."""
        begin = time.monotonic()
        for turn in itertools.count():
            # Looking for RDMA listeners starts a program, which takes time from the one that is waited for.
            if self._sockets() - before or (turn % 4 == 3 and self._rdma_listeners() - before):
                return True
            if not command.alive() or time.monotonic() > begin + timeout * self.slowness():
                return False
            time.sleep(0.05)

    def _sockets(self) -> set[str]:
        found = set()
        for table, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
            lines = [line.split() for line in self.read(f"/proc/net/{table}").splitlines()]
            found |= {f"{table} {fields[1]}" for fields in lines if fields[3] == state}
        return found

    def _rdma_listeners(self) -> set[str]:
        return {line for line in self.run(["rdma", "resource", "show", "cm_id"]).splitlines() if "LISTEN" in line}

    # ---- the channel

    def wait_until(self, condition, timeout: float) -> bool:
        """Waits for news from the agent that make the condition true."""
        begin, met, left = time.monotonic(), False, timeout
        with self._news:
            while not met and left > 0:
                left = begin + timeout * self.slowness() - time.monotonic()
                met = self._news.wait_for(lambda: condition() or self._gone, left)
            if self._gone and not condition():
                raise LabError(f"the {self.role} guest is gone:\n{self.console()}")
            return bool(met)

    def say(self, **message):
        try:
            self._port.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise LabError(f"the {self.role} guest is gone ({error}):\n{self.console()}") from None

    def _listen(self):
        try:
            with self._port.makefile("rb") as lines:
                for line in lines:
                    self._hear(json.loads(line))
        except (OSError, ValueError):
            pass  # the host closed its end, or QEMU died in mid-message
        with self._news:
            self._gone = True
            self._news.notify_all()

    def _hear(self, message):
        with self._news:
            self._ready |= "ready" in message
            command = self.commands[message["id"]] if "id" in message else None
            if command:
                command.take(message)
            self._news.notify_all()
        if command and command.on_output:
            for stream in {"out", "err"} & message.keys():
                command.on_output(command, stream, message[stream].encode("latin-1").decode(errors="replace"))
