# SPDX-License-Identifier: BSD-2-Clause
"""The static probes (USDT) of both libraries: they are those that doc/monitoring.md lists, stand where no message passes, and fire."""

import re
import shutil
import subprocess

import pytest

import uprobe
from lib import build
from lib.vmastats import ECHO, script

LIBRARIES = {"vma": "libvma.so", "vma_fi": "libvma-fi.so"}


def library(provider):
    return build.provider_dir() / LIBRARIES[provider]


@pytest.fixture(scope="module")
def built():
    """All probes of the build, by provider and name."""
    found = {}
    for provider in LIBRARIES:
        for probe in uprobe.probes(library(provider)):
            if probe.provider == "libstdcxx":  # of the C++ runtime that is linked in
                continue
            assert probe.provider == provider
            found.setdefault((provider, probe.name), []).append(probe)
    if not found:
        pytest.skip("this build has no probes: there was no sys/sdt.h")
    return found


def documented():
    """{(provider, name): number of arguments} of the table in doc/monitoring.md."""
    text = (build.TOP / "doc/monitoring.md").read_text()
    rows = re.findall(r"^\| `(vma(?:_fi)?):(\w+)` \| [^|]* \| ([^|]*) \|", text, re.M)
    return {(provider, name): len(re.findall(r"`\w", arguments)) for provider, name, arguments in rows}


def test_they_are_documented(built):
    assert {name: {probe.arguments for probe in probes} for name, probes in built.items()} == \
        {name: {number} for name, number in documented().items()}


def test_nobody_has_to_be_told(built):
    """Of none a program reads first whether somebody looks (a semaphore, and a branch)."""
    assert all(probe.semaphore == 0 for probes in built.values() for probe in probes)


HOT = re.compile(r"^(send|recv|read|write|sendto|recvfrom|sendmsg|recvmsg|readv|writev|sendmmsg|recvmmsg|poll|ppoll|select|epoll_wait|"
                 r"epoll_pwait|vma::sock::(send|receive|tcp::send|tcp::receive)|.*::(poll_queue|progress|write_ring|receive_message|"
                 r"write_region|emit_new|input|gather))\(?")


def test_no_message_passes_them(built):
    """The functions in which they stand are none that each message goes through."""
    for (provider, name), probes in built.items():
        where = subprocess.run(["nm", "-C", "--defined-only", "-n", library(provider)], capture_output=True, text=True, check=True).stdout
        functions = [(int(line.split()[0], 16), line.split(maxsplit=2)[2]) for line in where.splitlines()
                     if line.split()[1] in "tTwW"]
        for probe in probes:
            inside = [symbol for start, symbol in functions if start <= probe.address]
            assert inside and not HOT.match(inside[-1]), f"{provider}:{name} in {inside[-1]}"


CLIENT = """
sys.stdin.readline()
s = socket.create_connection(("127.0.0.1", {port}))
while not select.select([sys.stdin], [], [], 0)[0]:
    ping(s)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
print("done", flush=True)
signal.pause()
"""


@pytest.fixture
def copies(work):
    """Both libraries, for this test alone: the kernel counts whoever comes by a place in a file."""
    for name in LIBRARIES.values():
        shutil.copy(build.provider_dir() / name, work / name)
    return work


@pytest.fixture
def watch(built, copies):
    """watch(provider, name): a call that says how often somebody has come by this probe since."""
    made = []

    def start(provider, name):
        try:
            counts = [uprobe.Count(copies / LIBRARIES[provider], probe.address) for probe in built[provider, name]]
        except OSError as error:
            pytest.skip(f"no uprobe can be set here: {error}")
        made.extend(counts)
        return lambda: sum(count.read() for count in counts)

    yield start
    for count in made:
        count.close()


def test_they_fire(run, port, feed, copies, watch):
    """As a tracer sees it, by the kernel alone: a connection is made and accelerated at both ends, one wakes the other, and it goes back to
    the kernel."""
    env = {"LD_PRELOAD": build.preload().replace(str(build.libvma()), str(copies / LIBRARIES["vma"]))}
    made, lifted, woken, left = (watch(*name) for name in [("vma", "connection"), ("vma", "offload"), ("vma_fi", "wake"),
                                                           ("vma", "fallback")])
    script(run, "server", ECHO.format(port=port), env={**env, "VMA_RX_POLL": "0"}).wait_output("ready")
    client = script(run, "client", CLIENT.format(port=port), stdin=feed.file, env=env)
    assert (made(), lifted(), woken(), left()) == (0, 0, 0, 0)
    feed.go_on()
    run.wait_until(lambda: made() == 2 and lifted() == 2 and woken() > 0, "the probes", proc=client)
    assert left() == 0
    feed.go_on()
    client.wait_output("done")
    assert (made(), lifted()) == (2, 2) and left() > 0
