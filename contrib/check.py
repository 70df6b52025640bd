#!/usr/bin/python3
"""Every test and check of the project, counted: `contrib/setup.sh check` installs what this needs and runs it.

Each stage is quiet: its output is in a log below build/check-logs, which is named when something in it fails. Cases are
counted one by one (a cmocka case, a pytest test, a style check). Every skipped one is named with its reason, and counts as
failed unless contrib/checks/skips.txt allows that reason. When all has ended, failed cases are run again, alone
(contrib/checks/again.py).
The last line of the output is "N passed, N failed, N skipped"; the exit status is 0 if nothing failed.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import random
import re
import subprocess
import sys
import threading
import time
import traceback

from checks import again, machine, shaker, skips, units
from checks.cases import FAIL, PASS, SKIP, Case, count, shorten, summary
from checks.stage import BUILD, LOGS, ROOT, STAGE_TIMEOUT, Stage
from checks.whole_programs import pytest

UNSTABLE = LOGS / "unstable.txt"
LINKER = "-fuse-ld=lld"  # of tests: a program with AddressSanitizer takes 0.35 s in place of 1.3 to 1.8
# Builds that end with the check. Lines are all that a report names; full debug information takes a quarter more time to compile.
SANITIZED = {"asan": "-Og -g1", "tsan": "-O1 -g1"}
TOGETHER = "contrib/checks/together.py"
LINKED_TOGETHER = f"{LINKER} -Wl,-z,muldefs"  # where a test has its own of what a source defines, and needs another one of the same object
TAIL = 40  # lines of a failed stage's log that are shown


def configure(stage, folder, *arguments):
    folder.mkdir(exist_ok=True)
    if (folder / "Makefile").exists():
        return True
    return stage.run(ROOT / "configure", *arguments, cwd=folder) == 0


MAKES = threading.Lock()  # two makes in one folder compile the same files


def make_more(stage, *goals):
    """Makes in the folder of stage build what it has not made. True if it failed."""
    with MAKES:
        return stage.run("make", "-C", BUILD, f"-j{stage.jobs}", *goals, env=machine.COMPILERS) != 0


def make_check(stage, folder, *arguments, goals=("all",), linked=(), env=None):
    """Makes the goals, runs `make check`, and counts what automake's test drivers print of each case. `linked`: how tests are."""
    # Built first and apart: a compile error then is the build's failure, and stops here. check-TESTS is `check` without
    # the programs that only pytest starts. One after the other: goals may be a make of their own, and two of them at once
    # compile the same files.
    make = ["make", "-C", folder, f"-j{stage.jobs}"]
    if any(stage.run(*make, goal) for goal in goals) or stage.run(*make, "check-TESTS", "TESTS=", *linked):
        return [Case("build", FAIL)]
    status = stage.run(*make, "check-TESTS", *arguments, env={**patience(), **(env or {})})
    return count_verdicts(stage, folder, status)


def patience():
    """Unit tests measure nothing themselves: how slow the machine is says what whole-program tests ask."""
    said = subprocess.run([sys.executable, "-B", ROOT / "fabtests/lib/patience.py"], check=True, capture_output=True, text=True)
    return {"FABTESTS_PATIENCE": said.stdout.strip()}


def units_again(stage, folder, programs, env):
    status = stage.run("make", "-C", folder, "check-TESTS", f"TESTS={' '.join(programs)}", env={**patience(), **(env or {})})
    return count_verdicts(stage, folder, status)


def count_verdicts(stage, folder, status, again_by=units_again):
    """The cases that automake's test drivers reported in the stage's log; `folder` has the logs of each program."""
    cases = []
    for verdict, name in re.findall(r"^(PASS|FAIL|SKIP|ERROR|XPASS|XFAIL): (.*)$", stage.text(), re.MULTILINE):
        name, directive, reason = name.partition(" # SKIP")
        if verdict == "SKIP":
            if not directive:  # a whole program; automake's driver puts what its plan says behind a dash
                name, _, reason = name.partition(" - ")
            cases.append(Case(name, SKIP, reason.strip() or script_reason(folder, name)))
        elif verdict in ("PASS", "XFAIL"):
            cases.append(Case(name, PASS))
        else:
            cases.append(failed_case(folder, name))
    for case in cases:
        case.again = (again_by, folder, case.name.split(" ")[0])
    if status and not any(case.status == FAIL for case in cases):
        cases.append(Case("make", FAIL, f"exit status {status}"))
    return cases


