# SPDX-License-Identifier: BSD-2-Clause
"""What socket calls return and do: each scenario prints a transcript, and the library's must be the kernel's."""

import glob
import pathlib
import re

import pytest

from lib import build, netns, pairing, peers

SOURCES = pathlib.Path(__file__).parent / "programs" / "semantics"
_text = "".join(source.read_text() for source in SOURCES.glob("*.cpp"))
SCENARIOS = sorted(re.findall(r"^SCENARIO\((\w+)\)", _text, re.M)
                   + [f"{name}_by_{side}" for name in re.findall(r"^STREAMING\((\w+)\)", _text, re.M)
                      for side in ("client", "server")])
FAULTS = set(re.findall(r"^SCENARIO\((\w+)\)", (SOURCES / "faults.cpp").read_text(), re.M))
STACKS = {"cancelled_receive", "cloned_child", "own_tables_by_clone"}
NETWORKS = {"network_left", "same_addresses_in_three_networks", "same_addresses_in_three_networks_at_once"}
EDGES = {"epoll_several_sets", "epoll_nested", "epoll_edge", "epoll_edge_server", "epoll_edge_writable", "epoll_one_shot", "epoll_mixed",
         "shared_set_child_deletes_and_adds"}
PROGRAM = "sockets/programs/semantics/semantics"

# Transcripts of the kernel, taken once a session.
_reference = {}


def transcripts(run, pair, scenario, env=None):
    if scenario in FAULTS and build.sanitized():
        pytest.skip("the sanitizer has handlers of SIGSEGV and SIGBUS of its own, and checks arguments before us")
    if scenario in STACKS and build.sanitized():
        pytest.skip("AddressSanitizer knows neither a cancelled thread's stack as free nor a stack of the program's own")
    if scenario in NETWORKS:
        netns.only_root()
    server, client = peers.run_both(run, pair, PROGRAM, scenario, offload=True, env=env)
    found = {}
    for proc in (server, client):
        found[proc.name.split("#")[0]] = lines = proc.stderr().splitlines()
        assert "done" in lines, f"{proc.name} did not come to the end\n{proc.stderr()}"
    return found


@pytest.fixture
def reference(run):
    def get(scenario):
        if scenario not in _reference:
            _reference[scenario] = transcripts(run, pairing.KERNEL, scenario)
        return _reference[scenario]
    return get


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_as_the_kernel(run, pair, reference, scenario):
    peers.compare(reference(scenario), transcripts(run, pair, scenario))


@pytest.mark.pairs(pairing.VMA_LATENCY)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_sleeping(run, pair, reference, scenario):
    """The same where waits never spin. (In the profile "latency" they only spin.) And errno stays where a call succeeds (test_errno.py)."""
    env = {"VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0", "LD_PRELOAD": build.preload_watched()}
    peers.compare(reference(scenario), transcripts(run, pair, scenario, env))


@pytest.mark.pairs(pairing.VMA_LATENCY)
@pytest.mark.parametrize("scenario", [scenario for scenario in SCENARIOS if scenario not in EDGES])
def test_let_go_when_idle(run, pair, reference, scenario):
    """The same where connections go back to the kernel whenever nothing has moved for some milliseconds. But for those that count edges: an
    edge-triggered set tells of what is there once more when the kernel takes over."""
    env = {"VMA_IDLE_STREAMS": "0", "VMA_IDLE_MSEC": "10"}
    peers.compare(reference(scenario), transcripts(run, pair, scenario, env))


JEMALLOC = glob.glob("/usr/lib/*/libjemalloc.so.2")


@pytest.mark.pairs(pairing.VMA_LATENCY)
@pytest.mark.parametrize("scenario", ["unread_bytes_are_read_once", "unread_bytes_are_seen_by_both", "unread_bytes_are_read_by_the_child",
                                      "unread_bytes_are_read_in_a_terminal", "unread_bytes_are_read_by_a_daemon"])
@pytest.mark.skipif(not JEMALLOC, reason="libjemalloc.so.2 is not installed (libjemalloc2)")
@pytest.mark.skipif(build.sanitized(), reason="a sanitizer has an allocator of its own")
def test_an_allocator_that_forks_lock(run, pair, reference, scenario):
    """jemalloc's handler runs before ours, and no memory is to be had from then on."""
    env = {"LD_PRELOAD": f"{build.preload()} {JEMALLOC[0]}"}
    peers.compare(reference(scenario), transcripts(run, pair, scenario, env))
