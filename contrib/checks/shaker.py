"""A stage again and again beside busy loops: how often each of its cases failed. It finds what is unstable."""

import contextlib
import subprocess
import sys

from .cases import FAIL, gist

HOURS = 12  # after which a loop ends by itself, should nobody have ended it


@contextlib.contextmanager
def busy(number):
    """So many processors' worth of load."""
    loops = [subprocess.Popen(["timeout", f"{HOURS}h", sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.terminate()
            loop.wait()


def shake(run, repeat, load):
    """`run(turn)`: the cases of one run. Prints how often each failed, with what it said the first time; returns how many did."""
    failed = {}
    with busy(load):
        for turn in range(1, repeat + 1):
            for case in run(turn):
                if case.status == FAIL:
                    failed.setdefault(case.name, []).append((turn, case))
    for name, turns in sorted(failed.items(), key=lambda one: -len(one[1])):
        print(f"{len(turns)} of {repeat}: {name} (in {', '.join(str(turn) for turn, _ in turns)}; {turns[0][1].detail})")
        for line in gist(turns[0][1].output):
            print(f"    | {line}")
    print(f"{repeat} runs beside {load} busy loops: {len(failed)} cases failed in some of them", flush=True)
    return len(failed)