def script_reason(folder, name):
    """A skipped script says why in the last line that it prints itself."""
    log = (folder / name).with_suffix(".log")
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line for line in reversed(lines) if line and not line.startswith("SKIP ")), "no reason given")


def failed_case(folder, name):
    """The log of the program or script whose case `name` failed."""
    log = (folder / name.split(" ")[0]).with_suffix(".log")
    output = log.read_text(errors="replace") if log.exists() else ""
    return Case(name, FAIL, f"see {log.relative_to(ROOT)}", output)


def stage_build(stage):
    return stage.one("contrib/setup.sh", "build")


def stage_make_check(stage):
    return make_check(stage, BUILD, linked=[f"LDFLAGS={LINKER}"])


SHORTER = {"VMA_TEST_STEPS": "500000"}  # of random schedules: what a sanitizer sees in two million it sees in these


def stage_asan(stage):
    folder = ROOT / "build-asan"
    compiler = (f"CXX={ROOT / TOGETHER} g++", f"CXXFLAGS={SANITIZED['asan']}", f"LDFLAGS={LINKED_TOGETHER}")
    if not configure(stage, folder, "--enable-asan", *compiler):
        return [Case("configure", FAIL)]
    stage.run(ROOT / TOGETHER, "--table", cwd=folder)
    # Only what is run here is made.
    libraries = ("contrib/standard.hpp.gch", ".libs/libvma.so", ".libs/libvma-fi.so")
    cases = make_check(stage, folder, "TESTS=$(unit_tests)", goals=libraries, env=SHORTER)
    names = ("datagrams/echo", "datagrams/hostile", "datagrams/semantics", "liars/liar.so", "one_process", "semantics/semantics")
    programs = ["fabtests/lib/programs/begin", "fabtests/posix/programs/soak/soak", *(f"fabtests/sockets/programs/{name}" for name in names)]
    if stage.run("make", "-C", folder, f"-j{stage.jobs}", *programs):
        return [*cases, Case("build", FAIL)]
    chosen = ("-k", "(as_the_kernel and vma-vma-latency) or hostile or soak")
    sockets = "fabtests/sockets/test_"
    parts = {"soak": ["fabtests/posix/test_soak.py"], "streams": [f"{sockets}semantics.py"],
             "datagrams": [f"{sockets}datagrams.py", f"{sockets}datagram_hostile.py"],
             "users": [f"{sockets}hostile_users.py"]}
    return cases + pytest(stage, folder, {name: ([*files, *chosen], {}) for name, files in parts.items()})


def stage_tidy(stage):
    return stage.one(sys.executable, "-B", "contrib/checks/tidy.py", BUILD, "--jobs", str(stage.jobs), env=machine.COMPILERS)


RUNS = 100000
RUNS_OF_PARTS = {"stats": (12500, 12500)}  # of a fuzzer by its corpus's name: one of these takes as long as five of others, so two processes share
FUZZED = ("compat/test/config", "prov/vma/test/core", "prov/vma/test/inet", "util/vma_stats/test", "util/vmad/test")  # where fuzzers are, and their corpora


def stage_fuzz(stage):
    """Each fuzzer from its corpus on, with the sanitizers; what it finds is named and kept among the logs. The same inputs each
    time: a check that finds something new in old code tells nothing of what is checked. doc/inet.md says how to look for more."""
    corpora = sorted((corpus for tests in FUZZED for corpus in pathlib.Path(tests, "corpus").iterdir()), reverse=True)  # the longest early
    programs = {corpus: str(corpus.parent.parent / f"fuzz_{corpus.name}") for corpus in corpora}
    if make_more(stage, *programs.values()):
        return [Case("build", FAIL)]

    def fuzz(corpus, seed, runs):
        name = f"{corpus.name}-{seed}"
        found, log = LOGS / f"found-{name}", stage.part(name)
        found.mkdir(exist_ok=True)
        limits = (f"-seed={seed}", f"-runs={runs}", "-timeout=60", "-rss_limit_mb=2048", "-print_final_stats=1")
        program = programs[corpus]
        if stage.run(BUILD / program, *limits, f"-artifact_prefix={LOGS}/{name}-", found, corpus, log=log):
            return Case(f"{program} {seed}", FAIL, f"see {log.relative_to(ROOT)}", log.read_text(errors="replace"))
        return Case(f"{program} {seed}", PASS)

    parts = [(corpus, seed, runs) for corpus in corpora for seed, runs in enumerate(RUNS_OF_PARTS.get(corpus.name, (RUNS,)), 1)]
    with concurrent.futures.ThreadPoolExecutor(stage.jobs) as pool:
        return list(pool.map(lambda part: fuzz(*part), parts))


