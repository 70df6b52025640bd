# SPDX-License-Identifier: BSD-2-Clause
"""Where the library's own thread runs: VMA_INTERNAL_THREAD_AFFINITY and VMA_INTERNAL_THREAD_CPUSET, as the kernel tells
it of a process that accelerates. The program's thread stays where it was, whatever becomes of the other. And hwloc is
not even loaded where there is no choice between devices."""

import contextlib
import os
import pathlib
import re

import pytest

from lib import pairing
from lib.transfer import Transfer

MIB = 1 << 20
CPUS = sorted(os.sched_getaffinity(0))
ALL = frozenset(CPUS)
LAST = CPUS[-1]
CPUSETS = pathlib.Path("/sys/fs/cgroup/cpuset")

pytestmark = [pytest.mark.alone,
              pytest.mark.pairs(pairing.VMA_DEFAULT)]  # the profile latency has a place of its own for it
several = pytest.mark.skipif(len(CPUS) < 2, reason="with one processor there is nothing to choose")


def allowed(pid: int, thread) -> frozenset[int]:
    """The processors that a thread may run on."""
    text = pathlib.Path(f"/proc/{pid}/task/{thread}/status").read_text()
    ranges = re.search(r"^Cpus_allowed_list:\s*(.*)$", text, re.M)[1]
    cpus = set()
    for first, last in (part.split("-") if "-" in part else (part, part) for part in ranges.split(",")):
        cpus |= set(range(int(first), int(last) + 1))
    return frozenset(cpus)


def threads(pid: int) -> list[str]:
    """The library's own: the program has one thread."""
    return [task.name for task in pathlib.Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid)]


@contextlib.contextmanager
def accelerated(run, pair, **env):
    """The server of a connection that runs accelerated; only the server gets the variables."""
    t = Transfer(run, pair, "up", offload=True, server_options={"env": env})
    t.wait_received(MIB)
    assert len(threads(t.server.pid)) == 1
    yield t.server
    t.wait_received(t.received() + MIB)
    assert allowed(t.server.pid, t.server.pid) == ALL
    t.server.kill()
    t.client.kill()


def wait_for(run, server, cpus):
    helper = threads(server.pid)[0]
    run.wait_until(lambda: allowed(server.pid, helper) == cpus, f"the internal thread to run on {sorted(cpus)}")


def warnings(server):
    return [line for line in server.log().at_level("WARNING") if "VMA_INTERNAL_THREAD" in line]


def test_it_stays_without_the_variables(run, pair):
    with accelerated(run, pair) as server:
        assert allowed(server.pid, threads(server.pid)[0]) == ALL
    assert not warnings(server)


def test_hwloc_is_not_loaded_without_a_choice(run, pair):
    with accelerated(run, pair) as server:
        maps = pathlib.Path(f"/proc/{server.pid}/maps").read_text()
    assert "libvma-fi.so" in maps and "libhwloc" not in maps


@several
@pytest.mark.parametrize("value", [str(LAST), f"{LAST}-{LAST}", hex(1 << LAST), f" 0x{1 << LAST:016X} "])
def test_affinity(run, pair, value):
    with accelerated(run, pair, VMA_INTERNAL_THREAD_AFFINITY=value) as server:
        wait_for(run, server, {LAST})
    assert not warnings(server)


@several
@pytest.mark.pairs(pairing.VMA_LATENCY)
def test_the_place_of_a_profile(run, pair):
    with accelerated(run, pair) as server:
        wait_for(run, server, {0} if 0 in ALL else ALL)
    assert not warnings(server)


@several
def test_affinity_of_several(run, pair):
    with accelerated(run, pair, VMA_INTERNAL_THREAD_AFFINITY=f"{CPUS[0]},{CPUS[1]}") as server:
        wait_for(run, server, {CPUS[0], CPUS[1]})
    assert not warnings(server)


@pytest.mark.parametrize("value", ["-1", " -1 ", ""])
def test_no_affinity(run, pair, value):
    with accelerated(run, pair, VMA_INTERNAL_THREAD_AFFINITY=value) as server:
        assert allowed(server.pid, threads(server.pid)[0]) == ALL
    assert not warnings(server)


