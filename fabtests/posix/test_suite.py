# SPDX-License-Identifier: BSD-2-Clause
"""The comparison itself: it finds what it is for."""

import pathlib
import sys

from lib import suite

PROGRAM = pathlib.Path(__file__).parent / "programs" / "unittest_results.py"

TESTS = """
import os, unittest
class Some(unittest.TestCase):
    def test_always(self):
        pass
    def test_plain(self):
        self.assertNotIn("WITH", os.environ)
    def test_parts(self):
        for name in "WITHOUT", "WITH":
            with self.subTest(name):
                self.assertNotIn(name, os.environ)
    def test_wish(self):
        if "WITH" in os.environ:
            self.skipTest("because")
    def test_end(self):
        if "END" in os.environ:
            os._exit(1)
"""


def results(run, name, *options, **environment):
    (run.work / "some_tests.py").write_text(TESTS)
    proc = run.start(name, [sys.executable, "-B", PROGRAM, run.work / name, "some_tests", *options],
                     env={"PYTHONPATH": str(run.work), **environment})
    proc.may_fail = True
    proc.wait()
    return suite.read_results(run.work / name)


def test_same(run):
    kernel = results(run, "kernel")
    assert sorted(kernel.outcomes.values()) == ["passed"] * 5 and kernel.whole
    assert suite.differences(kernel, results(run, "other")) == []


def test_differences(run):
    found = suite.differences(results(run, "kernel"), results(run, "other", WITH="1"))
    assert [(line.split(":")[0].rsplit(".", 1)[1], line.rsplit(" ", 1)[1]) for line in found] == [
        ("test_parts", "failed"), ("test_plain", "failed"), ("test_wish", "skipped")]


def test_end(run):
    found = suite.differences(results(run, "kernel"), results(run, "other", END="1"))
    assert found[-1] == "the suite did not come to its end"
    assert any("test_end: passed over the kernel, started" in line for line in found)


def test_choice(run):
    some = results(run, "some", "--only=*.test_p*", "--only=*.test_wish", "--without=*parts")
    assert [name.rsplit(".", 1)[1] for name in some.outcomes] == ["test_plain", "test_wish"] and some.whole


def test_reasons():
    assert all(reason for _, reason in suite.allowed_differences())
