# SPDX-License-Identifier: BSD-2-Clause
"""Sockets as programs in several languages use them, each with a runtime of its own between them and libc: one program a language,
which talks to itself and says in TAP what went well. Without the library, with it, with VMA_SPEC=latency: each test ends alike."""

import pathlib

import pytest

from lib import build, suite

PROGRAMS = pathlib.Path(__file__).parent / "programs"
LIMIT = 120  # seconds for the three runs, which take ten beside nothing else


def compare(run, places, argv, env=None):
    procs = {}
    for mode, place in places.items():
        vma, spec = suite.MODES[mode]
        home = run.work / mode
        home.mkdir()
        procs[mode] = run.start(mode, argv, vma=vma, mode=spec, timeout=LIMIT, netns=place.file, cwd=home, env=env)
    for proc in procs.values():
        proc.may_fail = True
        proc.wait()
    results = {mode: suite.read_tap(proc.stdout()) for mode, proc in procs.items()}
    kernel = results.pop("kernel")
    assert kernel.whole and set(kernel.outcomes.values()) == {"passed"}, procs["kernel"].output()
    wrong = [f"{mode}: {line}" for mode, other in results.items() for line in suite.differences(kernel, other)]
    assert not wrong, "\n".join(wrong)
    for mode in results:
        assert procs[mode].popen.returncode == 0
        assert procs[mode].log().accelerated() > 0, f"{mode}: no connection was accelerated"


def test_perl(run, places):
    compare(run, places, [build.tool("perl"), PROGRAMS / "sockets.pl"])


def test_node(run, places):
    compare(run, places, [build.tool("node"), PROGRAMS / "net.mjs"])


def test_java(run, places):
    """The runtime compiles it first. Its sockets are IPv6's, and it closes one that is in use by dup2() and a signal."""
    compare(run, places, [build.tool("java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx200m", PROGRAMS / "Sockets.java"])


def test_asio(run, places):
    """C++ on Boost.Asio, whose headers a machine need not have."""
    if "#define HAVE_BOOST_ASIO_VERSION_HPP 1" not in (build.build_dir() / "config.h").read_text():
        pytest.skip("Boost.Asio's headers (Debian: libboost-dev) were not there when this was configured")
    compare(run, places, [build.program("posix/programs/asio/asio")])