@pytest.mark.parametrize("value", ["here", "0x0", "1-", "99999"])
def test_affinity_that_means_nothing(run, pair, value):
    """One warning, and it stays where it is."""
    with accelerated(run, pair, VMA_INTERNAL_THREAD_AFFINITY=value) as server:
        assert allowed(server.pid, threads(server.pid)[0]) == ALL
    lines = warnings(server)
    assert len(lines) == 1 and f"VMA_INTERNAL_THREAD_AFFINITY={value}" in lines[0] and "stays" in lines[0]


def test_affinity_that_is_not_to_be_had(run, pair):
    value = str(max(CPUS[-1], os.cpu_count()) + 500)
    with accelerated(run, pair, VMA_INTERNAL_THREAD_AFFINITY=value) as server:
        run.wait_until(lambda: warnings(server), "a warning")
        assert allowed(server.pid, threads(server.pid)[0]) == ALL
    assert len(warnings(server)) == 1 and "none of these processors" in warnings(server)[0]


# ---- cpusets ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def group(parent: pathlib.Path, threads_file: str, **settings):
    """A control group below `parent`; skips where the test may not make one."""
    place = parent / f"fabtests-{os.getpid()}"
    try:
        place.mkdir()
    except OSError as why:
        pytest.skip(f"no control group can be made: {why}")
    try:
        try:
            for name, value in settings.items():
                (place / name.replace("_", ".")).write_text(value)
        except OSError as why:
            pytest.skip(f"no control group can be made: {why}")
        yield place
    finally:
        for thread in (place / threads_file).read_text().split():
            (parent / threads_file).write_text(thread)
        place.rmdir()


@pytest.fixture
def cpuset():
    """A cpuset with the last processor only (version 1 of control groups)."""
    if not (CPUSETS / "tasks").exists():
        pytest.skip("no cpusets of version 1 here")
    mems = (CPUSETS / "cpuset.mems").read_text()
    with group(CPUSETS, "tasks", cpuset_mems=mems, cpuset_cpus=str(LAST)) as place:
        yield place


@pytest.fixture
def threaded():
    """A control group of version 2 that takes single threads."""
    own = re.search(r"^0::/(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.M)
    mount = re.search(r"^\S+ (\S+) cgroup2 ", pathlib.Path("/proc/mounts").read_text(), re.M)
    if not own or not mount:
        pytest.skip("no control groups of version 2 here")
    with group(pathlib.Path(mount[1]) / own[1], "cgroup.threads", cgroup_type="threaded") as place:
        yield place


@several
def test_cpuset(run, pair, cpuset):
    with accelerated(run, pair, VMA_INTERNAL_THREAD_CPUSET=str(cpuset)) as server:
        wait_for(run, server, {LAST})
        assert (cpuset / "tasks").read_text().split() == threads(server.pid)
    assert not warnings(server)


def test_threaded_group(run, pair, threaded):
    with accelerated(run, pair, VMA_INTERNAL_THREAD_CPUSET=str(threaded)) as server:
        helper = threads(server.pid)
        run.wait_until(lambda: (threaded / "cgroup.threads").read_text().split() == helper, "the thread to enter")
    assert not warnings(server)


@several
def test_affinity_in_a_cpuset(run, pair, cpuset):
    """The affinity is followed inside of the cpuset: one that lies outside is not to be had."""
    outside = str(CPUS[0])
    both = {"VMA_INTERNAL_THREAD_CPUSET": str(cpuset), "VMA_INTERNAL_THREAD_AFFINITY": outside}
    with accelerated(run, pair, **both) as server:
        run.wait_until(lambda: warnings(server), "a warning")
        wait_for(run, server, {LAST})
    assert len(warnings(server)) == 1 and f"VMA_INTERNAL_THREAD_AFFINITY={outside}" in warnings(server)[0]


@pytest.mark.parametrize("what", ["none", "file", "too long", "no cpuset"])
def test_cpuset_that_is_none(run, pair, work, what):
    """One warning, and it stays where it is; a file that only has the name is not written to."""
    place = work / "place"
    if what == "file":
        place.write_text("x")
    elif what == "too long":
        place = pathlib.Path("/" + "x/" * 2500)
    elif what == "no cpuset":
        place.mkdir()
        (place / "tasks").write_text("mine")
    with accelerated(run, pair, VMA_INTERNAL_THREAD_CPUSET=str(place)) as server:
        assert allowed(server.pid, threads(server.pid)[0]) == ALL
    lines = warnings(server)
    assert len(lines) == 1 and "VMA_INTERNAL_THREAD_CPUSET=/" in lines[0]
    if what == "no cpuset":
        assert (place / "tasks").read_text() == "mine"
