# SPDX-License-Identifier: BSD-2-Clause
"""What suites of others run on."""

import pytest

from lib import netns, suite


@pytest.fixture
def places():
    """A host for each run: two that meet would take each other's abstract names and ports."""
    made = {mode: netns.made(netns.Host) for mode in suite.MODES}
    yield made
    for host in made.values():
        host.remove()
