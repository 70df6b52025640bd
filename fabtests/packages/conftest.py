# SPDX-License-Identifier: BSD-2-Clause
"""The packages, built once, and one system that they are installed into."""

import shutil
import tempfile

import pytest

from lib import packages

PROGRAMS = ["redis-server", "redis-tools", "libfabric-bin"]  # what is run there


@pytest.fixture(scope="session")
def debs():
    """{name: file} of Debian's packages, and under "changes" what came of the build."""
    folder = packages.make("deb")
    made = {packages.field(deb, "Package"): deb for deb in folder.glob("*.deb")}
    return {**made, "changes": next(folder.glob("*.changes"))}


@pytest.fixture(scope="session")
def ours(debs):
    return [debs[name] for name in packages.OURS]


@pytest.fixture(scope="session")
def fresh(ours):
    """A system without them, but for what they need."""
    folder = tempfile.mkdtemp(prefix="fabtests-")
    yield packages.System.made(folder, [*PROGRAMS, *packages.of_others(ours)])
    shutil.rmtree(folder, ignore_errors=True)
