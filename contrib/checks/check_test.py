#!/usr/bin/env python3
"""contrib/check.py: allowed skips are judged as they should be, stages are left out where there is no time for them, and failed cases are
run again."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import check  # noqa: E402
from checks import cases as check_cases, stage as stage_module, units, whole_programs  # noqa: E402
import machine  # noqa: E402
import skips  # noqa: E402

ALLOWED = [
    ("asan", "the sanitizer has its own handler of SIGSEGV"),
    ("distcheck", "ThreadSanitizer has a sigaction() of its own"),
    ("fabtests", "no AF_XDP sockets: [Errno 97] Address family not supported by protocol"),
    ("fabtests", "mdwe: not here: prctl: Invalid argument"),
    ("fabtests", "this machine is 1.4 times slower than the usual one: 87% of the rate with 0.52 of a processor"),
    ("fabtests", "known difference: a program without the library is noticed after 50 ms"),
    ("lab", "no rxe lab: the guests run this machine's programs, which must be x86_64 and not aarch64"),
]

NOT_ALLOWED = [
    ("make-check", "the sanitizer has its own handler of SIGSEGV"),
    ("asan", "ThreadSanitizer has a sigaction() of its own"),
    ("fabtests", ""),
    ("fabtests", "mpicc.openmpi is not installed"),
    ("fabtests", "takes minutes: FABTESTS_LONG=1 runs it"),
    ("fabtests", "cannot make network namespaces: Operation not permitted"),
    ("fabtests", "libvma.so of this build intercepts nothing"),
    ("lab", "no rxe lab: qemu-system-x86_64 is not here: install the Debian package qemu-system-x86"),
    ("make-check", "clang-format 14 is not installed"),
    ("tidy", "clang-tidy is not installed"),
]

USERS = [
    ("fabtests", "only root can make network namespaces"),
    ("fabtests", "no AF_XDP sockets: [Errno 1] Operation not permitted"),
    ("make-check", "no right to load BPF programs"),
]


class Skips(unittest.TestCase):
    def setUp(self):
        self.list = skips.load()

    def allowed(self, stage, reason, root):
        return skips.is_allowed(self.list, stage, reason, root)

    def test_reasons(self):
        for cases, as_root, as_user in (ALLOWED, True, True), (NOT_ALLOWED, False, False), (USERS, False, True):
            for stage, reason in cases:
                with self.subTest(f"{stage}: {reason}"):
                    self.assertEqual(self.allowed(stage, reason, True), as_root)
                    self.assertEqual(self.allowed(stage, reason, False), as_user)

    def test_stages_are_there(self):
        for one in self.list:
            self.assertLessEqual(one.where, {*check.STAGES, "any", "user"})

    def test_lines_that_are_none(self):
        for line in "any | one processor", "any | one processor | ", "| one processor | why", "one processor":
            with self.subTest(line), self.assertRaisesRegex(ValueError, "skips.txt:3: "):
                skips.parse(f"# WHERE | REASON | WHY\n\n{line}\n")

    def test_verdict(self):
        cases = [
            check.Case("a", check.PASS),
            check.Case("b", check.SKIP, "one processor"),
            check.Case("c", check.SKIP, "socat is not installed"),
            check.Case("d", check.FAIL, "see a log"),
        ]
        judged = check.judge_skips("fabtests", cases, self.list)
        self.assertEqual([case.status for case in judged], [check.PASS, check.SKIP, check.FAIL, check.FAIL])
        self.assertEqual(judged[2].detail, "skipped, which contrib/checks/skips.txt does not allow: socat is not installed")


class Drivers(unittest.TestCase):
    """What automake's driver says of a skipped case, of a whole program, and of a script."""

    LOG = """PASS: compat/test/a_test 1 - works
SKIP: compat/test/a_test 2 - needs_more # SKIP one processor
SKIP: compat/test/b_test - ThreadSanitizer's runtime calls the wrappers before it is ready
SKIP: contrib/checks/no-such-script.py
"""

    def test_reasons(self):
        stage = type("Stage", (), {"text": lambda _: self.LOG})()
        found = check.count_verdicts(stage, pathlib.Path("/nonexistent"), 0)
        self.assertEqual(
            [(case.name, case.status, case.detail) for case in found],
            [
                ("compat/test/a_test 1 - works", check.PASS, ""),
                ("compat/test/a_test 2 - needs_more", check.SKIP, "one processor"),
                ("compat/test/b_test", check.SKIP, "ThreadSanitizer's runtime calls the wrappers before it is ready"),
                ("contrib/checks/no-such-script.py", check.SKIP, "no reason given"),
            ],
        )


