# SPDX-License-Identifier: BSD-2-Clause
"""Starting, pinning, waiting for and ending processes. Only what was started here is ever ended, by its group."""
from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

Cpus = frozenset[int]
_LISTEN = "0A"
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class RunError(RuntimeError):
    """A program failed, did not come up or did not end in time."""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without anything that concerns the library, and `extra`."""
    ours = ("VMA_", "LD_PRELOAD", "FI_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    env["LC_ALL"] = "C"
    env.update(extra)
    return env


def _prepare(cpus: Cpus) -> Callable[[], None]:
    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # nothing outlives the benchmark, however that ends
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


def listening(port: int) -> bool:
    """True when something listens on the TCP port. Seen from outside: a trial connection would be counted by the
    servers and by the library's log as one of theirs."""
    suffix = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN and fields[1].endswith(suffix):
                    return True
    return False


def _wait_listening(process: subprocess.Popen[str], port: int, log: Path, limit: float) -> None:
    deadline = time.monotonic() + limit
    while not listening(port):
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
def server(argv: Sequence[str], port: int, cpus: Cpus, env: Mapping[str, str], scratch: Path,
           limit: float = 10.0) -> Iterator[subprocess.Popen[str]]:
    """A server that listens on `port` for as long as the context lasts."""
    log = scratch / "server.out"
    with log.open("w") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, text=True,
                                   cwd=scratch, env=clean_environment(env), start_new_session=True,
                                   preexec_fn=_prepare(cpus))
    try:
        _wait_listening(process, port, log, limit)
        yield process
    finally:
        _end(process)


def client(argv: Sequence[str], cpus: Cpus, env: Mapping[str, str], scratch: Path, limit: float) -> str:
    """Runs a program to its end and returns what it printed."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", cwd=scratch, env=clean_environment(env),
                               start_new_session=True, preexec_fn=_prepare(cpus))
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
def stepped(argv: Sequence[str], cpus: Cpus, env: Mapping[str, str], scratch: Path) \
        -> Iterator[subprocess.Popen[str]]:
    """A program that talks with us over its standard input and output, line by line."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=scratch,
                               env=clean_environment(env), start_new_session=True, preexec_fn=_prepare(cpus))
    try:
        yield process
    finally:
        _end(process)
        for stream in (process.stdin, process.stdout):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