AT_ONCE = 2  # pytests for each processor: one computes for less than half of its time


def whole_programs(stage, core):
    if make_more(stage, "fabtests-programs"):
        return [Case("build", FAIL)]
    beside, alone = ({unit.name: (unit.arguments, unit.environment) for unit in found} for found in units.find(core))
    return pytest(stage, BUILD, beside, AT_ONCE * stage.jobs) + pytest(stage, BUILD, alone, 1)


def stage_core(stage):
    return whole_programs(stage, True)


def stage_fabtests(stage):
    return whole_programs(stage, False)


# Of the lab, one guest of each kind: two hosts with RDMA devices, and a whole machine.
GUESTS = ("test_rxe.py::test_pingpong_in_one_guest", "test_streams.py::test_both_ways", "test_system.py::test_boots")


def stage_guests(stage):
    return lab(stage, *(f"fabtests/lab/{name}" for name in GUESTS))


def stage_lab(stage):
    return lab(stage, "fabtests/lab")


def lab(stage, *tests):
    return [Case("build", FAIL)] if make_more(stage, "fabtests-programs") else pytest_here(stage, *tests)


def pytest_here(stage, *tests):
    """Where there are worlds enough without one: guests, and systems that packages are installed into."""
    return pytest(stage, BUILD, {stage.name: (tests, {})}, world=())


def stage_packages(stage):
    return pytest_here(stage, "fabtests/packages")


def stage_cross(stage):
    """For AArch64: what is built, and the unit tests that pass by an emulator."""
    status = stage.run(sys.executable, "-B", "contrib/checks/cross.py", "--jobs", str(stage.jobs), env=patience())
    if status == 77:
        return [Case("cross.py", SKIP, stage.text().rstrip().splitlines()[-1])]
    return count_verdicts(stage, ROOT / "build-aarch64", status, cross_again)


def cross_again(stage, *_):
    return stage_cross(stage)


def stage_distcheck(stage):
    """The tarball builds outside its read-only tree, passes its own tests, installs and cleans up behind itself: with
    ThreadSanitizer, so that one more build of everything serves both."""
    # g++ 12's TSan can't map its shadow where the kernel randomizes addresses by more than 28 bits.
    fixed = ["setarch", "-R"]
    works = subprocess.run([*fixed, "true"], capture_output=True, check=False).returncode == 0
    compiler = f"CXX='../../{TOGETHER} g++' CXXFLAGS='{SANITIZED['tsan']}' LDFLAGS='{LINKED_TOGETHER}'"
    flags = f"DISTCHECK_CONFIGURE_FLAGS=--enable-tsan {compiler}"
    # Nothing starts pytest's programs or benchmarks here; the folder of the former is in the tarball as it stands.
    make = ["make", "-C", BUILD, f"-j{stage.jobs}", "distcheck", flags, "fabtests_programs=", "noinst_PROGRAMS="]
    status = stage.run(*(fixed if works else []), *make, env={"XZ_OPT": "-1", **patience()})  # nobody downloads it
    tree = next((path for path in BUILD.glob("ofi-vma-*/_build/sub") if path.is_dir()), BUILD)
    cases = count_verdicts(stage, tree, status)
    for case in (tarball := Case("tarball", FAIL if status else PASS)), *cases:
        case.again = (distcheck_again, ROOT, case.name.split(" ")[0])  # what comes behind the tests has not been run
    return [tarball, *cases]


def distcheck_again(stage, *_):
    return stage_distcheck(stage)


def stage_model(stage):
    """The model of the stream protocol, searched by spin: each configuration and each fault that is put back is a case."""
    status = stage.run(sys.executable, "-B", "contrib/checks/model.py", "--jobs", str(stage.jobs))
    found = re.findall(r"^(PASS|FAIL): ([\w-]+): (.*)$", stage.text(), re.MULTILINE)
    failed = [Case(name, FAIL, said) for verdict, name, said in found if verdict == "FAIL"]
    cases = [Case(name, PASS) for verdict, name, _ in found if verdict == "PASS"] + failed
    if status and not failed:
        cases.append(Case("model.py", FAIL, f"exit status {status}"))
    return cases


