# SPDX-License-Identifier: BSD-2-Clause
"""Starting, pinning, waiting for and ending processes. Only what was started here is ever ended, by its group."""
from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Cpus = frozenset[int]
_LISTEN = "0A"
_BOUND = "07"  # as /proc/net/udp has it
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None)


class RunError(RuntimeError):
    """A program failed, did not come up or did not end in time."""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def free_udp_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(count)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [int(s.getsockname()[1]) for s in sockets]


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without anything that concerns the library, and `extra`."""
    ours = ("VMA_", "LD_PRELOAD", "FI_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    env["LC_ALL"] = "C"
    env.update(extra)
    return env


@dataclass(frozen=True)
class Namespace:
    """A network of its own for the programs that get it: loopback, nothing else. It is known by a descriptor only, so
    that it goes away with the last program in it, however the benchmark ends."""
    fd: int

    def enter(self) -> None:
        if _libc.setns(self.fd, _CLONE_NEWNET) != 0:
            raise OSError("setns failed")


@contextlib.contextmanager
def network_namespace() -> Iterator[Namespace]:
    """With a route for multicast on its loopback interface. Needs root."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise RunError("no network namespace: this needs root")
        try:
            made = Namespace(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        finally:
            Namespace(own).enter()
    finally:
        os.close(own)
    try:
        for command in (["ip", "link", "set", "lo", "up"], ["ip", "route", "add", "224.0.0.0/4", "dev", "lo"]):
            done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=made.enter)
            if done.returncode != 0:
                raise RunError(f"{' '.join(command)}: {_last_words(done.stderr)}")
        yield made
    finally:
        os.close(made.fd)


def _prepare(cpus: Cpus, namespace: Namespace | None = None) -> Callable[[], None]:
    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # nothing outlives the benchmark, however that ends
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where we are a shell's background job
        if namespace:
            namespace.enter()
        if cpus:
            os.sched_setaffinity(0, cpus)

    return prepare


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the process and all of its group. The process is reaped last, so that its number is still ours."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + 5
    while not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) and time.monotonic() < deadline:
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def listening(port: int, network: str = "/proc/net") -> bool:
    """True when something listens on the TCP port. Seen from outside: a trial connection would be counted by the
    servers and by the library's log as one of theirs."""
    suffix = f":{port:04X}"
    for table in (f"{network}/tcp", f"{network}/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and fields[1].endswith(suffix):
                    return True
    return False


def bound(ports: Collection[int], network: str = "/proc/net") -> bool:
    """True when each of the UDP ports is some socket's."""
    seen = set()
    for line in Path(f"{network}/udp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _BOUND:
            seen.add(int(fields[1].rpartition(":")[2], 16))
    return seen.issuperset(ports)


def wait_port(process: subprocess.Popen[str], port: int, udp: bool, limit: float = 10.0) -> None:
    """For a stepped program in a namespace of its own."""
    network = f"/proc/{process.pid}/net"
    deadline = time.monotonic() + limit
    while not (bound([port], network) if udp else listening(port, network)):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RunError(f"{_name(process)} does not listen")
        time.sleep(0.005)


def _wait_ready(process: subprocess.Popen[str], ready: Callable[[], bool], log: Path, limit: float) -> None:
    deadline = time.monotonic() + limit
    while not ready():
        if process.poll() is not None:
            raise RunError(f"{_how_ended(process)}: {_tail(log)}")
        if time.monotonic() > deadline:
            raise RunError(f"{_name(process)} does not listen after {limit:g} s: {_tail(log)}")
        time.sleep(0.005)


def _name(process: subprocess.Popen[str]) -> str:
    return os.path.basename(str(process.args[0]))  # type: ignore[index]


def _how_ended(process: subprocess.Popen[str]) -> str:
    status = process.returncode
    if status >= 0:
        return f"{_name(process)} ended with {status}"
    return f"{_name(process)} was ended by {signal.Signals(-status).name}"


def _tail(log: Path) -> str:
    return _last_words(log.read_text(errors="replace"))


def _last_words(output: str) -> str:
    lines = dict.fromkeys(line.strip() for line in output.strip().splitlines()[-4:])
    return " | ".join(lines) or "(no output)"


@contextlib.contextmanager
def _served(argv: Sequence[str], ready: Callable[[], bool], cpus: Cpus, env: Mapping[str, str], scratch: Path,
            limit: float) -> Iterator[subprocess.Popen[str]]:
    log = _server_log(scratch)
    with log.open("w") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, text=True,
                                   cwd=scratch, env=clean_environment(env), start_new_session=True,
                                   preexec_fn=_prepare(cpus))
    try:
        _wait_ready(process, ready, log, limit)
        yield process
    finally:
        _end(process)


def _server_log(scratch: Path) -> Path:
    return scratch / "server.out"


@contextlib.contextmanager
def server(argv: Sequence[str], port: int, cpus: Cpus, env: Mapping[str, str], scratch: Path,
           limit: float = 10.0) -> Iterator[subprocess.Popen[str]]:
    """A server that listens on `port` for as long as the context lasts."""
    with _served(argv, lambda: listening(port), cpus, env, scratch, limit) as process:
        yield process


@contextlib.contextmanager
def udp_server(argv: Sequence[str], ports: Collection[int], cpus: Cpus, env: Mapping[str, str], scratch: Path,
               limit: float = 10.0) -> Iterator[Callable[[], str]]:
    """A server that has bound UDP `ports`. What is given ends it as Ctrl-C would, so that it says what it counted, and
    returns its output."""
    with _served(argv, lambda: bound(ports), cpus, env, scratch, limit) as process:
        def interrupt() -> str:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                raise RunError(f"{_name(process)} did not end within {limit:g} s when interrupted") from None
            return _server_log(scratch).read_text(errors="replace")

        yield interrupt


def client(argv: Sequence[str], cpus: Cpus, env: Mapping[str, str], scratch: Path, limit: float,
           namespace: Namespace | None = None) -> str:
    """Runs a program to its end and returns what it printed."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", cwd=scratch, env=clean_environment(env),
                               start_new_session=True, preexec_fn=_prepare(cpus, namespace))
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        _end(process)
        output, _ = process.communicate()
        raise RunError(f"{_name(process)} did not end within {limit:g} s: {_last_words(output)}") from None
    finally:
        _end(process)
    if process.returncode != 0:
        raise RunError(f"{_how_ended(process)}: {_last_words(output)}")
    return str(output)


@contextlib.contextmanager
def stepped(argv: Sequence[str], cpus: Cpus, env: Mapping[str, str], scratch: Path,
            namespace: Namespace | None = None) -> Iterator[subprocess.Popen[str]]:
    """A program that talks with us over its standard input and output, line by line."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=scratch,
                               env=clean_environment(env), start_new_session=True,
                               preexec_fn=_prepare(cpus, namespace))
    try:
        yield process
    finally:
        _end(process)
        for stream in (process.stdin, process.stdout):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def next_line(process: subprocess.Popen[str], limit: float) -> str:
    """What a stepped program says next; it says a line at a time."""
    assert process.stdout
    if not select.select([process.stdout], [], [], limit)[0]:
        raise RunError(f"{_name(process)} said nothing for {limit:g} s")
    line = process.stdout.readline()
    if not line:
        process.wait()
        raise RunError(_how_ended(process))
    return line.rstrip("\n")
