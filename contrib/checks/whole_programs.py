"""Whole programs over the libraries: pytests, each in a world of its own, and the cases that they report."""

import concurrent.futures
import functools
import re
import sys
import xml.etree.ElementTree

from .cases import FAIL, PASS, SKIP, Case
from .stage import ROOT

NOTHING_CAPTURED = re.compile(r"\s*-+ Captured \w+ -+\s*")
NO_CASES = 5  # pytest's exit status
WORLD = (sys.executable, "-B", ROOT / "fabtests/lib/places/world.py")  # what it runs has network, processes, /tmp, /run and /dev/shm for itself


def pytest(stage, folder, parts, at_once=None, env=None, world=WORLD):
    """Whole programs over the libraries in `folder`. Each part, by its name the arguments of one pytest and its environment, has a world
    of its own, and begins as soon as fewer than `at_once` (by default all) are under way."""
    with concurrent.futures.ThreadPoolExecutor(at_once or len(parts)) as pool:
        runs = [pool.submit(pytest_part, stage, folder, name, arguments, {**own, **(env or {})}, world)
                for name, (arguments, own) in parts.items()]
        return [case for run in runs for case in run.result()]


def pytest_again(stage, folder, names, env, world=WORLD):
    return pytest(stage, folder, {"pytest": (names, {})}, env=env, world=world)


here_again = functools.partial(pytest_again, world=())


def pytest_part(stage, folder, name, arguments, env, world):
    """The cases of one pytest, which reports each test in JUnit's XML."""
    log = stage.part(name)
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    status = stage.run(
        *(*world, sys.executable, "-B", "-m", "pytest", "-v", "--durations=30", "-p", "no:cacheprovider"),
        *("-o", "junit_family=xunit1", "-o", "junit_logging=out-err", "-o", "junit_log_passing_tests=false"),  # that family names files
        *(f"--junitxml={report}", *arguments),
        env={**env, "VMA_BUILD": str(folder)},
        log=log,
    )
    said = log.read_text(encoding="utf-8", errors="replace")
    if not report.exists():
        return [Case("pytest", FAIL, f"exit status {status}", said)]
    if status == NO_CASES and env.get("FABTESTS_PART", "0").partition("/")[0] != "0":
        return []  # the file has fewer cases than it was thought to need parts
    ask_again = pytest_again if world else here_again
    tests = xml.etree.ElementTree.parse(report).iter("testcase")
    cases = merge_parts([pytest_case(test, folder, log, ask_again) for test in tests])
    if status == 124:
        cases.append(Case(name, FAIL, f"stopped after {len(cases)} cases: it took too long, in {under_way(said)}", said))
    elif status and not any(case.status == FAIL for case in cases):
        cases.append(Case("pytest", FAIL, f"exit status {status}", said))
    return cases


def merge_parts(cases):
    """One case of each test: JUnit's XML has a second one where what comes behind the test fails, too."""
    found = {}
    for case in cases:
        first = found.setdefault(case.again, case)
        if first is not case and case.status == FAIL:
            case.output = "\n".join(filter(None, (first.output, case.output)))
            found[case.again] = case
    return list(found.values())


def pytest_case(test, folder, log, ask_again):
    """What JUnit's XML says of one."""
    name = f"{test.get('classname')}.{test.get('name')}"
    mine = (ask_again, folder, f"fabtests/{test.get('file')}::{test.get('name')}")
    skipped = test.find("skipped")
    failures = [*test.iter("failure"), *test.iter("error")]
    if failures:
        said = [part.text or "" for part in (*failures, *test.iter("system-out"), *test.iter("system-err"))]
        output = "\n".join(part.rstrip() for part in said if not NOTHING_CAPTURED.fullmatch(part))
        return Case(name, FAIL, f"see {log.relative_to(ROOT)}", output, again=mine)
    return Case(name, PASS if skipped is None else SKIP, "" if skipped is None else skipped.get("message", ""), again=mine)


def under_way(said):
    """The test that a stopped pytest had begun: its line of the log has no verdict yet."""
    begun = [line for line in said.splitlines() if "::" in line and not re.search(r" \[ *\d+%\]$", line)]
    return begun[-1].strip() if begun else "none"
