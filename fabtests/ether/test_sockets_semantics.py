# SPDX-License-Identifier: BSD-2-Clause
"""What socket calls return and do on a connection that an Ethernet port carries: the scenarios of sockets/programs/semantics,
with the library on the client's side of the wire and the kernel on the other. Transcripts must be those of two kernels."""

import pathlib
import re

import pytest

from lib import peers, port

SOURCES = pathlib.Path(__file__).parents[1] / "sockets" / "programs" / "semantics"
PROGRAM = "sockets/programs/semantics/semantics"
# What connecting.cpp does on loopback of its own is the kernel's.
_text = "".join(source.read_text() for source in SOURCES.glob("*.cpp") if source.name != "connecting.cpp")
SCENARIOS = sorted(re.findall(r"^SCENARIO\((\w+)\)", _text, re.M)
                   + [f"{name}_by_{side}" for name in re.findall(r"^STREAMING\((\w+)\)", _text, re.M)
                      for side in ("client", "server")])
# A connection is not offloaded while a call is inside the kernel; and what an accelerated sender's probes of a closed window
# make room for is his to see. A listener on the other side of the wire is not reached on loopback, and two GiB take half a minute.
OTHERWISE = {"offloaded_while_others_wait", "listener_taken_from_another_process", "timeouts", "more_than_a_call_moves"}


def transcripts(run, lab, sides, scenario):
    options, words = lab.peers(sides)
    server, client = peers.run_both(run, sides, PROGRAM, *words, scenario, **options)
    found = {}
    for proc in (server, client):
        found[proc.name.split("#")[0]] = lines = proc.stderr().splitlines()
        assert "done" in lines, f"{proc.name} did not come to the end\n{proc.stderr()}"
    return found


@pytest.mark.parametrize("scenario", sorted(set(SCENARIOS) - OTHERWISE))
def test_as_the_kernel(run, lab, scenario):
    """Each call returns and does what it does on the kernel. (The client is who does what a scenario is about.)"""
    wanted = transcripts(run, lab, port.KERNEL, scenario)
    peers.compare(wanted, transcripts(run, lab, port.CLIENT, scenario))
