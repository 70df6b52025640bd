# SPDX-License-Identifier: BSD-2-Clause
"""Programs for Open MPI (fabtests/fabric/programs), which are no part of the build."""

import pathlib
import subprocess

import pytest

from . import build

SOURCES = build.TOP / "fabtests" / "fabric" / "programs"


def program(work: pathlib.Path, name: str) -> pathlib.Path:
    """Compiled in that folder; the test is skipped where Open MPI's compiler or header is missing."""
    path = work / name
    made = subprocess.run([build.tool("mpicc.openmpi"), "-O1", "-o", path, SOURCES / (name + ".c")], capture_output=True,
                          text=True)
    if "mpi.h" in made.stderr:
        pytest.skip("mpi.h is not installed (libopenmpi-dev)")
    assert made.returncode == 0, made.stderr
    return path
