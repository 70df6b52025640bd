# SPDX-License-Identifier: BSD-2-Clause
"""A machine for containers, its vmad, and who runs containers on it."""

import pytest

from lib.introducer import Introducer
from lib.machine import Machine
from lib.podman import Podman


@pytest.fixture
def machine(run):
    made = Machine(run)
    yield made
    made.remove()


@pytest.fixture
def rules():
    """vmad.conf's."""
    return ""


@pytest.fixture
def vmad(run, machine, rules):
    made = Introducer(run, rules, machine=machine)
    yield made
    made.finish()


@pytest.fixture
def runtime():
    return "crun"


@pytest.fixture
def podman(run, machine, runtime):
    return Podman(run, machine, runtime=runtime)
