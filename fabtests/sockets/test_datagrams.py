# SPDX-License-Identifier: BSD-2-Clause
"""What calls on UDP sockets return and do: each scenario prints a transcript, and the library's must be the kernel's."""

import pathlib
import re
import signal

import pytest

from lib import build, datagrams, pairing, peers, vmalog

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

_BY_THE_HARNESS = {"killed"}  # it has a part in these


def scenarios(kind, *sources):
    """Names of the scenarios of a kind, of all sources or of those that are named."""
    texts = [path.read_text() for path in sorted(SOURCES.glob("*.cpp")) if not sources or path.stem in sources]
    return sorted(set(re.findall(rf"^{kind}\((\w+)\)", "".join(texts), re.M)) - _BY_THE_HARNESS)


CASES = [(name, "4") for name in scenarios("SCENARIO") + scenarios("EVERY_FAMILY")]
# Each scenario with IPv6 and on a dual-stack socket; "4-any" and "mapped", which are near to these, take turns.
OTHER_CASES = [(name, family) for i, name in enumerate(scenarios("EVERY_FAMILY"))
               for family in ("6", "dual", ("4-any", "mapped")[i % 2])]
_WAITING = ("handing_on", "waiting")
SLEEPING = [(name, "4") for name in scenarios("SCENARIO", *_WAITING) + scenarios("EVERY_FAMILY", *_WAITING)]
# Those without fork and signals can have both sides in one process.
_THREADS = ("binding", "control", "receiving", "sending")
ONE_PROCESS = [(name, "4") for name in scenarios("SCENARIO", *_THREADS)] + \
              [(name, ("4", "dual")[i % 2]) for i, name in enumerate(scenarios("EVERY_FAMILY", *_THREADS))]

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


def names(cases):
    return [f"{scenario}-{family}" for scenario, family in cases]


@pytest.mark.pairs(*datagrams.PAIRS)
@pytest.mark.parametrize("scenario, family", CASES, ids=names(CASES))
def test_as_the_kernel(run, pair, reference, scenario, family):
    wanted = reference(scenario, family)
    if pair.server or pair.client:
        peers.compare(wanted, transcripts(run, pair, scenario, family))


@pytest.mark.pairs(pairing.VMA_LATENCY)
@pytest.mark.parametrize("scenario, family", OTHER_CASES, ids=names(OTHER_CASES))
def test_families(run, pair, reference, scenario, family):
    peers.compare(reference(scenario, family), transcripts(run, pair, scenario, family))


@pytest.mark.pairs(pairing.VMA_LATENCY)
@pytest.mark.parametrize("scenario, family", SLEEPING, ids=names(SLEEPING))
def test_sleeping(run, pair, reference, scenario, family):
    """The same where waits never spin. (In the profile "latency" they only spin.)"""
    env = {"VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"}
    peers.compare(reference(scenario, family), transcripts(run, pair, scenario, family, env))


@pytest.mark.pairs(pairing.VMA_LATENCY)
@pytest.mark.parametrize("scenario, family", ONE_PROCESS, ids=names(ONE_PROCESS))
def test_one_process(run, pair, reference, scenario, family):
    """Both sides are threads of one process: what two processes see on the kernel."""
    proc = run.start("both", [build.program(PROGRAM), "both", *arguments(family), scenario], vma=True, mode=pair.mode,
                     env=datagrams.warm_up_env(pair)).ok()
    peers.compare(reference(scenario, family), {"server": proc.stderr().splitlines(), "client": proc.stdout().splitlines()})
    datagrams.acceleration(proc, proc, receiver_has=True, sender_has=True)


LOG = """\
Pid: 1 Tid: 1 VMA DEBUG: fd=5 UDP 127.0.0.1:7000: accelerated: 8 slots
Pid: 1 Tid: 1 VMA DEBUG: fd=6 UDP 0.0.0.0:7001 -> 127.0.0.1:7000: accelerated: it has the library
Pid: 1 Tid: 1 VMA DEBUG: fd=6 UDP [::1]:7001 -> [::1]:7002: not accelerated: no such socket
Pid: 1 Tid: 1 VMA DEBUG: fd=7 UDP 127.0.0.1:7003: not accelerated: IP_OPTIONS
Pid: 1 Tid: 1 VMA DEBUG: fd=5 UDP 127.0.0.1:7000: back to the kernel: fork
Pid: 1 Tid: 1 VMA DEBUG: fd=9 127.0.0.1:6379 -> 127.0.0.1:40016: accelerated
"""


def test_log_lines(tmp_path):
    """What these tests take for acceleration."""
    path = tmp_path / "log"
    path.write_text(LOG)
    log = vmalog.Log([path])
    assert datagrams.receivers(log) == ["127.0.0.1:7000"]
    assert datagrams.routes(log) == [("0.0.0.0:7001", "127.0.0.1:7000")]
    assert datagrams.reasons(log) == ["no such socket", "IP_OPTIONS", "fork"]


@pytest.mark.pairs(*datagrams.PAIRS)
def test_killed(run, pair):
    """The peer of a connected socket is killed with -9: ECONNREFUSED, also for who waits."""
    server, client = peers.start(run, pair, PROGRAM, *arguments("4"), "killed", env=datagrams.warm_up_env(pair))
    for proc in (server, client):
        proc.wait_output("ready")
    server.kill()  # and waits until it is dead: its sockets are closed
    client.send_signal(signal.SIGUSR1)
    client.ok()
    assert client.stderr().splitlines() == ["ready", "send = 1", "recv = -1 ECONNREFUSED", "send = 1",
                                            "send = -1 ECONNREFUSED", "done"]
    datagrams.acceleration(server, client, receiver_has=pair.server, sender_has=pair.client)