STAGES = {
    "build": (stage_build, "both libraries, with g++"),
    "make-check": (stage_make_check, "unit tests and style checks"),
    "tidy": (stage_tidy, "clang-tidy, and clang's warnings"),
    "asan": (stage_asan, "unit tests and whole programs with AddressSanitizer and UBSan"),
    "fuzz": (stage_fuzz, "fuzzers of frames, of TCP's calls, of rules and VMA_* values, of vma_stats' files, of vmad's broker, with clang's sanitizers"),
    "model": (stage_model, "the model of the stream protocol, searched by spin; faults put back are found"),
    "core": (stage_core, "pytest: whole programs over both libraries, those that say most"),
    "fabtests": (stage_fabtests, "pytest: all other whole programs"),
    "guests": (stage_guests, "pytest: of `lab`, which has them too, one QEMU guest of each kind"),
    "lab": (stage_lab, "pytest: programs in QEMU guests: two with RDMA devices, and a whole machine"),
    "packages": (stage_packages, "pytest: Debian packages and RPMs, built, installed into a fresh system, upgraded and purged"),
    "cross": (stage_cross, "both libraries for AArch64, and unit tests by QEMU"),
    "distcheck": (stage_distcheck, "the tarball, from unpacking to installing, with ThreadSanitizer"),
}


USUAL = ("build", "make-check", "core", "guests")  # what is run unless all is asked for
FIRST, ASIDE, WAIT, AFTER = (  # see Progress
    ("build", "make-check", "core", "guests", "fabtests"), ("tidy", "model", "fuzz", "cross"), ("lab", "packages"), ("asan", "distcheck"))


def judge_skips(stage, cases, allowed):
    """The cases, with each failed that was skipped for a reason that is not allowed."""

    def judge(case):
        if case.status != SKIP or skips.is_allowed(allowed, stage, case.detail):
            return case
        said = f"skipped, which {skips.NAME} does not allow: {case.detail}"
        return Case(case.name, FAIL, said, said)

    return [judge(case) for case in cases]


def show_failures(stage, failed):
    shown = {case.output: case.name for case in reversed(failed)}  # cases of one program share its log
    for output, name in reversed(shown.items()):
        print(f"    {name}:")
        for line in shorten(output.rstrip().splitlines()) if output else stage.text().rstrip().splitlines()[-TAIL:]:
            print(f"    | {line}")
    print(f"    the whole log: {stage.log.relative_to(ROOT)}")


class Progress:
    """Runs stages, and says of each what came of it as it ends.

    Whole programs have the machine for themselves, as what they compute is as much as it can do. Those stages that only compute run
    aside the ones that mostly wait, for an emulator or a package manager. Those that compile and run programs come last.
    """

    def __init__(self, chosen, jobs, minutes):
        self.chosen, self.jobs = chosen, jobs
        self.pace = machine.Pace(chosen, FIRST, minutes)
        self.allowed = skips.load()
        self.everything = []
        self.times = {}  # of each stage
        self.begun = 0
        self.lock = threading.Lock()

    def run(self):
        """The cases of all. Nothing else is run where the build failed."""
        if any(case.status == FAIL for case in self.stages(FIRST[:1])):
            return self.everything
        self.stages(FIRST[1:])
        computes = threading.Thread(target=self.stages, args=(ASIDE, True))
        computes.start()
        self.stages(WAIT)
        computes.join()
        self.stages(AFTER)
        for name in self.pace.in_order():
            if self.pace.fits(name, alone=True):
                self.stage(name, False)
            else:
                self.leave_out(name)
        self.ask_again()
        return self.everything

    def stages(self, names, aside=False):
        return [case for name in names if name in self.pace.left and self.pace.fits(name) for case in self.stage(name, aside)]

    def leave_out(self, name):
        print(f"{name}: NOT RUN: at the pace of this machine it would not end within {self.pace.minutes} minutes", flush=True)
        cases = judge_skips(name, [Case("all of it", SKIP, f"no time was left of {self.pace.minutes} minutes")], self.allowed)
        self.everything += [dataclasses.replace(case, stage=name) for case in cases]
        self.times[name] = "not run"

    def ask_again(self):
        """Each failed case once more, with nothing beside it."""
        for name in STAGES:
            mine = [case for case in self.everything if case.stage == name]
            begin = time.monotonic()
            now = again.ask(mine, lambda turn, name=name: self.stage_again(name, turn), self.pace.is_late)
            if now == mine:
                continue
            self.everything = [case for case in self.everything if case.stage != name] + now
            counts = f"{sum(case.unstable for case in now)} unstable, {sum(case.status == FAIL for case in now)} failed"
            print(f"{name}, again: {counts} ({time.monotonic() - begin:.0f} s)", flush=True)
        again.keep(UNSTABLE, self.everything)

    def stage_again(self, name, turn):
        print(f"{name}: what failed is run again, alone ({turn}/{again.TURNS}) ...", flush=True)
        return Stage(f"again-{turn}-{name}", self.jobs, timeout=again.TIMEOUT)

    def stage(self, name, aside):
        action, what = STAGES[name]
        with self.lock:
            self.begun += 1
            self.pace.begin(name)
            number = f"[{self.begun}/{len(self.chosen)}]"
            print(f"{number} {name}: {what}{', aside' if aside else ''} ...", flush=True)
        stage = Stage(name, self.jobs, aside, STAGE_TIMEOUT * self.pace.pace() * (2 if aside else 1))
        start, (idle, total) = time.monotonic(), machine.processor_times()
        try:
            cases = judge_skips(name, action(stage), self.allowed)
        except Exception:  # a fault of this script, or of the machine, is a failure to report and not the end of it
            cases = [Case("check.py", FAIL, output=traceback.format_exc())]
        now_idle, now_total = machine.processor_times()
        share = 100 * (now_idle - idle) / max(1, now_total - total)
        with self.lock:
            self.pace.end(name)
            self.times[name] = f"{time.monotonic() - start:.0f} s"
            print(f"{number} {name}: {count(cases)} ({self.times[name]}, processors {share:.0f} % idle)", flush=True)
            failed = [case for case in cases if case.status == FAIL]
            if failed:
                show_failures(stage, failed)
            self.everything += [dataclasses.replace(case, stage=name) for case in cases]
        return cases


