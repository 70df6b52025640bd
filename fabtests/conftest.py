# SPDX-License-Identifier: BSD-2-Clause
"""Fixtures of the whole-program tests, and the rules that hold for each of them: bounded in time, no process and no
shared memory left behind, no crash, no error line, everything that was said is in the report of a failure."""

import faulthandler
import fnmatch
import math
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile

import pytest
from _pytest.assertion import util as comparison

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from lib import build, pairing, patience, ports, shared_dir  # noqa: E402
from lib.runner import Runner  # noqa: E402
from lib.users import Input  # noqa: E402

TEST_LIMIT = 600  # seconds on the usual machine; each wait in a test is bounded below that
LAB_LIMIT = 900  # the same, where an emulated processor shares a real one with other work

LONGEST_DIFF = 20000  # characters of what is compared line by line

RUNNERS = pytest.StashKey[Runner]()


# Each run draws anew; the tests that draw take it from here.
os.environ.setdefault("FABTESTS_SEED", str(random.randrange(1, 1 << 31)))


def pytest_report_header(config):
    return [f"build under test: {build.build_dir()}{' (sanitized)' if build.sanitized() else ''}",
            f"FABTESTS_SEED={os.environ['FABTESTS_SEED']}"]


def pytest_generate_tests(metafunc):
    """A test that takes `pair` runs in every pairing, or in those that @pytest.mark.pairs names."""
    if "pair" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("pairs")
        metafunc.parametrize("pair", mark.args if mark else pairing.ALL, ids=str)


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: it measures, or counts on a processor for each of its programs: nothing runs beside it")
    config.addinivalue_line("markers", "pairs(*pairings): the pairings that a test of `pair` runs in")
    faulthandler.enable()
    shorten_diffs()


def shorten_diffs():
    """Where two that should be equal differ, pytest compares what it would print of them line by line. For some 100 KB of bytes that
    takes minutes, after which the test seems to have hung; of those it says where they begin to differ."""
    whole = comparison._compare_eq_iterable

    def compare(left, right, *more):
        return [] if max(len(repr(left)), len(repr(right))) > LONGEST_DIFF else whole(left, right, *more)

    comparison._compare_eq_iterable = compare


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    name_known_differences(items)
    part, parts = map(int, os.environ.get("FABTESTS_PART", "0/1").split("/"))
    groups = {}
    for item in items:
        groups.setdefault(subject(item), []).append(item)
    if len(groups) < 4 * parts:  # too few for parts that take about as long as each other
        groups = dict(enumerate([item] for item in items))
    others = [item for number, group in enumerate(groups.values()) if number % parts != part for item in group]
    if others:
        gone = set(others)
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=others)


def subject(item):
    """What a case shares with those that are compared with the same run on the kernel, which is then made once: all but the pairing."""
    params = {name: str(value) for name, value in item.callspec.params.items() if name != "pair"} if hasattr(item, "callspec") else {}
    return tuple(sorted(params.items())) or item.nodeid


def known_differences():
    """(pattern, run, reason) of each line of known_differences.txt."""
    text = (pathlib.Path(__file__).parent / "known_differences.txt").read_text()
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, reason = line.split(maxsplit=1)
            yield pattern.lstrip("!"), not pattern.startswith("!"), reason


def name_known_differences(items):
    known = list(known_differences())
    for item in items:
        for pattern, run, reason in known:
            if fnmatch.fnmatchcase(item.name, pattern):
                item.add_marker(pytest.mark.xfail(reason=f"known difference: {reason}", run=run, strict=False))
                break


@pytest.fixture(autouse=True)
def library_is_there(request):
    pair = request.node.callspec.params.get("pair") if hasattr(request.node, "callspec") else None
    if pair is not None and (pair.server or pair.client) and not build.intercepts():
        pytest.skip("libvma.so of this build intercepts nothing")


@pytest.fixture
def feed():
    """The standard input of a program that goes on with each line."""
    made = Input()
    yield made
    made.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    limit = patience.Deadline(LAB_LIMIT if item.path.parent.name == "lab" else TEST_LIMIT)

    def too_long(_number, _frame):
        if limit.over():
            raise AssertionError(f"the test ran for more than {limit}")
        signal.alarm(math.ceil(limit.left()))

    old = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(math.ceil(limit.left()))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    runner = item.stash.get(RUNNERS, None)
    told = report.failed and call.when != "teardown" and runner is not None  # the runner's own end says it itself
    if told and hasattr(report.longrepr, "addsection"):  # that a fixture isn't known has none
        report.longrepr.addsection("processes", runner.report())  # JUnit's XML has it, too


@pytest.fixture
def shm():
    """A directory for the library's shared files, this test's own."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    place = pathlib.Path(tempfile.mkdtemp(prefix="fabtests-", dir=base))
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def work():
    """A directory for the test's files, which every user may enter."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="fabtests-"))
    place.chmod(0o755)
    yield place
    if not os.environ.get("FABTESTS_KEEP"):
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def run(request, work, shm):
    """The test's Runner. At the end: nothing crashed, nobody logged an error, nothing of the dead is left."""
    runner = Runner(work, shm)
    request.node.stash[RUNNERS] = runner
    yield runner
    wrong = runner.finish()
    wrong += shared_dir.left_for_good(runner)
    if wrong:
        pytest.fail("\n".join(wrong) + f"\n{runner.report()}", pytrace=False)


@pytest.fixture
def port():
    return ports.free_port()
