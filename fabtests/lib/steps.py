# SPDX-License-Identifier: BSD-2-Clause
"""The step harness (fabtests/steps/programs): surveys of stretches, faults at their points, and what became of the bytes."""

import collections
import dataclasses
import functools
import json
import os
import pathlib
import subprocess

from . import build, patience

SIGNALS = ("count", "poll", "send", "receive", "jump")  # of which each instruction is a point
OF_THREADS = SIGNALS + ("cancel",)
FAULTS = ("kill", "stop", "stop-kill") + OF_THREADS
BUFFERS = (4096, 0)  # 0: the defaults
COLUMNS = ("ok", "reset", "lost", "doubled", "hung", "other")  # other: crashed, failed, unfinished
_STEP, _TALKER = "steps/programs/step", "steps/programs/talker"


def environment(shm: pathlib.Path, **more) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VMA_", "LD_PRELOAD", "FI_"))}
    env |= {"FABTESTS_PATIENCE": f"{patience.factor():.2f}", "VMA_SHM_DIR": str(shm), "VMA_STATS_SHMEM_DIR": "", "VMA_TRACELEVEL": "panic", "VMA_CONFIG_FILE": "/dev/null"}
    env |= {"VMA_LIFT_AFTER": "4", "VMA_STREAM_RING": "65536"}  # soon there, soon full
    # A survey goes through every instruction: neither the linker's look-ups nor copies byte by byte are worth it.
    env |= {"LD_BIND_NOW": "1", "GLIBC_TUNABLES": "glibc.cpu.x86_rep_movsb_threshold=1000000000"}
    return env | more


@functools.lru_cache(maxsize=None)
def scenarios() -> dict[str, str]:
    """{name: what it is}"""
    said = subprocess.run([build.program(_STEP), "--list"], capture_output=True, text=True, check=True).stdout
    return {line.split("\t")[0]: "\t".join(line.split("\t")[1:]) for line in said.splitlines()}


def applies(scenario: str, fault: str) -> bool:
    """The library's own threads get no signals, nobody may jump out of exit(), and who shares the connection with a child or a program
    that follows can't say which of them reads what. The other side waits for ever for one that was killed before they were connected."""
    if fault not in OF_THREADS:
        return fault == "stop" or scenario not in ("connect", "accept")
    own = scenario.endswith(("_helper", "_loader"))
    shared = fault == "receive" and scenario in ("fork_reader", "exec_reader")
    return not (own or shared or (fault in ("jump", "cancel") and scenario.endswith("_exit")))


@dataclasses.dataclass(frozen=True)
class Where:
    """A stretch: the scenario, the sockets' buffers, with the library or on the kernel alone."""
    scenario: str
    buffer: int
    library: bool = True

    def __str__(self):
        return f"{self.scenario}, {self.buffer or 'default'} buffers{'' if self.library else ', on the kernel'}"


class Harness:
    def __init__(self, env, every=False, pause_ms=20):
        self.env, self.every, self.pause_ms = env, every, pause_ms

    def _run(self, where: Where, fault: str, points: list[str], every: bool = False) -> list[dict]:
        argv = [build.program(_STEP), "--talker", build.program(_TALKER), "--scenario", where.scenario, "--fault", fault,
                "--buffer", str(where.buffer), "--pause", str(self.pause_ms)]
        argv += ["--preload", build.preload()] if where.library else []
        argv += ["--every"] if self.every or every else []
        done = subprocess.run([*argv, *points], env=self.env, capture_output=True, text=True)
        results = [json.loads(line) for line in done.stdout.splitlines()]
        if len(results) != len(points):
            raise RuntimeError(f"{where}, {fault}: status {done.returncode}\n{done.stderr}")
        for result in results:
            result["again"] = (f"fabtests/steps/inject.py --scenario {where.scenario} --buffer {where.buffer} --fault {fault} "
                               f"--pause {self.pause_ms} --point {result['point']}")
        return results

    def survey(self, where: Where, every: bool = False) -> dict:
        """Its "points" are what run() takes."""
        return self._run(where, "none", ["survey"], every)[0]

    def run(self, where: Where, fault: str, points: list[str]) -> list[dict]:
        return self._run(where, fault, points) if points else []

    @functools.lru_cache(maxsize=None)  # noqa: B019: as long as the harness itself
    def on_the_kernel(self, where: Where, fault: str) -> frozenset[str]:
        """The verdicts of the same stretch without the library, at each of its points (system calls, mostly)."""
        alone = dataclasses.replace(where, library=False)
        if where.scenario.endswith("_helper"):
            return frozenset({"ok"})  # nobody's thread is there to be stepped
        points = self.survey(alone)["points"]
        return frozenset(result["verdict"] for result in self.run(alone, fault, points[:: max(1, len(points) // 4)]))


def allowed(fault: str, kernel: frozenset[str]) -> set[str]:
    """Every byte in order and the right end; what the kernel does; for whoever was killed, or has left its call, an error in place of an
    end. Two that live, one of which was only stopped or has run a handler, get everything."""
    return {"ok", *(kernel & {"reset"})} | ({"reset"} if "kill" in fault or fault in ("jump", "cancel") else set())


class Table:
    """What was seen: a row for each stretch and fault."""

    def __init__(self):
        self.rows = collections.defaultdict(collections.Counter)
        self.wrong = []

    def add(self, where: Where, fault: str, results, may):
        row = self.rows[where.scenario, where.buffer, fault]
        for result in results:
            verdict = result["verdict"]
            row["steps"] += 1
            row["reached"] += result["reached"]
            row[verdict if verdict in COLUMNS else "other"] += 1
            if verdict not in may:
                self.wrong.append((where, fault, result))

    def text(self) -> str:
        head = f"{'scenario':<22} {'buffers':>7} {'fault':<9} {'runs':>6} {'there':>6} " + " ".join(f"{c:>7}" for c in COLUMNS)
        lines = [head]
        for (scenario, buffer, fault), row in self.rows.items():
            lines.append(f"{scenario:<22} {buffer or 'default':>7} {fault:<9} {row['steps']:>6} {row['reached']:>6} "
                         + " ".join(f"{row[c] or '.':>7}" for c in COLUMNS))
        return "\n".join(lines)

    def faults(self, most=20) -> str:
        lines = []
        for where, fault, result in self.wrong[:most]:
            lines.append(f"{where}, {fault} at {result['point']} ({place(result['where'])}): {result['verdict']}: "
                         f"{result['detail']}\n    again: {result['again']}")
        if len(self.wrong) > most:
            lines.append(f"... and {len(self.wrong) - most} more")
        return "\n".join(lines)


def place(where: str) -> str:
    """The function, where the library has symbols."""
    name, _, offset = where.partition("+")
    library = build.provider_dir() / name
    if not offset or not library.exists():
        return where
    try:
        said = subprocess.run(["addr2line", "-Cfsie", library, offset], capture_output=True, text=True).stdout.split("\n")
    except FileNotFoundError:
        return where
    inlined = [f"{function} {line}" for function, line in zip(said[::2], said[1::2]) if not function.startswith("std::")]
    return f"{where} {' in '.join(inlined[:3])}"
