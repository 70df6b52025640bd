# SPDX-License-Identifier: BSD-2-Clause
"""What a process of this user may have (getrlimit(2)), where a test needs more than is usual; and what it is not to have."""

import contextlib
import ctypes
import resource

import pytest

PR_SET_THP_DISABLE = 41


def needs_descriptors(number: int) -> int:
    """The hard limit, or RLIM_INFINITY. Skips where it is less."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < number:
        pytest.skip(f"RLIMIT_NOFILE allows {hard} descriptors, {number} are wanted")
    return hard


def no_huge_pages(on: bool = True):
    """Of this process and of those that it starts: one touched byte is a page then, whatever the machine is set to."""
    assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, ctypes.c_ulong(on), 0, 0, 0) == 0


@contextlib.contextmanager
def without_huge_pages():
    no_huge_pages()
    try:
        yield
    finally:
        no_huge_pages(False)