def shake_stage(name, jobs, repeat, load):
    """The stage so many times beside so many busy loops; each run has its own logs."""

    def run(turn):
        print(f"[{turn}/{repeat}] {name}, beside {load} busy loops ...", flush=True)
        cases = judge_skips(name, STAGES[name][0](Stage(f"{name}-{turn}", jobs)), skips.load())
        print(f"[{turn}/{repeat}] {name}: {count(cases)}", flush=True)
        return cases

    if name != "build" and any(case.status == FAIL for case in stage_build(Stage("build", jobs))):
        return 1
    return 1 if shaker.shake(run, repeat, load) else 0


def main():
    parser = argparse.ArgumentParser(description="Every test and check of the project, counted.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=int, metavar="N",
                        help="begin no stage that would not end within them at the pace of this machine so far, and say so (default: no limit)")
    parser.add_argument("--all", action="store_true", help=f"run all stages, but guests, which lab has (default: {', '.join(USUAL)})")
    parser.add_argument("--repeat", type=int, metavar="N", help="run one stage N times, and say how often each case failed")
    parser.add_argument("--load", type=int, default=0, metavar="L", help="with --repeat: beside L busy loops (default: 0)")
    parser.add_argument("--list", action="store_true", help="name the stages and stop")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="run only these (build is run before them)")
    args = parser.parse_args()
    if args.list:
        for name, (_, what) in STAGES.items():
            print(f"{name:11} {what}")
        return 0
    unknown = set(args.stages) - set(STAGES)
    if unknown:
        parser.error(f"no stage {', '.join(sorted(unknown))}; see --list")
    if args.all and args.stages:
        parser.error("--all, or stages")
    if args.repeat and len(args.stages) != 1:
        parser.error("--repeat takes one stage")

    LOGS.mkdir(parents=True, exist_ok=True)
    if args.repeat:
        return shake_stage(args.stages[0], args.jobs, args.repeat, args.load)
    UNSTABLE.unlink(missing_ok=True)
    os.environ.setdefault("FABTESTS_SEED", str(random.randrange(1, 1 << 31)))  # a case that is run again draws the same
    print(f"FABTESTS_SEED={os.environ['FABTESTS_SEED']}")
    asked = set(STAGES) - {"guests"} if args.all else args.stages or USUAL
    chosen = [name for name in STAGES if name in asked or name == "build"]
    with machine.huge_pages():
        progress = Progress(chosen, args.jobs, args.minutes)
        everything = progress.run()
    print("\n".join(summary(everything, progress.times)), flush=True)
    return 1 if any(case.status == FAIL for case in everything) else 0


if __name__ == "__main__":
    sys.exit(main())
