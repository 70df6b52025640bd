"""Failed cases are run again, alone, when all else has ended. One that passes then is unstable: it counts as passed, is named, and what
it said when it failed is kept in build/check-logs/unstable.txt, so that its cause can be mended. doc/checks.md"""

import dataclasses
import re
import subprocess
import time

from . import cases as cases_

TURNS = 2
TIMEOUT = 600  # seconds for what is run again in one stage
MOST = 15  # failed cases of a stage: more are no accident
SEED = re.compile(r"\b(\w+_SEED)=(\d+)\b")  # what a case prints that draws, and takes from its environment
UNFORGIVEN = {  # what a case has said that no second run makes good
    "a sanitizer's report": r"\b(Address|Leak|Memory|Thread|UndefinedBehavior)Sanitizer\b|\bruntime error: ",
    "a crash": r"crashed: SIG|Segmentation fault|\bcore dumped|\bdumped core|terminate called|stack smashing|double free|corrupted size"
               r"|\bended with (status )?-(4|6|7|8|11)\b|\bexit(ed with)? status:? (132|134|135|136|139)\b|Test failed with exception",
    "bytes that are wrong, missing or doubled": r"\bwrong (byte|answer|bytes)|\bwrong (from|at byte)|(echo|bytes) (is|are) wrong"
                                                r"|\bdoubled\b(?! \d+ held| +hung)|\): lost: |\bbytes? (is |are )?missing|\bdata lost|\bdatagram was lost"
                                                r"|, 'end'\) == \(\d+, 'end'\)|'[0-9a-f]{64}' == '[0-9a-f]{64}'",
}


def unforgiven(output):
    """What of it no second run makes good, or None."""
    return next((what for what, pattern in UNFORGIVEN.items() if re.search(pattern, output)), None)


def groups(cases):
    """[(function, folder, names, environment)] of those that can be run together: one after the other, and nothing beside them. Each
    draws what it drew when it failed."""
    found = {}
    for case in cases:
        function, folder, name = case.again
        found.setdefault((function, folder, tuple(sorted(set(SEED.findall(case.output))))), {})[name] = None
    return [(function, folder, list(names), dict(seeds)) for (function, folder, seeds), names in found.items()]


def run(stage, cases):
    """{name: cases} of what came of each."""
    came = {}
    for function, folder, names, env in groups(cases):
        for case in function(stage, folder, names, env):
            if case.again:
                came.setdefault(case.again, []).append(case)
    return came


def ask(cases, make_stage, is_late):
    """The cases of a stage: those that pass now are unstable, and of the others is said how often they failed, or what no second run makes
    good. `make_stage(turn)`: a stage to run them in. `is_late()`: there is no time for another run."""
    failed = [case for case in cases if case.status == cases_.FAIL]
    if not failed or len(failed) > MOST:
        return cases
    ends = {id(case): what for case in failed if (what := unforgiven(case.output))}
    left = [case for case in failed if case.again and id(case) not in ends]
    passed = set()
    for turn in range(1, TURNS + 1):
        if not left or is_late():
            break
        came = run(make_stage(turn), left)
        for case in left:
            found = came.get(case.again, [])
            if {one.status for one in found} in ({cases_.PASS}, {cases_.PASS, cases_.SKIP}):  # cases of one program may be skipped
                passed.add(id(case))
            elif what := next(filter(None, (unforgiven(one.output) for one in found)), None):
                ends[id(case)] = f"{what}, when it was run again"
            elif turn == TURNS:
                ends[id(case)] = f"{1 + TURNS} times"
        left = [case for case in left if id(case) not in passed and id(case) not in ends]
    return [judge(case, id(case) in passed, ends.get(id(case))) for case in cases]


def judge(case, passed, end):
    if passed:
        return dataclasses.replace(case, status=cases_.PASS, unstable=True)
    return dataclasses.replace(case, detail=", ".join(filter(None, (case.detail, end)))) if end else case


def keep(file, cases):
    """Adds to the file what each unstable case said, behind a line that names commit, time, stage and case."""
    unstable = [case for case in cases if case.unstable]
    if not unstable:
        return
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=file.parent, capture_output=True, text=True, check=False).stdout
    with open(file, "a", encoding="utf-8") as out:
        for case in unstable:
            out.write(f"{commit.strip() or '-'} {time.strftime('%Y-%m-%dT%H:%M:%S')} {case.title}\n")
            out.writelines(f"    {line}\n" for line in cases_.shorten(case.output.rstrip().splitlines()))