class Minutes(unittest.TestCase):
    """What a check of 75 minutes runs at some paces: SECONDS are those of a machine of pace 1."""

    def after_the_first(self, pace):
        progress = check.Progress(list(check.STAGES), 2, 75)
        progress.pace.left -= set(check.FIRST[:-1])
        progress.pace.start -= pace * sum(machine.SECONDS[name] for name in check.FIRST)
        progress.pace.end(check.FIRST[-1])
        return progress

    def test_each_stage_has_its_seconds(self):
        self.assertEqual(set(machine.SECONDS), set(check.STAGES))

    def test_all_fit(self):
        for pace in 0.5, 1, 1.4:
            progress = self.after_the_first(pace)
            self.assertTrue(all(progress.pace.fits(name) for name in progress.pace.left))

    def test_the_first_fit_first(self):
        for pace in 1.7, 2, 2.5, 3:
            progress = self.after_the_first(pace)
            fit = [progress.pace.fits(name) for name in progress.pace.in_order()]
            self.assertEqual(fit, sorted(fit, reverse=True))
            self.assertTrue(fit[0] and not fit[-1])

    def test_those_under_way_are_partly_done(self):
        """Where tidy has ended beside lab, which goes on, what comes next is judged by the pace of before, and lab by what is left of it."""
        progress, begun = self.after_the_first(1.4), 1.4 * (machine.SECONDS["lab"] + machine.SECONDS["tidy"]) - 10
        for name in "lab", "tidy":
            progress.pace.begin(name)
            progress.pace.under_way[name] -= begun
        progress.pace.start -= begun
        progress.pace.end("tidy")
        self.assertAlmostEqual(progress.pace.pace(), 1.4, places=1)
        self.assertTrue(all(progress.pace.fits(name) for name in check.ASIDE if name in progress.pace.left))

    def test_short_ones_at_last(self):
        progress = self.after_the_first(3)
        self.assertFalse(progress.pace.fits("tidy"))
        self.assertTrue(progress.pace.fits("tidy", alone=True))

    def test_no_limit(self):
        progress = self.after_the_first(100)
        progress.pace.minutes = None
        self.assertTrue(all(progress.pace.fits(name) for name in progress.pace.left))

    def test_left_out_is_said(self):
        progress = self.after_the_first(100)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            progress.leave_out("fuzz")
        self.assertIn("fuzz: NOT RUN", said.getvalue())
        self.assertEqual([case.status for case in progress.everything], [check.SKIP])


FORGIVEN = [
    "AssertionError: timed out after 60 s waiting for port 7001 to listen",
    "client did not end within 60 s",
    "assert 2093 < 2079",
    "carried 812 lost 3 doubled 2 held 4 marked 0",
    "server ended with status 1",
    "fault       runs  there      ok   reset    lost doubled    hung   other",  # the head of the step harness's table
    "read_end, default buffers, stop at p (libc): hung: not over after 60 s",
]
UNFORGIVEN = [
    "==12==ERROR: AddressSanitizer: heap-use-after-free on address 0x1",
    "WARNING: ThreadSanitizer: data race (pid=1)",
    "ring.cpp:12:3: runtime error: signed integer overflow",
    "server crashed: SIGSEGV",
    "client ended with status -11",
    "# exit status: 139",
    "wrong byte at 4096; these stand at 0",
    "flow 3: doubled, wrong byte at 12",
    "read_end, default buffers, kill at p (libc): lost: writer began 9, sent 9, read 4, end EOF",
    "read_end, default buffers, kill at p (libc): doubled: writer began 9, sent 9, read 10, end EOF",
    "recv: end of the stream with 12 bytes missing",
    "assert (4096, 'end') == (8192, 'end')",
]


