# SPDX-License-Identifier: BSD-2-Clause
"""What parameters change for a program: polling, the internal thread's turns, calls that the library does not know, signals,
groups, the log's function. The names, defaults and ranges are tested in fabtests/config."""

import ctypes
import os
import pathlib
import platform
import re
import signal
import struct

import pytest

from lib import build

pytestmark = pytest.mark.alone

SOL_SOCKET, SO_RCVLOWAT, SO_PRIORITY, SO_MARK, SO_ATTACH_FILTER = 1, 18, 12, 36, 26
UNKNOWN_LEVEL, UNKNOWN_OPTION = 6, 99
UNKNOWN = "an option that the library does not know"
SOL_RAW = 255
F_SETOWN, F_GETOWN, F_GETLEASE = 8, 9, 1025
PR_CAPBSET_DROP = 24
FIONBIO, SIOCGSTAMP = 0x5421, 0x8906
LATENCY = {"VMA_SPEC": "latency"}


PROGRAM = "sockets/programs/parameters"


def start(run, command, *arguments, stdin=None, preexec=None, **env):
    return run.start("program", [build.program(PROGRAM), command, *arguments], vma=True,
                     env={**LATENCY, "FABTEST_LIFT": "1", **env}, stdin=stdin, preexec=preexec)


@pytest.fixture
def plain():
    """A sanitizer has handlers of its own, and must be loaded first."""
    if build.sanitized():
        pytest.skip("a sanitizer stands in the way")


@pytest.fixture
def calls():
    """/proc/PID/syscall: its numbers are those of this architecture."""
    if platform.machine() != "x86_64":
        pytest.skip("the numbers of system calls are x86_64's")


