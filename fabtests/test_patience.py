# SPDX-License-Identifier: BSD-2-Clause
"""lib/patience.py itself: never less than a minute, more on a slow machine, which is looked at again before a wait is given up."""

import os
import subprocess
import sys

import pytest

from lib import build, patience

pytestmark = pytest.mark.alone


@pytest.fixture
def slowness(monkeypatch):
    """slowness(...): what the next measurements find."""
    def will_be(*found):
        left = list(found)
        monkeypatch.setattr(patience, "measure", lambda: {"wake-up": left.pop(0)})
        monkeypatch.setattr(patience, "FRESH", 0)
        monkeypatch.setattr(patience, "_SLOWNESS", patience._Slowness())
        monkeypatch.setattr(patience, "_ASKED_FOR", 1.0)
    return will_be


def test_measures():
    found = patience.measure()
    assert set(found) == {"queue", "system call", "process", "wake-up", "page fault"}
    assert all(value > 0 for value in found.values())


def test_never_less_than_a_minute(slowness):
    slowness(0.1, 0.1, 2, 2, 50)
    assert [patience.seconds(), patience.seconds(20), patience.seconds(20), patience.seconds(100), patience.seconds()] == [60, 60, 120, 200, 300]


def test_a_machine_that_becomes_slower(slowness):
    slowness(1, 3, 3, 1)
    deadline = patience.Deadline()
    deadline._begin -= 70
    assert deadline.left() == 0 and not deadline.over()
    assert 100 < deadline.left() < 111
    deadline._begin -= 120
    assert deadline.over()
    slowness(3, 1)
    deadline = patience.Deadline()
    deadline._begin -= 100
    assert not deadline.over(), "a machine that was slow has been waited for as such"


@pytest.mark.parametrize("given, least", [("", 1), ("3", 3), ("0.1", 1)])
def test_variable(given, least):
    """It multiplies what is measured, and is never less than that."""
    env = {**os.environ, "FABTESTS_PATIENCE": given}
    said = subprocess.run([sys.executable, "-B", patience.__file__], env=env, check=True, capture_output=True, text=True)
    assert least <= float(said.stdout) <= least * patience.MOST


def test_programs_are_told(run):
    said = run.run("told", [build.tool("sh"), "-c", "echo $FABTESTS_PATIENCE"]).stdout()
    assert float(said) >= 1
