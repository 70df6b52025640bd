# SPDX-License-Identifier: BSD-2-Clause
"""Programs that are linked with liburing's shared library, which makes its system calls by itself: they are told what the kernel tells
them, and keep every accelerated socket that the io_uring doesn't take."""

import pathlib
import random
import subprocess

import pytest

from lib import build, patience

EXAMPLES = pathlib.Path("/usr/share/doc/liburing-dev/examples")

LATENCY = {"VMA_SPEC": "latency"}
POLITE = {"VMA_SPEC": "none", "VMA_LIFT_AFTER": "1"}
SLEEPING = {**POLITE, "VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"}
WAYS = pytest.mark.parametrize("env", [LATENCY, POLITE, SLEEPING], ids=["latency", "polite", "sleeping"])

_there = []
_on_kernel = {}


def program(name):
    if "#define HAVE_LIBURING_H 1" not in (build.build_dir() / "config.h").read_text():
        pytest.skip("liburing's headers (Debian: liburing-dev) were not there when this was configured")
    return build.program(f"posix/programs/liburing/{name}")


def start(run, *command, **options):
    return run.start("program", [program(command[0]), *map(str, command[1:])], **options)


@pytest.fixture(autouse=True)
def there(run):
    """Without io_uring there is nothing to test: a container's filter may refuse it, or /proc/sys/kernel/io_uring_disabled."""
    if not _there:
        proc = start(run, "liburings", "there")
        proc.may_fail = True
        _there.append(proc.wait() == 0)
    if not _there[0]:
        pytest.skip("the kernel has no io_uring for us")


def same(run, *command, name="liburings", env=None):
    """The library's transcript must be the kernel's; returns the log."""
    command = (name, *command)
    if command not in _on_kernel:
        _on_kernel[command] = start(run, *command).ok().stdout()
    proc = start(run, *command, vma=True, env={**(env or POLITE), "FABTEST_LIFT": "1"}).ok()
    assert proc.stdout() == _on_kernel[command]
    return proc.log()


def left(log):
    """Ends that went back to the kernel, by what they are and why."""
    return [line for line in log.lines if "back to the kernel" in line]


def accelerated(log):
    return sum(": accelerated: device local" in line for line in log.lines)


def is_whole(log):
    """The process went to the kernel."""
    return any("uses io_uring, which can reach any socket unseen" in line for line in log.lines)


def only_one_was_taken(log):
    """One end, for what the io_uring does; the other one because of that."""
    return not is_whole(log) and accelerated(log) == 4 and sum(line.endswith(": io_uring") for line in left(log)) == 1 and len(left(log)) <= 2


def none_was_taken(log):
    return not is_whole(log) and accelerated(log) >= 2 and left(log) == []


@pytest.mark.parametrize("how", ["submit", "wait", "events", "timeout", "untimed", "cqe", "enter", "enter2", "place"])
def test_each_way_to_hand_over(run, how):
    """Sockets that were accelerated before the io_uring was made stay so as well."""
    assert only_one_was_taken(same(run, "by", how))


WHAT = ["recv", "in_time", "many", "poll", "after", "files", "tags", "update", "update_tag", "register"]


@pytest.mark.parametrize("what", WHAT)
def test_only_what_it_takes(run, what):
    assert only_one_was_taken(same(run, "takes", what))


@pytest.mark.parametrize("how", ["written", "published", "timeout"])
def test_an_entry_that_comes_late(run, how):
    """Between the look at the others and liburing's own: it is looked at by the next call."""
    assert only_one_was_taken(same(run, how, name="late"))


@WAYS
def test_waits_for_ever(run, env):
    assert none_was_taken(same(run, "waits", env=env))


@WAYS
def test_waits_for_some_time(run, env):
    assert none_was_taken(same(run, "timed", env=env))


@WAYS
def test_an_epoll_set_among_others(run, env):
    assert none_was_taken(same(run, "batches", env=env))


def test_many_one_after_another(run):
    log = same(run, "again")
    assert none_was_taken(log) and accelerated(log) == 4


@pytest.mark.parametrize("how", ["untimed", "timed", "cqe"])
def test_what_is_taken_in_parts(run, how):
    assert none_was_taken(same(run, how, name="parts"))


@pytest.mark.parametrize("how", ["submit", "enter"])
def test_threads(run, how):
    log = same(run, "threads", how)
    assert none_was_taken(log) and accelerated(log) == 6


def test_a_look_at_what_the_kernel_can(run):
    assert none_was_taken(same(run, "probe"))


def test_others_come_and_go(run):
    """While connections are accelerated, each of which looks for an io_uring that can't be read."""
    log = same(run, "comes")
    assert none_was_taken(log) and accelerated(log) == 16


@pytest.mark.parametrize("how", ["min", "min_missing", "close_unregistered", "resize"])
def test_later_releases(run, how):
    """What fails, or is not there in this kernel, hands over nothing; and the io_uring goes on to be read."""
    assert only_one_was_taken(same(run, how, name="newer"))


@pytest.mark.parametrize("how", ["reg_missing", "close"])
def test_later_releases_that_end_it(run, how):
    assert is_whole(same(run, how, name="newer"))


def test_a_plug_in_that_ends_with_the_call(run):
    """Its file's name is one that liburing could have."""
    assert only_one_was_taken(same(run, "tail", program("liburing_plugin.so"), name="plugged"))


def test_below_a_filter(run):
    """Handing over makes no system call but its own."""
    same(run, "filter", program("liburing_plugin.so"), name="plugged")


@pytest.mark.parametrize("how", ["constructor", "sqpoll"])
def test_a_constructor_that_waits(run, how):
    """The loader's lock is its own for as long; what it waits for is a function of liburing's that ends with the call of another one."""
    log = same(run, how, program("liburing_plugin.so"), program("constructed.so"), name="plugged")
    assert is_whole(log) if how == "sqpoll" else none_was_taken(log)


def test_functions_that_pass_nobody(run):
    """liburing's own calls within a set-up tell of it, before anything is handed over."""
    assert is_whole(same(run, "handle", name="plugged"))


@pytest.mark.parametrize("how", ["sqpoll", "mapped", "place"])
def test_all_go_to_the_kernel(run, how):
    log = same(run, how)
    assert is_whole(log)
    assert accelerated(log) == 2 and len(left(log)) >= 1


def test_fork(run):
    log = same(run, "fork")
    assert is_whole(log)  # both have used it


@pytest.mark.parametrize("example", ["io_uring-cp", "link-cp"])
def test_liburings_own_examples(run, example, tmp_path):
    """They copy files, by reads and writes that are several at a time, or in chains."""
    source = EXAMPLES / f"{example}.c"
    if not source.exists():
        pytest.skip("liburing's examples (Debian: liburing-dev) are not there")
    made, text, copy = tmp_path / example, tmp_path / "text", tmp_path / "copy"
    subprocess.run([build.tool("cc"), "-O1", "-w", "-D_GNU_SOURCE", source, "-o", made, "-luring"], check=True, timeout=patience.seconds())
    text.write_bytes(random.Random(1).randbytes(3_000_000))
    proc = run.run("example", [made, text, copy], vma=True, env=POLITE)
    assert copy.read_bytes() == text.read_bytes()
    assert not is_whole(proc.log()) and any("an io_uring whose submissions are read" in line for line in proc.log().lines)
