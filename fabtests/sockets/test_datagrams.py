# SPDX-License-Identifier: BSD-2-Clause
"""What calls on UDP sockets return and do: each scenario prints a transcript, and the library's must be the kernel's."""

import difflib
import pathlib
import re

import pytest

from lib import datagrams, pairing, peers

PROGRAM = "sockets/programs/datagrams/semantics"
SOURCES = pathlib.Path(__file__).parent / "programs" / "datagrams"

# (server bound to, client sends to, client bound to)
FAMILIES = {
    "4": ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
    "4-any": ("0.0.0.0", "127.0.0.1", "127.0.0.1"),
    "6": ("::1", "::1", "::1"),
    "mapped": ("::ffff:127.0.0.1", "::ffff:127.0.0.1", "::ffff:127.0.0.1"),
    "dual": ("::", "127.0.0.1", "127.0.0.1"),
}
_text = "".join(source.read_text() for source in SOURCES.glob("*.cpp"))
_BY_THE_HARNESS = {"killed"}  # it has a part in these
PLAIN = sorted(set(re.findall(r"^SCENARIO\((\w+)\)", _text, re.M)) - _BY_THE_HARNESS)
IN_EVERY_FAMILY = sorted(re.findall(r"^EVERY_FAMILY\((\w+)\)", _text, re.M))
CASES = [(name, "4") for name in PLAIN + IN_EVERY_FAMILY]
# The other families take the same way as "4" where only one side has the library.
OTHER_CASES = [(name, family) for name in IN_EVERY_FAMILY for family in FAMILIES if family != "4"]

# Transcripts of the kernel, taken once a session.
_reference = {}


def arguments(family):
    return [x for name, value in zip(("--bind", "--to", "--from"), FAMILIES[family]) for x in (name, value)]


def transcripts(run, pair, scenario, family, env=None):
    server, client = peers.run_both(run, pair, PROGRAM, *arguments(family), scenario,
                                    env={**datagrams.warm_up_env(pair), **(env or {})})
    found = {}
    for proc in (server, client):
        found[proc.name.split("#")[0]] = lines = proc.stderr().splitlines()
        assert "done" in lines, f"{proc.name} did not come to the end\n{proc.stderr()}"
    datagrams.acceleration(server, client, receiver_has=pair.server, sender_has=pair.client)
    return found


@pytest.fixture
def reference(run):
    def get(scenario, family):
        if (scenario, family) not in _reference:
            _reference[scenario, family] = transcripts(run, pairing.KERNEL, scenario, family)
        return _reference[scenario, family]
    return get


def compare(wanted, got):
    differences = []
    for side in ("server", "client"):
        if got[side] != wanted[side]:
            differences += difflib.unified_diff(wanted[side], got[side], f"{side} on the kernel", f"{side} here",
                                                n=3, lineterm="")
    if differences:
        pytest.fail("\n".join(differences), pytrace=False)


def names(cases):
    return [f"{scenario}-{family}" for scenario, family in cases]


@pytest.mark.pairs(*datagrams.PAIRS)
@pytest.mark.parametrize("scenario, family", CASES, ids=names(CASES))
def test_as_the_kernel(run, pair, reference, scenario, family):
    compare(reference(scenario, family), transcripts(run, pair, scenario, family))


@pytest.mark.pairs(pairing.VMA_LATENCY)
@pytest.mark.parametrize("scenario, family", OTHER_CASES, ids=names(OTHER_CASES))
def test_families(run, pair, reference, scenario, family):
    compare(reference(scenario, family), transcripts(run, pair, scenario, family))


@pytest.mark.pairs(pairing.VMA_LATENCY)
@pytest.mark.parametrize("scenario, family", CASES, ids=names(CASES))
def test_sleeping(run, pair, reference, scenario, family):
    """The same where waits never spin. (In the profile "latency" they only spin.)"""
    env = {"VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"}
    compare(reference(scenario, family), transcripts(run, pair, scenario, family, env))


@pytest.mark.pairs(*datagrams.PAIRS)
def test_killed(run, pair):
    """The peer of a connected socket is killed with -9: ECONNREFUSED, also for who waits."""
    server, client = peers.start(run, pair, PROGRAM, *arguments("4"), "killed", env=datagrams.warm_up_env(pair),
                                 client_options={"timeout": 30})
    for proc in (server, client):
        proc.wait_output("ready")
    server.kill()
    client.ok()
    assert client.stderr().splitlines() == ["ready", "send = 1", "recv = -1 ECONNREFUSED", "send = 1",
                                            "send = -1 ECONNREFUSED", "done"]
    datagrams.acceleration(server, client, receiver_has=pair.server, sender_has=pair.client)
