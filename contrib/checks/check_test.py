#!/usr/bin/env python3
"""contrib/check.py: allowed skips are judged as they should be, and stages are left out where there is no time for them."""

import contextlib
import io
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import check  # noqa: E402
import machine  # noqa: E402
import skips  # noqa: E402

ALLOWED = [
    ("asan", "the sanitizer has its own handler of SIGSEGV"),
    ("distcheck", "ThreadSanitizer has a sigaction() of its own"),
    ("fabtests", "no AF_XDP sockets: [Errno 97] Address family not supported by protocol"),
    ("fabtests", "mdwe: not here: prctl: Invalid argument"),
    ("fabtests", "with 3.1 threads busy, only 87% of the rate was reached"),
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
        progress.pace.left -= set(check.FIRST)
        progress.pace.start -= pace * sum(machine.SECONDS[name] for name in check.FIRST)
        return progress

    def test_each_stage_has_its_seconds(self):
        self.assertEqual(set(machine.SECONDS), set(check.STAGES))

    def test_all_fit(self):
        for pace in 0.5, 1, 1.4:
            progress = self.after_the_first(pace)
            self.assertTrue(all(progress.pace.fits(name) for name in progress.pace.left))

    def test_the_first_fit_first(self):
        for pace in 1.6, 2, 2.5, 3:
            progress = self.after_the_first(pace)
            fit = [progress.pace.fits(name) for name in progress.pace.in_order()]
            self.assertEqual(fit, sorted(fit, reverse=True))
            self.assertTrue(fit[0] and not fit[-1])

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


if __name__ == "__main__":
    unittest.main()
