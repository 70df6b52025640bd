# SPDX-License-Identifier: BSD-2-Clause
"""What libvma warns of when it is loaded, which people look for by its words: a high log level, and little memory that may be locked."""

import ctypes
import os
import resource

import pytest

from lib import build

PR_CAPBSET_DROP, CAP_IPC_LOCK = 24, 14
LEVEL = "VMA is currently configured with high log level"
LOCKED = "Your current max locked memory is: 65536. Please change it to unlimited."


def said(run, preexec=None, **env):
    proc = run.start("true", [build.tool("true")], vma=True, preexec=preexec, env=env).ok()
    return [line for path in proc.log_paths() for line in path.read_text().splitlines()]


@pytest.mark.parametrize("level, high", [("info", False), ("details", False), ("debug", True), ("finer", True)])
def test_high_log_level(run, level, high):
    assert any(f"VMA WARNING: * {LEVEL}" in line for line in said(run, VMA_TRACELEVEL=level)) == high


def little_to_lock(keeps_right):
    def prepare():
        if not keeps_right:
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    return prepare


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("env, keeps_right, warned", [
    ({"VMA_ETHERNET": "wire"}, False, True), ({"VMA_REMOTE_STREAMS": "1"}, False, True),
    ({}, False, False),  # nothing is locked within a host
    ({"VMA_ETHERNET": "wire"}, True, False),  # who may lock all has no limit
])
def test_locked_memory(run, env, keeps_right, warned):
    lines = said(run, little_to_lock(keeps_right), VMA_TRACELEVEL="info", **env)
    assert any(line.endswith(f"VMA WARNING: {LOCKED}") for line in lines) == warned
