# SPDX-License-Identifier: BSD-2-Clause
"""contrib/lab/rxe as far as it goes without booting, and what it says where it cannot boot."""

import shutil
import subprocess

import pytest

from lib import build, patience, rxe as rxe_lib

COMMAND = build.TOP / "contrib" / "lab" / "rxe"


@pytest.mark.parametrize("arguments, said", [
    ([], "nothing to run"),
    (["--server", "true"], "nothing to run"),
    (["--both", "true", "--client", "true"], "--both excludes"),
    (["--both", "true", "--mtu", "1279"], "--mtu must be"),
    (["--both", "true", "--mtu", "65536"], "--mtu must be"),
])
def test_wrong_arguments(arguments, said):
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=patience.seconds(), check=False)
    assert done.returncode == 2 and said in done.stderr


def test_missing_tools_are_named_with_their_packages(monkeypatch):
    which = shutil.which
    for tool, package in (("qemu-system-x86_64", "qemu-system-x86"), ("/bin/busybox", "busybox-static")):
        monkeypatch.setattr(shutil, "which", lambda name, t=tool, **rest: None if name == t else which(name, **rest))
        assert rxe_lib.missing() == f"{tool} is not here: install the Debian package {package}"
