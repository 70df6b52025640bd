# SPDX-License-Identifier: BSD-2-Clause
"""vma_lat under test: where it is, and what a result without a fault looks like."""

import pathlib

import pytest

from . import build


def program():
    path = build.build_dir() / "vma_lat"
    if not path.exists():
        pytest.fail(f"{path} is not built", pytrace=False)
    return path


def all_arrived(test, count, replies=True):
    assert test["client"]["sent"] == count
    assert test["lost"] == 0 and test["error"] is None and not test["interrupted"]
    assert len(test["servers"]) == 1
    server = test["servers"][0]
    assert server["received"] == count and server["sent"] == (count if replies else 0)
    for side in (server, test["client"]):
        assert side["damaged"] == 0 and side["duplicates"] == 0 and side["foreign"] == 0
    if replies:
        assert test["client"]["received"] == count and test["rtt_ns"]["count"] == count


def cpu_seconds(proc) -> float:
    try:
        fields = pathlib.Path(f"/proc/{proc.pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100
