# SPDX-License-Identifier: BSD-2-Clause
"""Programs with an io_uring: they are told what the kernel tells them, and keep every accelerated socket that the io_uring doesn't take."""

import pytest

from lib import build

LATENCY = {"VMA_SPEC": "latency"}
POLITE = {"VMA_SPEC": "none", "VMA_LIFT_AFTER": "1"}
SLEEPING = {**POLITE, "VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0"}
WAYS = pytest.mark.parametrize("env", [LATENCY, POLITE, SLEEPING], ids=["latency", "polite", "sleeping"])

_there = []
_on_kernel = {}


def start(run, *command, **options):
    return run.start("program", [build.program("sockets/programs/urings"), *map(str, command)], **options)


@pytest.fixture(autouse=True)
def there(run):
    """Without io_uring there is nothing to test: a container's filter may refuse it, or /proc/sys/kernel/io_uring_disabled."""
    if not _there:
        proc = start(run, "there")
        proc.may_fail = True
        _there.append(proc.wait() == 0)
    if not _there[0]:
        pytest.skip("the kernel has no io_uring for us")


def same(run, *command, env=None):
    """The library's transcript must be the kernel's; returns the log."""
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


@WAYS
def test_a_loop_as_libuvs(run, env):
    log = same(run, "loop", 6, env=env)
    assert sum(": accelerated: device local, ring" in line for line in log.lines) == 12
    assert sum("UDP" in line and ": accelerated: device local" in line for line in log.lines) >= 2
    assert left(log) == [] and not is_whole(log)


@pytest.mark.parametrize("command", [("loop", "2"), ("batches",), ("again",)], ids=" ".join)
def test_with_an_array_of_indices(run, command):
    """As older kernels have it, and programs that don't ask for less."""
    log = same(run, *command, env={**POLITE, "FABTEST_SQ_ARRAY": "1"})
    assert left(log) == [] and not is_whole(log)


@WAYS
def test_refusals(run, env):
    log = same(run, "errors", env=env)
    assert accelerated(log) == 2
    assert left(log) == [] and not is_whole(log)


def test_an_entry_that_is_not_written_again(run):
    log = same(run, "again")
    assert left(log) == [] and not is_whole(log)


@WAYS
def test_batches(run, env):
    log = same(run, "batches", env=env)
    assert left(log) == [] and not is_whole(log)


@pytest.mark.parametrize("what", ["send", "write", "writev", "sendmsg", "splice", "file", "async", "recv", "read", "poll"])
def test_only_what_it_takes(run, what):
    log = same(run, "takes", what)
    assert accelerated(log) == 4
    assert [line for line in left(log) if line.endswith(": io_uring")] == left(log)[:1] and len(left(log)) >= 1
    assert not is_whole(log)


def test_datagrams(run):
    log = same(run, "datagrams")
    assert any("UDP" in line and ": accelerated: device local" in line for line in log.lines)
    assert not is_whole(log)


@WAYS
def test_its_own_descriptor(run, env):
    log = same(run, "waits", env=env)
    assert left(log) == [] and not is_whole(log)


def test_a_number_that_is_looked_up_later(run):
    log = same(run, "link")
    assert accelerated(log) == 2  # the other connection
    assert not is_whole(log)


def test_close(run):
    log = same(run, "close")
    assert accelerated(log) == 4
    assert not is_whole(log)


def test_threads(run):
    log = same(run, "threads", 3)
    assert accelerated(log) == 6
    assert left(log) == [] and not is_whole(log)


@pytest.mark.parametrize("how", ["jump", "end", "wait"])
def test_a_call_that_is_left(run, how):
    log = same(run, "left", how)
    assert accelerated(log) == 2
    assert left(log) == [] and not is_whole(log)


def test_a_call_that_is_left_beside_another(run):
    """What of its entries the kernel has taken is not known as long as the other one waits."""
    log = same(run, "left", "beside")
    assert accelerated(log) == 2 and is_whole(log)


def test_not_before_it_was_entered(run):
    log = same(run, "unproven")
    assert sum(": accelerated: device local, ring" in line for line in log.lines) == 2 and not is_whole(log)
    assert any("UDP" in line and ": accelerated: device local" in line for line in log.lines)


def test_what_is_said_of_one_that_is_never_entered(run):
    log = same(run, "unentered")
    kept = [line for line in log.lines if line.endswith("not accelerated: an io_uring that has not been entered yet")]
    assert sum("UDP" in line for line in kept) == 2 and len(kept) == 4
    assert left(log) == [] and accelerated(log) == 0 and not is_whole(log)


def test_its_memory_is_exchanged(run):
    log = same(run, "resize")
    if "resize: 0" not in _on_kernel[("resize",)]:
        pytest.skip("this kernel exchanges no io_uring's memory")
    assert is_whole(log)
    assert accelerated(log) == 2 and len(left(log)) >= 1


@pytest.mark.parametrize("how", ["sqpoll", "set", "dup"])
def test_all_go_to_the_kernel(run, how):
    log = same(run, how)
    assert is_whole(log)
    assert accelerated(log) == 2 and len(left(log)) >= 1


def test_fork(run):
    log = same(run, "fork")
    assert is_whole(log)  # both have used it
