# SPDX-License-Identifier: BSD-2-Clause
"""The memory of a port's frames: VMA_MEM_ALLOC_TYPE, as the kernel tells it of a process that has the port."""

import pathlib
import re

import pytest

from lib import build, port, tcp
from lib.wire import LEFT

NUMBER = 8000


def free_huge_pages() -> bool:
    return int(re.search(r"HugePages_Free:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) != 0


def frames(proc) -> set[str]:
    """The flags of the frames' mapping: the largest of those that a fork leaves out."""
    text = pathlib.Path(f"/proc/{proc.pid}/smaps").read_text()
    mappings = re.findall(r"^Size: +(\d+) kB$.*?^VmFlags: (.*?)$", text, re.M | re.S)
    return max(((int(size), set(flags.split())) for size, flags in mappings if " dc" in flags), key=lambda m: m[0])[1]


def has_port(lab, **env):
    """A program that has the port open."""
    server = lab.program("server", ["/usr/bin/python3", "-m", "http.server", str(NUMBER), "--bind", LEFT],
                         env={"VMA_LIFT_AFTER": "1", **env})
    lab.run.wait_until(lambda: tcp.seen_by_kernel(lab.left, "state", "listening", f"sport = :{NUMBER}"), "it to listen",
                       proc=server)
    url = f"http://{LEFT}:{NUMBER}/"

    def opened():
        lab.program("curl", [build.tool("curl"), "-sSo", "/dev/null", url], ours=False).ok()
        return port.offloaded(server)
    lab.run.wait_until(opened, "the port to be opened", proc=server)
    return server


@pytest.mark.parametrize("value, huge", [("", True), ("2", True), ("1", False), ("0", False)])
def test_pages(lab, value, huge):
    server = has_port(lab, VMA_MEM_ALLOC_TYPE=value)
    flags = frames(server)
    said = [line for line in server.log().at_level("WARNING") if "hugepage resources" in line]
    if huge and free_huge_pages():
        assert "ht" in flags and not said
    else:
        assert "ht" not in flags and ("hg" in flags) == (value != "0")
        assert len(said) == (1 if value == "2" else 0)
        assert not said or "NO IMMEDIATE ACTION NEEDED! Not enough hugepage resources for VMA memory allocation" in said[0]
    server.stop()
