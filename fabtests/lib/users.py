# SPDX-License-Identifier: BSD-2-Clause
"""Programs that run as other users, and go on when they are told to."""

import os

import pytest

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def become(user, host=None):
    """What a child does before its program starts: in that namespace, as that user."""
    def change():
        if host is not None:
            host.enter()
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    return change


class Input:
    """A program's standard input: it goes on with each line."""

    def __init__(self):
        read, self._write = os.pipe()
        self.file = os.fdopen(read, "rb")

    def go_on(self):
        os.write(self._write, b"\n")

    def close(self):
        self.file.close()
        os.close(self._write)
