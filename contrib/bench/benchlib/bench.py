# SPDX-License-Identifier: BSD-2-Clause
"""What a case gets to run its programs with: CPUs, the library, time limits, a directory for this one run."""
from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import find, procs, trace
from .model import Mode


@dataclass
class Bench:
    lib: Path | None
    quick: bool = False
    cpus: tuple[int, int] = (0, 1)  # server, client
    env: Mapping[str, str] = field(default_factory=dict)  # for accelerated programs, over what the mode says
    scratch: Path = Path(".")
    log_connections: bool = True  # accelerated programs write for each connection whether it is
    verbose: bool = False

    @property
    def server_cpu(self) -> procs.Cpus:
        return frozenset(self.cpus[:1])

    @property
    def client_cpu(self) -> procs.Cpus:
        return frozenset(self.cpus[1:])

    @property
    def both_cpus(self) -> procs.Cpus:
        return frozenset(self.cpus)

    def size(self, normal: int, quick: int) -> int:
        """Seconds, requests or connections: fewer in a quick run."""
        return quick if self.quick else normal

    def program(self, name: str) -> str:
        path = find.program(name)
        if not path:
            raise procs.RunError(f"{name} is not installed")
        return str(path)

    def helper(self, name: str) -> str:
        path = find.helper(name, self.lib)
        if not path:
            raise procs.RunError(f"contrib/bench/{name} is not built")
        return str(path)

    def environment(self, mode: Mode) -> dict[str, str]:
        if not mode.preload:
            return dict(mode.env)
        env = {"LD_PRELOAD": str(self.lib), **trace.environment(self.scratch, self.log_connections)}
        return {**env, **mode.env, **self.env}

    @contextlib.contextmanager
    def server(self, mode: Mode, argv: Sequence[str], port: int, cpus: procs.Cpus | None = None) \
            -> Iterator[subprocess.Popen[str]]:
        self._say(mode, argv)
        with procs.server(argv, port, self.server_cpu if cpus is None else cpus, self.environment(mode),
                          self.scratch) as process:
            yield process

    @contextlib.contextmanager
    def udp_server(self, mode: Mode, argv: Sequence[str], ports: Collection[int]) -> Iterator[Callable[[], str]]:
        """Gives what ends the server and returns its output."""
        self._say(mode, argv)
        with procs.udp_server(argv, ports, self.server_cpu, self.environment(mode), self.scratch) as interrupt:
            yield interrupt

    def client(self, mode: Mode, argv: Sequence[str], seconds: float, cpus: procs.Cpus | None = None,
               namespace: procs.Namespace | None = None) -> str:
        """`seconds`: how long it should take; it is ended when it takes very much longer."""
        self._say(mode, argv)
        return procs.client(argv, self.client_cpu if cpus is None else cpus, self.environment(mode), self.scratch,
                            limit=seconds * 5 + 20, namespace=namespace)

    @contextlib.contextmanager
    def stepped(self, mode: Mode, argv: Sequence[str], cpus: procs.Cpus | None = None,
                namespace: procs.Namespace | None = None) -> Iterator[subprocess.Popen[str]]:
        self._say(mode, argv)
        with procs.stepped(argv, self.client_cpu if cpus is None else cpus, self.environment(mode), self.scratch,
                           namespace) as process:
            yield process

    def _say(self, mode: Mode, argv: Sequence[str]) -> None:
        if self.verbose:
            env = " ".join(f"{name}={value}" for name, value in self.environment(mode).items())
            print(f"    $ {env} {shlex.join(argv)}".replace("$  ", "$ "), flush=True)


def default_cpus() -> tuple[int, int]:
    """The first two CPUs that we may use, or the only one twice."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[min(1, len(allowed) - 1)]
