# SPDX-License-Identifier: BSD-2-Clause
"""What a process of this user may have (getrlimit(2)), where a test needs more than is usual."""

import resource

import pytest


def needs_descriptors(number: int) -> int:
    """The hard limit, or RLIM_INFINITY. Skips where it is less."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < number:
        pytest.skip(f"RLIMIT_NOFILE allows {hard} descriptors, {number} are wanted")
    return hard
