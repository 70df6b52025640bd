# SPDX-License-Identifier: BSD-2-Clause
"""Runs one module of unittest tests and writes each test's outcome to a file, one line as soon as it is known:
`<outcome> <id>`. What ends the process in between (a crash, a time-out from outside) shows as a test that was started only."""

import argparse
import fnmatch
import importlib
import os
import sys
import tempfile
import unittest


class Lines(unittest.TextTestResult):
    """Outcomes are one word: passed, failed, skipped; a test that fails as it is expected to has passed."""

    out = None
    failed_parts = frozenset()  # ids of tests of which a sub-test has failed

    def _tell(self, outcome, test):
        self.out.write(f"{outcome} {test.id()}\n")
        self.out.flush()

    def startTest(self, test):
        super().startTest(test)
        self._tell("started", test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._tell("failed" if test.id() in self.failed_parts else "passed", test)

    def addError(self, test, err):
        super().addError(test, err)
        self._tell("failed", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._tell("failed", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._tell("skipped", test)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self._tell("passed", test)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._tell("failed", test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.failed_parts |= {test.id()}
            self._tell("failed", test)


def load(name):
    """The module's tests, a package's with those of its modules."""
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):
        return unittest.defaultTestLoader.discover(os.path.dirname(module.__file__), "test_*.py",
                                                   os.path.dirname(os.path.dirname(os.path.dirname(module.__file__))))
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def matches(test, patterns):
    return any(fnmatch.fnmatchcase(test.id(), pattern) for pattern in patterns)


def chosen(tests, only, without):
    """Of the suite the tests that a pattern of `only` names, or all when there is none, but for those that one of `without` names."""
    kept = unittest.TestSuite()
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            kept.addTest(chosen(test, only, without))
        elif (not only or matches(test, only)) and not matches(test, without):
            kept.addTest(test)
    return kept


def prepare_support(resources):
    """What CPython's own runner does before: no test uses resources (test.support) but those named."""
    try:
        from test import support
    except ImportError:
        return
    support.use_resources = resources
    support.verbose = 0
    for name in "LOOPBACK_TIMEOUT", "SHORT_TIMEOUT", "LONG_TIMEOUT":  # no minute at least: some tests wait for all of it
        setattr(support, name, getattr(support, name) * float(os.environ["FABTESTS_PATIENCE"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results")
    parser.add_argument("module")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="tests that are run, instead of all")
    parser.add_argument("--without", action="append", default=[], metavar="PATTERN", help="tests that are not run")
    parser.add_argument("--resource", action="append", default=[], help="of test.support, that tests may use")
    options = parser.parse_args()
    prepare_support(options.resource)
    with open(options.results, "w", encoding="utf-8") as out, tempfile.TemporaryDirectory() as place:
        Lines.out = out
        os.chdir(place)
        tests = chosen(load(options.module), options.only, options.without)
        unittest.TextTestRunner(sys.stderr, verbosity=2, resultclass=Lines).run(tests)
        os.chdir("/")
        out.write("ended\n")


if __name__ == "__main__":
    main()