class Again(unittest.TestCase):
    """What a second run makes good. The cases are a function's, which is told what each run comes to."""

    def setUp(self):
        self.runs = []

    def case(self, name, status, output="", again=True):
        return check.Case(name, status, output=output, again=(self.run_again, "folder", name) if again else None)

    def run_again(self, _stage, _folder, names, env):
        self.asked.append(names)
        self.seeds.append(env)
        return [self.case(name, *self.runs.pop(0)) for name in names]

    def ask(self, cases, *runs, late=False):
        self.runs, self.asked, self.seeds = list(runs), [], []
        said = check.again.ask(cases, lambda turn: None, lambda: late)
        return [(case.status, case.unstable) for case in said]

    def test_what_is_never_forgiven(self):
        for output in FORGIVEN:
            with self.subTest(output):
                self.assertIsNone(check.again.unforgiven(output))
        for output in UNFORGIVEN:
            with self.subTest(output):
                self.assertIsNotNone(check.again.unforgiven(output))

    def test_passes_then(self):
        cases = [self.case("a", check.PASS), self.case("b", check.FAIL), self.case("c", check.FAIL)]
        self.assertEqual(self.ask(cases, (check.PASS,), (check.FAIL,), (check.PASS,)),
                         [(check.PASS, False), (check.PASS, True), (check.PASS, True)])
        self.assertEqual(self.asked, [["b", "c"], ["c"]])

    def test_it_draws_the_same(self):
        self.ask([self.case("a", check.FAIL, "# VMA_TEST_SEED=12\nFUZZ_SEED=7"), self.case("b", check.FAIL)], (check.PASS,), (check.PASS,))
        self.assertEqual(self.seeds, [{"VMA_TEST_SEED": "12", "FUZZ_SEED": "7"}, {}])

    def test_fails_each_time(self):
        self.assertEqual(self.ask([self.case("a", check.FAIL)], (check.FAIL,), (check.FAIL,)), [(check.FAIL, False)])

    def test_a_skip_is_no_pass(self):
        self.assertEqual(self.ask([self.case("a", check.FAIL)], (check.SKIP,), (check.SKIP,)), [(check.FAIL, False)])

    def test_another_case_of_its_program_is_skipped(self):
        def run_again(*_):
            return [check.Case("p 1", check.PASS, again=mine), check.Case("p 2", check.SKIP, again=mine)]
        mine = (run_again, "folder", "p")
        said = check.again.ask([check.Case("p 1", check.FAIL, again=mine)], lambda turn: None, lambda: False)
        self.assertEqual([(case.status, case.unstable) for case in said], [(check.PASS, True)])

    def test_a_crash(self):
        self.assertEqual(self.ask([self.case("a", check.FAIL, UNFORGIVEN[3])]), [(check.FAIL, False)])
        self.assertEqual(self.asked, [])
        self.assertEqual(self.ask([self.case("a", check.FAIL)], (check.FAIL, UNFORGIVEN[3])), [(check.FAIL, False)])
        self.assertEqual(self.asked, [["a"]])

    def test_what_cannot_be_run_alone(self):
        self.assertEqual(self.ask([self.case("build", check.FAIL, again=False)]), [(check.FAIL, False)])

    def test_too_many(self):
        cases = [self.case(str(number), check.FAIL) for number in range(check.again.MOST + 1)]
        self.assertEqual({status for status, _ in self.ask(cases)}, {check.FAIL})
        self.assertEqual(self.asked, [])

    def test_too_late(self):
        self.assertEqual(self.ask([self.case("a", check.FAIL)], late=True), [(check.FAIL, False)])

    def test_it_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "unstable.txt")
            check.again.keep(file, [self.case("a", check.PASS)])
            self.assertFalse(file.exists())
            case = check.Case("test_it", check.PASS, output="E   timed out\n", stage="lab", unstable=True)
            check.again.keep(file, [case])
            check.again.keep(file, [case])
            self.assertRegex(file.read_text(encoding="utf-8"), r"^(\S+ \S+ lab: test_it\n    E   timed out\n){2}$")

    def test_pytest_is_asked(self):
        """A test that fails the first time, by the commands of the check itself."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "fabtests").mkdir()
            (root / "fabtests" / "pytest.ini").touch()
            (root / "fabtests" / "test_it.py").write_text(
                "import pathlib\nimport pytest\n\n@pytest.mark.parametrize('at', ['a b', 'c'])\ndef test_first(at):\n"
                "    mark = pathlib.Path(__file__).with_name(at)\n    there = mark.exists()\n    mark.touch()\n    print('FUZZ_SEED=3')\n"
                "    assert there\n\n@pytest.fixture\ndef fails():\n    yield\n    assert not 'server crashed: SIGSEGV'\n\n"
                "def test_both(fails):\n    assert not 'one'\n",
                encoding="utf-8")
            stage = TemporaryStage(root)
            with unittest.mock.patch.object(whole_programs, "ROOT", root):
                cases = check.pytest(stage, root, {"it": (["fabtests"], {})}, world=())  # one would hide the folder
                self.assertEqual([case.status for case in cases], [check.FAIL] * 3)
                both = cases.pop()
                self.assertTrue("assert not 'one'" in both.output and check.again.unforgiven(both.output) == "a crash")
                self.assertTrue(all("assert False" in case.output and "FUZZ_SEED=3" in case.output for case in cases))
                said = check.again.ask(cases, lambda turn: stage, lambda: False)
            self.assertEqual([(case.status, case.unstable) for case in said], [(check.PASS, True)] * 2)


class Units(unittest.TestCase):
    def of(self, text, seconds):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(units, "ROOT", pathlib.Path(folder)):
            file = pathlib.Path(folder, "fabtests", "some", "test_it.py")
            file.parent.mkdir(parents=True)
            file.write_text(text, encoding="utf-8")
            return [(unit.name, unit.arguments, unit.environment["FABTESTS_PART"], unit.alone) for unit in units.of_file(file, seconds)]

    def test_a_long_file_has_parts(self):
        name = "fabtests/some/test_it.py"
        self.assertEqual(self.of("", 1), [("some-test_it", [name], "0/1", False)])
        self.assertEqual(self.of("", units.LONGEST + 1), [("some-test_it-1", [name], "0/2", False), ("some-test_it-2", [name], "1/2", False)])

    def test_what_is_alone(self):
        name = "fabtests/some/test_it.py"
        for mark in ("pytest.mark.alone", "[pytest.mark.slow, pytest.mark.alone]"):
            self.assertEqual(self.of(f"import pytest\npytestmark = {mark}\n", 1000), [("some-test_it-alone", [name], "0/1", True)])
        self.assertEqual(self.of("@pytest.mark.alone\ndef test(): pass\n", 1),
                         [("some-test_it", [name, "-m", "not alone"], "0/1", False), ("some-test_it-alone", [name, "-m", "alone"], "0/1", True)])

    def test_each_test_is_somewhere_once(self):
        """By the files of the tree: those that run beside others and those that are alone, of the core and all others."""
        found = [unit for core in (True, False) for which in units.find(core) for unit in which]
        self.assertEqual(len({unit.name for unit in found}), len(found))
        files = {str(path.relative_to(units.ROOT)) for path in (units.ROOT / "fabtests").rglob("test_*.py")}
        self.assertEqual({unit.file for unit in found}, {name for name in files if name.split("/")[1] not in units.ELSEWHERE})
        self.assertEqual([name for name in units.CORE if not (units.ROOT / "fabtests" / name).exists()], [])

    def test_the_longest_begins(self):
        for which in units.find(False):
            self.assertEqual([unit.seconds for unit in which], sorted((unit.seconds for unit in which), reverse=True))


class Usual(unittest.TestCase):
    def test_all_begins_with_it(self):
        self.assertEqual(check.FIRST[:len(check.USUAL)], check.USUAL)
        self.assertEqual({*check.FIRST, *check.ASIDE, *check.WAIT, *check.AFTER}, set(check.STAGES))


class TemporaryStage:
    """A stage of the check whose commands and logs are below a folder."""

    def __init__(self, root):
        self.root = root

    def part(self, name):
        return self.root / f"{name}.log"

    def run(self, *command, env, log):
        with open(log, "wb") as out:
            return subprocess.run(command, cwd=self.root, env={**os.environ, **env}, stdout=out, stderr=out, check=False).returncode


class Gist(unittest.TestCase):
    def test_telling_lines(self):
        for output, told in (("x\nE   1 != 2\nserver crashed: SIGSEGV\n", ["E   1 != 2"]),
                             ("server crashed: SIGSEGV\n\nits last words\n", ["server crashed: SIGSEGV"]),
                             ("one\n\n\ntwo\n\n", ["one", "two"])):
            with self.subTest(output):
                self.assertEqual(check_cases.gist(output), told)


class Stopped(unittest.TestCase):
    def test_what_was_under_way(self):
        self.assertEqual(whole_programs.under_way("a.py::test_one[x y] PASSED [ 50%]\na.py::test_two \n!!! KeyboardInterrupt !!!\n"),
                         "a.py::test_two")

    def test_a_command_tells_how_far_it_came(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(stage_module, "LOGS", pathlib.Path(folder)):
            stage = stage_module.Stage("it", 1, timeout=0)
            self.assertEqual(stage.run("sh", "-c", "trap 'echo so far; exit' INT; while :; do sleep 0.01; done"), 124)
            self.assertIn("so far", stage.text())


class Summary(unittest.TestCase):
    def test_the_end_tells(self):
        cases = [check.Case("a", check.PASS, stage="lab"),
                 check.Case("b", check.SKIP, "one processor", stage="lab"),
                 check.Case("c", check.SKIP, "one processor", stage="lab"),
                 check.Case("d", check.PASS, "see a log", "E   timed out\n", stage="lab", unstable=True),
                 check.Case("e", check.FAIL, "see a log", "E   1 != 2\nmore\n", stage="lab")]
        self.assertEqual(check.summary(cases, {"lab": "12 s", "fuzz": "not run"}), [
            "skipped: lab: 2 cases (one processor)",
            "stages: lab 12 s, fuzz not run",
            "unstable: lab: d (see a log)", "    | E   timed out",
            "failed: lab: e (see a log)", "    | E   1 != 2",
            "2 passed, 1 failed, 2 skipped"])


if __name__ == "__main__":
    unittest.main()