@pytest.fixture
def silence():
    """A standard input that stays open and says nothing."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as end, os.fdopen(writer, "wb"):
        yield end


def results(proc):
    """{what: (result, errno)}"""
    lines = [line.split() for line in proc.stdout().splitlines()]
    return {words[0]: (int(words[1]), words[2]) for words in lines if len(words) == 3}


def went_back(proc):
    """Why connections left the endpoint; the ends tell each other."""
    return [line for line in proc.log().lines if "back to the kernel: " in line]


def was_accelerated(proc):
    return [line for line in proc.log().lines if re.search(r": accelerated: ", line)]


# ---- VMA_EXCEPTION_HANDLING

CALLS = {
    "option": (["option", str(UNKNOWN_LEVEL), str(UNKNOWN_OPTION)], "setsockopt", UNKNOWN),
    "other level's option": (["option", str(SOL_RAW), "1"], "setsockopt", None),
    "fcntl": (["fcntl", str(F_GETLEASE), "0"], "fcntl", None),
    "ioctl": (["ioctl", str(SIOCGSTAMP)], "ioctl", None),
    "kernel's option": (["option", str(SOL_SOCKET), str(SO_RCVLOWAT)], "setsockopt", "SO_RCVLOWAT"),
    "kernel's fcntl": (["fcntl", str(F_SETOWN), "0"], "fcntl", "signal-driven input"),
}


@pytest.mark.parametrize("mode", ["-2", "-1", "0", "1"])
@pytest.mark.parametrize("what", CALLS)
def test_a_call_that_the_kernel_gets(run, what, mode):
    call, name, reason = CALLS[what]
    plain = run.run("kernel", [build.program(PROGRAM), *call])
    run.expect_errors = mode == "1"
    proc = start(run, *call, VMA_EXCEPTION_HANDLING=mode).ok()
    assert results(proc)[name] == results(plain)[name]
    assert results(proc)["talk"] == (0, "-")
    assert was_accelerated(proc)
    lands = reason is not None or mode in ("0", "1")
    why = reason or "a call that the library does not know"
    assert any(line.endswith(f"back to the kernel: {why}") for line in went_back(proc)) == lands
    errors = proc.log().at_level("ERROR")
    assert len(errors) == (1 if mode == "1" else 0)
    assert all("the socket goes back to the kernel" in line for line in errors)
    if reason in (None, UNKNOWN):
        assert [line for line in proc.log().lines if "not known for accelerated sockets" in line]


@pytest.mark.parametrize("what", CALLS)
def test_a_call_that_is_refused(run, what):
    call, name, _ = CALLS[what]
    run.expect_errors = True
    proc = start(run, *call, VMA_EXCEPTION_HANDLING="2").ok()
    assert results(proc) == {name: (-1, "EINVAL"), "talk": (0, "-")}
    assert len(proc.log().at_level("ERROR")) == 1
    assert not went_back(proc)


@pytest.mark.parametrize("what", CALLS)
def test_a_call_that_ends_the_process(run, what):
    run.expect_errors = True
    proc = start(run, *CALLS[what][0], VMA_EXCEPTION_HANDLING="3")
    assert ends_by(proc, signal.SIGABRT)
    assert [line for line in proc.log().at_level("PANIC") if "the process is aborted" in line]


def test_a_known_call_is_no_exception(run):
    for call in (["option", "6", "1"], ["fcntl", str(F_GETOWN), "0"], ["ioctl", str(FIONBIO)],
                 ["datagram", str(SOL_SOCKET), str(SO_PRIORITY)]):
        proc = start(run, *call, VMA_EXCEPTION_HANDLING="3").ok()
        assert not went_back(proc)


def test_datagram_sockets_have_exceptions_too(run):
    call = ["datagram", str(SOL_SOCKET), "41"]  # SO_WIFI_STATUS
    run.expect_errors = True
    assert results(start(run, *call).ok())["setsockopt"] == (0, "-")
    assert results(start(run, *call, VMA_EXCEPTION_HANDLING="2").ok())["setsockopt"] == (-1, "EINVAL")


def test_a_library_that_cannot_start(run):
    env = {"VMA_PROVIDER": "/nowhere/libvma-fi.so"}
    start(run, "option", "6", "1", FABTEST_LIFT="0", **env).ok()
    run.expect_errors = True
    proc = start(run, "option", "6", "1", VMA_EXCEPTION_HANDLING="-2", **env)
    proc.may_fail = True
    assert proc.wait() == 255
    assert [line for line in proc.log().at_level("ERROR") if "the library can't start" in line]


# What keeps every connection from being accelerated, and how the log names it.
FAILURES = {
    "no provider": ({"VMA_PROVIDER": "/nowhere/libvma-fi.so"}, "the provider is not available"),
    "no directory": ({"VMA_SHM_DIR": "/nowhere/at/all"}, "the directory of offers can't be used"),
}


def refused(run, what, mode):
    env, reason = FAILURES[what]
    run.expect_errors = True
    return start(run, "talk", FABTEST_LIFT="0", VMA_EXCEPTION_HANDLING=mode, **env), reason


@pytest.mark.parametrize("mode", ["-1", "0", "1"])
@pytest.mark.parametrize("what", FAILURES)
def test_a_connection_that_cannot_be_accelerated(run, what, mode):
    proc, reason = refused(run, what, mode)
    assert results(proc.ok()) == {"talk": (0, "-")}
    said = [line for line in proc.log().lines if reason in line]
    assert [line for line in said if ": not accelerated: " in line]
    errors = [line for line in proc.log().at_level("ERROR") if line.endswith("the socket stays on the kernel")]
    assert any(reason in line for line in errors) == (mode == "1")
    assert errors or mode != "1"


@pytest.mark.parametrize("what", FAILURES)
def test_a_call_fails_on_a_connection_that_cannot_be_accelerated(run, what):
    proc, reason = refused(run, what, "2")
    proc.may_fail = True
    assert proc.wait() == 3 and "EINVAL" in proc.stderr()
    said = [line for line in proc.log().at_level("ERROR") if "its next call fails" in line]
    assert [line for line in said if reason in line or FAILURES["no provider"][1] in line]  # of the one that connects


@pytest.mark.parametrize("what", FAILURES)
def test_a_connection_that_cannot_be_accelerated_ends_the_process(run, what):
    proc, reason = refused(run, what, "3")
    assert ends_by(proc, signal.SIGABRT)
    said = proc.log().at_level("PANIC")
    assert [line for line in said if reason in line or FAILURES["no provider"][1] in line]  # of the one that connects


# ---- VMA_ALLOW_PRIVILEGED_SOCK_OPT

def without_rights():
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):  # the program that is started has what is left of them
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.mark.parametrize("allowed", ["1", "0"])
def test_hints_that_need_rights(run, allowed):
    def option(name, **env):
        proc = start(run, "option", str(SOL_SOCKET), str(name), preexec=without_rights, **env).ok()
        return results(proc)["setsockopt"]

    busy_poll_budget = 70
    assert option(busy_poll_budget, VMA_ALLOW_PRIVILEGED_SOCK_OPT=allowed) == \
        ((0, "-") if allowed == "1" else (-1, "EPERM"))
    assert option(SO_MARK, VMA_ALLOW_PRIVILEGED_SOCK_OPT=allowed) == (-1, "EPERM")


# ---- polling and the internal thread

def test_yields(run):
    few = {"VMA_RX_POLL": "1"}  # over at the first look at the clock: it yields by itself only in what goes on after that
    assert results(start(run, "yields", **few).ok())["yields"][0] == 0
    assert results(start(run, "yields", **few, VMA_RX_POLL_YIELD="1").ok())["yields"][0] >= 10


class Helper:
    """The internal thread, as the kernel tells of its sleep: poll(fds, n, milliseconds)."""

    def __init__(self, run, proc):
        proc.wait_output("idle")
        self.run, self.pid = run, proc.pid
        tasks = [task.name for task in pathlib.Path(f"/proc/{proc.pid}/task").iterdir() if task.name != str(proc.pid)]
        assert len(tasks) == 1
        self.task = pathlib.Path(f"/proc/{proc.pid}/task/{tasks[0]}")

    def sleep(self):
        """(descriptors, milliseconds) of its next long sleep."""
        def read():
            words = self.task.joinpath("syscall").read_text().split()
            return words if words[0] == "7" else None

        words = self.run.wait_until(read, "the internal thread to sleep")
        with open(f"/proc/{self.pid}/mem", "rb") as memory:
            memory.seek(int(words[1], 16))
            fds = [fd for fd, _, _ in struct.iter_unpack("ihh", memory.read(8 * int(words[2], 16)))]
        return fds, int(words[3], 16)


@pytest.mark.parametrize("turn, least, most", [("10", 1, 10), ("70", 11, 70), ("5000", 71, 100), ("1", 0, 1)])
def test_turns_of_the_internal_thread(run, calls, silence, turn, least, most):
    proc = start(run, "chat", stdin=silence, VMA_TIMER_RESOLUTION_MSEC=turn)
    helper = Helper(run, proc)
    run.wait_until(lambda: least <= helper.sleep()[1] <= most, f"a sleep of {least} to {most} ms")
    proc.kill()


@pytest.mark.parametrize("arm", ["0", "1"])
def test_the_internal_thread_may_wait_for_data(run, calls, silence, arm):
    proc = start(run, "chat", stdin=silence, VMA_INTERNAL_THREAD_ARM_CQ=arm)
    helper = Helper(run, proc)
    run.wait_until(lambda: (helper.sleep()[0][1] >= 0) == (arm == "1"), "a sleep")
    proc.kill()


def test_the_internal_thread_rests(run, calls, silence):
    """Until something comes, for a second at the most, and hears of what comes on the queue."""
    proc = start(run, "idle", stdin=silence)
    helper = Helper(run, proc)

    def rests():
        (_, queue, told, *_), milliseconds = helper.sleep()
        return queue >= 0 and told >= 0 and 100 < milliseconds <= 1000

    run.wait_until(rests, "a rest")
    proc.kill()


@pytest.mark.parametrize("env", [
    {"VMA_PROGRESS_ENGINE_INTERVAL": "0", "VMA_PROGRESS_ENGINE_WCE_MAX": "0", "VMA_CQ_POLL_BATCH_MAX": "1"},
    {"VMA_PROGRESS_ENGINE_INTERVAL": "1", "VMA_TIMER_RESOLUTION_MSEC": "1", "VMA_INTERNAL_THREAD_ARM_CQ": "1"},
    {"VMA_RX_POLL_ON_TX_TCP": "1", "VMA_RX_CQ_DRAIN_RATE_NSEC": "1", "VMA_CQ_POLL_BATCH_MAX": "128"},
    {"VMA_RX_POLL": "0", "VMA_SELECT_POLL": "0", "VMA_INTERNAL_THREAD_ARM_CQ": "1"},
])
def test_a_connection_works_with_extremes(run, env):
    proc = start(run, "talk", **env).ok()
    assert was_accelerated(proc)


# ---- signals

@pytest.mark.parametrize("handles", ["0", "1"])
def test_sigint_ends_the_polling_of_all_threads(run, handles):
    proc = start(run, "interrupt", handles, VMA_HANDLE_SIGINTR=handles).ok()
    assert results(proc)["recv"] == ((-1, "EINTR") if handles == "1" else (1, "-"))
    assert results(proc)["handled"] == (1, "-")


def test_sigint_without_a_handler_ends_the_process(run, silence):
    proc = start(run, "idle", stdin=silence, VMA_HANDLE_SIGINTR="1")
    proc.wait_output("idle")
    proc.send_signal(signal.SIGINT)
    assert ends_by(proc, signal.SIGINT)


def ends_by(proc, number):
    proc.may_fail = True
    status = proc.wait()
    if status == -number:
        proc.popen.returncode = 0  # meant: no crash to report
    return status == -number


@pytest.mark.parametrize("how", ["0", "0x10", "sent"])
def test_a_crash_tells_where(run, plain, how):
    run.expect_errors = True
    proc = start(run, "crash", how, VMA_HANDLE_SIGSEGV="1")
    assert ends_by(proc, signal.SIGSEGV)
    said = proc.log().at_level("ERROR")
    assert "segmentation fault of thread" in said[0]
    frames = [line for line in said if re.search(r"VMA ERROR: \[\d+\] 0x", line)]
    assert len(frames) >= 3 and any("programs/parameters(" in line for line in frames)


def test_a_crash_is_silent_without_it(run, plain):
    proc = start(run, "crash", "0")
    assert ends_by(proc, signal.SIGSEGV)
    assert not proc.log().at_level("ERROR")


@pytest.mark.parametrize("handles", ["0", "1"])
def test_the_programs_own_handler_gets_the_crash(run, plain, handles):
    proc = start(run, "crash-handled", VMA_HANDLE_SIGSEGV=handles).ok()
    assert results(proc) == {"before": (0, "-"), "signal": (0, "-")}
    assert proc.stdout().endswith("caught\n")


# ---- the rest

@pytest.mark.parametrize("value", [0, 1])
def test_what_a_socket_loops_back(run, value):
    assert results(start(run, "loop", VMA_TX_MC_LOOPBACK=str(value)).ok())["loop"] == (value, "-")


@pytest.mark.parametrize("told", ["0", "1"])
def test_a_lost_datagram_may_be_told(run, silence, told):
    answers = start(run, "answer", stdin=silence).wait_output("port")
    number = results(answers)["port"][0]
    floods = start(run, "flood", str(number), VMA_TX_NONBLOCKED_EAGAINS=told).ok()
    assert [line for line in floods.log().lines if re.search(rf"UDP .*:{number}: accelerated: device local", line)]
    assert (results(floods)["refused"][0] != 0) == (told == "1")
    answers.kill()


def test_a_group_gets_once_what_is_sent_again(run):
    """Where one of its members has no room, and VMA_TX_NONBLOCKED_EAGAINS says so."""
    proc = start(run, "flood-group", VMA_TX_NONBLOCKED_EAGAINS="1").ok()
    assert any("2 receivers of the group" in line for line in proc.log().lines)
    assert results(proc)["twice"] == (0, "-")


def test_a_receive_that_only_the_kernel_can_end(run, calls):
    """With VMA_RX_POLL_INIT it polls; without, it sleeps in the call itself."""
    RECVFROM, RECVMSG = "45", "47"

    def call(proc):
        return pathlib.Path(f"/proc/{proc.pid}/syscall").read_text().split()[0]

    sleeps = start(run, "receive", VMA_RX_POLL_INIT="0").wait_output("waits")
    run.wait_until(lambda: call(sleeps) in (RECVFROM, RECVMSG), "the call to sleep")
    polls = start(run, "receive", VMA_RX_POLL_INIT="-1").wait_output("waits")
    run.wait_until(lambda: call(polls) == "7" or call(polls) == "running", "the call to poll")
    assert not {call(polls) for _ in range(500)} & {RECVFROM, RECVMSG}
    for proc in sleeps, polls:
        proc.kill()


def test_a_join_waits(run):
    assert results(start(run, "join", "150", VMA_WAIT_AFTER_JOIN_MSEC="150").ok())["waited"] == (1, "-")


def test_the_log_may_be_a_function(run, plain):
    def program(pointer):
        return run.start("program", [build.program(PROGRAM), "callback", build.libvma(), pointer],
                         env={"VMA_TRACELEVEL": "info", "VMA_RX_POLL": "5"}).ok()

    proc = program("-")
    assert re.search(r"^first  VMA INFO: -{75}$", proc.stdout(), re.MULTILINE)
    assert results(proc)["lines"][0] > 4 and results(proc)["variable"] == (0, "-")
    assert "VMA" not in proc.stderr()
    for wrong in ("0x10", "(nil)", "hello", "0x7fffffffffffffff", "-0"):
        proc = program(wrong)
        assert "first none" in proc.stdout()
        assert f"VMA_LOG_CB_FUNC_PTR={wrong} is not valid" in proc.stderr()


# ---- each socket explains itself once

def verdicts(proc):
    return [line for line in proc.log().lines if re.search(r"accelerated: |listened on", line)]


def test_both_ends_and_the_listener_explain_themselves(run):
    said = verdicts(start(run, "talk").ok())
    assert len(said) == 3
    assert len([line for line in said if ": accelerated: device local" in line]) == 2
    assert len([line for line in said if "listened on 0.0.0.0:" in line]) == 1


def test_connections_that_are_not_accelerated_explain_themselves(run):
    said = verdicts(start(run, "talk", VMA_LIFT_AFTER="1000000", FABTEST_LIFT="0").ok())
    assert len([line for line in said if ": not accelerated: closed after " in line]) == 2
    assert len(said) == 3


def test_sockets_that_may_not_be_accelerated_explain_themselves(run):
    said = verdicts(start(run, "talk", VMA_OFFLOADED_SOCKETS="0", FABTEST_LIFT="0").ok())
    assert [line.partition("not accelerated: ")[2] for line in said] == ["VMA_OFFLOADED_SOCKETS is 0"] * 3


def test_datagram_sockets_explain_themselves(run):
    said = verdicts(start(run, "datagram", str(SOL_SOCKET), "41").ok())
    assert len(said) == 1 and "UDP" in said[0]
    assert said[0].endswith("not accelerated: an option that only the kernel can follow")
