#!/usr/bin/env python3
"""Checks the model of the stream protocol (doc/model/README.md) with spin: no configuration may have a counterexample,
and each fault that is put back must have one. Prints a line for each, and at last "N passed, N failed, N skipped".

    contrib/checks/model.py              what `contrib/setup.sh check model` runs
    contrib/checks/model.py --deep       larger sizes, one at a time: up to 7 GiB and an hour each
    contrib/checks/model.py NAME...      only these
    contrib/checks/model.py --keep DIR NAME   and keep what was compiled, with the trail of a counterexample
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import tree

MODEL = tree.ROOT / "doc" / "model"
OPS = {name: 1 << n for n, name in enumerate("FORK PIN EARLY CLOSE HAND SPAWN LEND ENDS PATIENT".split())}
DEPTH = 20000  # steps; the longest run has some 200, and a search that was cut off fails
MEMORY = 900  # MiB for one search; two run at a time
DEEP_MEMORY = 7000
TIMEOUT = 600
DEEP_TIMEOUT = 3600


@dataclasses.dataclass
class Configuration:
    """A model with sizes and switches. A fault is what is put back; its counterexample must be found."""

    name: str
    what: str
    sender: str = ""  # what peer 0 may do, beside sending and receiving
    receiver: str = ""  # and peer 1
    sizes: dict = dataclasses.field(default_factory=dict)
    fault: str = ""
    model: str = "stream"
    cycles: bool = False  # look for a run without an end instead

    def switches(self):
        may = enumerate((self.sender, self.receiver))
        ops = {f"OPS{peer}": sum(OPS[name] for name in names.split()) for peer, names in may}
        values = {**({} if self.model != "stream" else ops), **self.sizes}
        return [f"-D{name}={value}" for name, value in values.items()] + ([f"-D{self.fault}"] if self.fault else [])


def sizes(**values):
    return values


HOLDS = (
    Configuration("spans", "spans one after the other, END at any time", "ENDS EARLY", sizes=sizes(N0=5)),
    Configuration("patient", "a sender that doesn't block, cut anywhere", "PATIENT", "FORK PIN CLOSE", sizes(N0=4)),
    Configuration("given-back", "either side forks or pins", "FORK PIN", "FORK PIN"),
    Configuration("closed", "either side shuts down, pins or closes", "EARLY CLOSE PIN", "CLOSE PIN"),
    Configuration("halted", "both may be stopped or killed", "ENDS", "", sizes(HALT=4)),
    Configuration("fork-by-receiver", "the receiver forks, one is stopped or killed", "", "FORK", sizes(HALT=3)),
    Configuration("fork-by-sender", "the sender forks, one is stopped or killed", "FORK", "", sizes(HALT=3)),
    Configuration("pin-halted", "either side pins, one is stopped or killed", "PIN", "PIN", sizes(HALT=3)),
    Configuration("hand-over", "handed over unread; the sender ends, pins, forks", "EARLY CLOSE FORK PIN", "HAND"),
    Configuration("hand-over-room", "with room for a resend", "EARLY CLOSE PIN", "HAND", sizes(KS=2, KR=2)),
    Configuration("hand-over-halted", "handed over, the sender is stopped or killed", "EARLY", "HAND", sizes(HALT=1)),
    Configuration("hand-over-killed", "the same, the receiver, too", "", "HAND", sizes(N0=2, KS=2, HALT=4)),
    Configuration("unseen", "processes that the library doesn't see write or read by the kernel", "SPAWN ENDS", "LEND"),
    Configuration("both-ways", "both send", "", "", sizes(N0=2, N1=1)),
    Configuration("both-ways-pin", "both send, either pins", "PIN", "PIN", sizes(N0=1, N1=1)),
    Configuration("both-ways-fork", "both send, one forks", "", "FORK", sizes(N0=1, N1=1)),
    Configuration("both-ways-halted", "both send, one is stopped or killed", "", "", sizes(N0=1, N1=1, HALT=3)),
    Configuration("ends", "every run has an end", "FORK ENDS", "PIN HAND", sizes(N0=2), cycles=True),
    Configuration("doorbell", "three ring, one may be stopped anywhere", sizes=sizes(SENDERS=3), model="doorbell"),
)

DEEP = (
    Configuration("deep-given-back", "two forks or pins", "FORK PIN ENDS", "FORK PIN", sizes(N0=4, SPECIALS=2)),
    Configuration("deep-halted", "larger buffers", "ENDS PIN", "PIN", sizes(N0=5, KS=2, KR=2, HALT=4)),
    Configuration("deep-fork", "either side forks, both may be stopped or killed", "FORK", "FORK", sizes(HALT=4)),
    Configuration("deep-hand-over", "4 bytes", "EARLY FORK PIN", "HAND", sizes(N0=4, KS=2, KR=1, HALT=4)),
    Configuration("deep-both-ways", "both send, fork or pin", "FORK PIN", "FORK PIN", sizes(N0=2, N1=1)),
    Configuration("deep-both-halted", "both send, one is stopped or killed", "", "", sizes(N0=2, N1=1, HALT=3)),
    Configuration("deep-doorbell", "four ring", sizes=sizes(SENDERS=4), model="doorbell"),
)


def fault(name, what, sender="", receiver="", model="stream", **values):
    return Configuration(name.lower().replace("_", "-"), what, sender, receiver, values, f"FAULT_{name}", model)


FAULTS = (
    fault("DROPPED_RESEND", "shutdown or close in a resend says END(C) and drops the rest", "EARLY", "HAND"),
    fault("END_BEFORE_RESEND", "END(C) before all bytes are sent again, then killed", "", "HAND", HALT=1),
    fault("OWN_SUM", "K of START is the library's own sum", "SPAWN"),
    fault("OWN_COUNT_READER", "the receiver goes over at its own sum, not the kernel's", "ENDS", "LEND"),
    fault("SILENCE", "silence of a killed peer's kernel is taken for its end", "", "HAND", KS=2, HALT=1),
    fault("NO_FENCE_READER", "the receiver looks at its queue before its rx_state is seen", "", "PIN"),
    fault("NO_FENCE_WRITER", "the sender looks at rx_state before its slot is seen", "", "PIN"),
    fault("NO_CAS", "each side decides about a slot by itself", "", "PIN"),
    fault("CLEAN_CLOSE", "close() with unread bytes that were accepted is no reset", "", "CLOSE"),
    fault("DEAD_READER", "a killed reader's kernel says FIN, and nobody looks at its ring", "", "", HALT=2),
    fault("END_BEHIND_QUEUE", "the kernel's end is looked for behind the queue, not before it"),
    fault("NO_LOOK", "kernel bytes are read without a look at the queue between"),
    fault("START_UNASKED", "START without READY", "ENDS", N0=4),
    fault("KERNEL_BEFORE_END", "bytes by the kernel before END is out", "ENDS", N0=4),
    fault("CREDIT_IGNORED", "more bytes than the ring has room for"),
    fault("CREDIT_FORGOTTEN", "no CREDIT", "PATIENT"),
    fault("CUT_UNSEEN", "a sender that waits for room doesn't hear of the cut", "PATIENT", "PIN"),
    fault("WAITS_FOR_END", "fork waits for END instead of ending the span at the cut", "", "FORK", HALT=1),
    fault("KERNEL_FORGOTTEN", "the cut keeps ring bytes and leaves the kernel's before them", "", "FORK"),
    fault("GAP", "ring bytes are read though a reset took those before them", "", "FORK", N1=1, HALT=1),
    fault("NO_CLAIM", "a resend without a claim: the receiver keeps the bytes as well", "", "HAND"),
    Configuration("foreign", "what was kept, and a program that can't find it", "", "HAND", fault="FOREIGN"),
    fault("FLAG_BEFORE_BELL", "who takes the flag away is stopped before it rings", model="doorbell"),
    fault("LOOK_BEFORE_FLAG", "a look at the queue before the flag", model="doorbell"),
)


@dataclasses.dataclass
class Result:
    passed: bool
    line: str
    detail: str = ""


def run(command, folder, seconds):
    """Exit status, output, and processor seconds, which say the same on a busy machine."""
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output)
        late = threading.Timer(seconds, child.kill)
        late.start()
        try:
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        finally:
            late.cancel()
        output.seek(0)
        return child.returncode, output.read(), used.ru_utime + used.ru_stime


def search(configuration, folder, deep):
    """What the verifier printed, or what went wrong before it, and the seconds it took."""
    model = MODEL / f"{configuration.model}.pml"
    status, said, _ = run(["spin", "-a", *configuration.switches(), model], folder, TIMEOUT)
    if status != 0 or not (folder / "pan.c").exists():
        return f"spin: {said}", 0
    memory = DEEP_MEMORY if deep else MEMORY
    kind = ["-DNP"] if configuration.cycles else ["-DSAFETY"]
    optimization = "-O0" if configuration.fault else "-O1"  # a counterexample is found sooner than it is compiled
    switches = [*kind, "-DCOLLAPSE", f"-DMEMLIM={memory}", "-DVECTORSZ=512"]
    compiler = ["gcc", optimization, "-w", *switches, "-o", "pan", "pan.c"]
    status, said, _ = run(compiler, folder, TIMEOUT)
    if status != 0:
        return f"gcc: {said}", 0
    # -E: a process that waits is judged by the model's assertions, not by where it waits.
    options = ["-E", f"-m{DEPTH}", "-w22", *(["-l"] if configuration.cycles else [])]
    return run(["./pan", *options], folder, DEEP_TIMEOUT if deep else TIMEOUT)[1:]


def judge(configuration, said, seconds):
    states = re.search(r"(\d+) states, stored", said)
    errors = re.search(r"errors: (\d+)", said)
    violated = re.search(r"pan:\d+: (.*?)(?: \(at depth (\d+)\))?$", said, re.MULTILINE)
    whole = errors and states and "Search not completed" not in said and "max search depth too small" not in said
    memory = re.search(r"([\d.]+)\s+total actual memory usage", said)
    figures = "no result"
    if states and memory:
        figures = f"{int(states[1]):,} states, {seconds:.1f} s, {float(memory[1]):.0f} MiB"
    name = f"{configuration.name}: {configuration.what}"
    if configuration.fault:
        found = errors and errors[1] != "0" and violated and "assertion violated" in violated[1]
        depth = f", found in {violated[2]} steps" if found else ", NOT FOUND"
        return Result(bool(found), f"{name} ({figures}{depth})", "" if found else said)
    if whole and errors[1] == "0":
        return Result(True, f"{name} ({figures})")
    replay = f"replay: contrib/checks/model.py --keep DIR {configuration.name}, then in DIR/{configuration.name}: "
    model = MODEL / f"{configuration.model}.pml"
    replay += f"spin -t -p -g {' '.join(configuration.switches())} {model}"
    return Result(False, f"{name} ({figures}; {violated[1] if violated else 'no verdict'})", f"{said}\n{replay}")


def check(configuration, keep, deep):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="vma-model-"))
    try:
        result = judge(configuration, *search(configuration, folder, deep))
        if keep:
            shutil.copytree(folder, keep / configuration.name, dirs_exist_ok=True)
        return result
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description="Checks the model of the stream protocol.")
    parser.add_argument("--deep", action="store_true", help="larger sizes")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="searches at a time")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep what was compiled, and trails, here")
    parser.add_argument("--list", action="store_true", help="name the configurations and stop")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    known = {configuration.name: configuration for configuration in (*HOLDS, *FAULTS, *DEEP)}
    if args.list:
        for name, configuration in known.items():
            print(f"{name:18} {configuration.what}")
        return 0
    if unknown := set(args.names) - set(known):
        parser.error(f"no configuration {', '.join(sorted(unknown))}; see --list")
    if not shutil.which("spin"):
        print("0 passed, 1 failed, 0 skipped\nspin is missing: contrib/setup.sh deps", file=sys.stderr)
        return 1
    chosen = [known[name] for name in args.names] or [*HOLDS, *FAULTS, *(DEEP if args.deep else ())]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    jobs = 1 if args.deep else max(1, min(2, args.jobs))  # memory for two is what the check may take
    start, counts = time.monotonic(), {True: 0, False: 0}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for result in pool.map(lambda one: check(one, args.keep, one in DEEP), chosen):
            counts[result.passed] += 1
            print(f"{'PASS' if result.passed else 'FAIL'}: {result.line}", flush=True)
            if result.detail:
                print("".join(f"    {line}\n" for line in result.detail.splitlines()), end="", flush=True)
    print(f"{counts[True]} passed, {counts[False]} failed, 0 skipped ({time.monotonic() - start:.0f} s)")
    return 1 if counts[False] else 0


if __name__ == "__main__":
    sys.exit(main())
