# SPDX-License-Identifier: BSD-2-Clause
"""What the lab raises when it is the lab that failed, and not what runs in it; and looking for the tools it needs."""

import os
import shutil


LAB_FAILED, TIMED_OUT = 125, 124  # exit statuses of the commands, as timeout(1) has them


def exit_status(status: int) -> int:
    """Of a command that ended with `status`, -N if signal N ended it."""
    return status if status >= 0 else 128 - status


class LabError(Exception):
    """The text says what was wrong and, where there is something to do about it, what."""


# Each program or file that the lab needs, and the Debian package that has it.
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "/bin/busybox": "busybox-static",
    "depmod": "kmod",
    "modprobe": "kmod",
    "apt-get": "apt",
    "apt-cache": "apt",
    "dpkg-deb": "dpkg",
    "rdma": "iproute2",
    "/usr/bin/python3": "python3",
}


def find(name: str) -> str:
    """Full path of one of TOOLS, administrators' folders included."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        raise LabError(f"{name} is not here: install the Debian package {TOOLS[name]}")
    return path
