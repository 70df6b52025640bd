# SPDX-License-Identifier: BSD-2-Clause
"""A machine without one of the libraries that the Ethernet device opens: it says which, and gives up in good order."""

import errno
import os

import pytest

from lib import build


@pytest.mark.parametrize("program, library", [("frame_echo", "libbpf.so.1"), ("net_watch", "libmnl.so.0")])
def test_missing(request, run, tmp_path, program, library):
    if program == "frame_echo":
        request.getfixturevalue("af_xdp")  # it opens a socket before the library
    (tmp_path / library).touch()  # the linker finds it first, and it is no library
    argv = [build.program(f"ether/programs/{program}")] + (["lo"] if program == "frame_echo" else [])
    proc = run.start(program, argv, env={"LD_LIBRARY_PATH": str(tmp_path), "FI_LOG_LEVEL": "info"})
    assert proc.fails() > 0
    assert proc.stderr().count(library) == 1
    # Each program has its own way to name it.
    assert "ELIBACC" in proc.stderr() or os.strerror(errno.ELIBACC) in proc.stderr()
