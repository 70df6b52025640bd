# SPDX-License-Identifier: BSD-2-Clause
"""The rxe lab for tests: one pair of guests, booted once, and rules that hold for each test in it."""

import pytest

from lib import rxe as rxe_lib
from lib.runner import CRASHES


@pytest.fixture(scope="session")
def booted():
    """The pair of guests. Skipped where the machine lacks what they need; a guest that does not boot is a failure."""
    reason = rxe_lib.missing()
    if reason:
        pytest.skip(f"no rxe lab: {reason}")
    with rxe_lib.Lab() as lab:
        yield lab


@pytest.fixture
def rxe(booted, request):
    """The lab. At the end of the test nothing of it runs, and nothing has crashed."""
    before = {guest: len(guest.commands) for guest in booted.guests}
    yield booted
    mine = [command for guest in booted.guests for command in guest.commands[before[guest]:]]
    for command in mine:
        command.kill()
    crashed = [f"{command} crashed: status {command.status}\n{command.output()}" for command in mine
               if command.status in CRASHES]
    if crashed:
        pytest.fail("\n".join(crashed), pytrace=False)


@pytest.fixture
def broken(rxe):
    """The lab, for a test that breaks the wire or a device: whole again afterwards."""
    yield rxe
    rxe.restore()


@pytest.fixture(scope="session")
def vma_on_rxe(booted):
    """For a test of our provider on the device."""
    if not rxe_lib.offers(booted.client, "vma"):
        pytest.skip("the provider vma has no domain rxe0 yet")


@pytest.fixture(params=["verbs", "vma"])
def provider(request):
    """Whatever a test does over libfabric's own provider for the device, it does over ours, in the same boot."""
    if request.param == "vma":
        request.getfixturevalue("vma_on_rxe")
    return request.param
