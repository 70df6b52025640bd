# SPDX-License-Identifier: BSD-2-Clause
"""Running the processes of one test: bounded in time, logs kept, ended with the test, nobody else's process touched.

Each `timeout` is what the usual machine needs at most, lib/patience.py makes of it what this one is given."""

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import time

from . import build, patience, ports, vmalog

TIMEOUT = 2 * patience.USUAL  # of a process: what it waits for itself ends before, and says more

CRASHES = {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGILL, -signal.SIGFPE}


def _wait_until(condition, what: str, proc=None):
    """Polls `condition` until it holds. Fails when that takes too long, or at once when `proc` ended before."""
    deadline = patience.Deadline()
    pause = 0.001
    while True:
        ended = proc is not None and proc.popen.poll() is not None
        result = condition()
        if result:
            return result
        if ended:
            raise AssertionError(f"{proc.name} ended with {proc.popen.returncode} before {what}\n{proc.output()}")
        if deadline.over():
            raise AssertionError(f"timed out after {deadline} waiting for {what}")
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


@contextlib.contextmanager
def open_input():
    """A standard input of nothing, which ends when the block does: tells a program that it has gone on for long enough."""
    end, goes_on = os.pipe()
    with open(end, "rb") as stdin, open(goes_on, "wb"):
        yield stdin


def wait_for_end(popens, deadline: patience.Deadline) -> bool:
    """Waits until one of the processes has ended. False: none has in time. Popen.wait() looks every 50 ms only."""
    with contextlib.ExitStack() as stack:
        waiter = select.poll()
        for popen in popens:
            if popen.poll() is not None:
                return True
            fd = os.pidfd_open(popen.pid)
            stack.callback(os.close, fd)
            waiter.register(fd, select.POLLIN)
        while not waiter.poll(deadline.left() * 1000) and not deadline.over():
            pass
    return any(popen.poll() is not None for popen in popens)


def _members_of(group: int) -> list[int]:
    """A pidfd of each process of the group that has not ended. It is readable when the process has closed all that it had."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            state, _, pgrp = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(pgrp) == group and state not in "ZX":
                found.append(os.pidfd_open(int(entry.name)))
        except (FileNotFoundError, ProcessLookupError, ValueError):
            pass
    return found


class Proc:
    """One started command. Its standard output and error are files, so nothing blocks on a full pipe."""

    def __init__(self, runner, name, popen, out, err, deadline):
        self.runner, self.name, self.popen = runner, name, popen
        self._out, self._err, self._deadline = out, err, deadline
        self.may_fail = False  # a non-crash exit status other than 0 is the test's own business
        self.killed = False

    @property
    def pid(self) -> int:
        return self.popen.pid

    def stdout(self) -> str:
        return self._out.read_text(errors="replace")

    def stderr(self) -> str:
        return self._err.read_text(errors="replace")

    def output(self) -> str:
        return self.stdout() + self.stderr()

    def log_paths(self) -> list[pathlib.Path]:
        return sorted(self.runner.log_dir.glob(f"{self.name}.*.log"))

    def log(self) -> vmalog.Log:
        return vmalog.Log(self.log_paths())

    def alive(self) -> bool:
        return self.popen.poll() is None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns the exit status; a process that does not end is killed and fails the test."""
        deadline = self._deadline if timeout is None else patience.Deadline(timeout)
        if wait_for_end([self.popen], deadline):
            return self.popen.returncode
        stacks = self._where()
        self.kill()
        raise AssertionError(f"{self.name} did not end within {deadline}\n{stacks}{self.output()}")

    def ok(self, timeout: float | None = None) -> "Proc":
        """Waits for the end, which must be exit status 0."""
        status = self.wait(timeout)
        assert status == 0, f"{self.name} ended with status {status}\n{self.output()}"
        return self

    def fails(self, timeout: float | None = None) -> int:
        self.may_fail = True
        status = self.wait(timeout)
        assert status != 0, f"{self.name} should have failed\n{self.output()}"
        return status

    def wait_output(self, text: str) -> "Proc":
        _wait_until(lambda: text in self.output(), f"{self.name} to print {text!r}", self)
        return self

    def wait_log(self, test, what: str):
        """Waits until test(log) holds: the log of a process that still runs."""
        return _wait_until(lambda: test(self.log()), what, self)

    def send_signal(self, number: int):
        self.popen.send_signal(number)

    def kill(self):
        """SIGKILL to the process and everything of its group. None of them has anything open any more when this returns."""
        self.killed = True
        while members := _members_of(self.popen.pid):
            try:
                os.killpg(self.popen.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            for pidfd in members:
                with os.fdopen(pidfd):
                    waiter = select.poll()
                    waiter.register(pidfd, select.POLLIN)
                    assert waiter.poll(patience.seconds() * 1000), f"{self.name}: a process of it outlives SIGKILL"
        self.popen.wait(patience.seconds())

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Asks it to end, waits, and returns the exit status. Its own status after the signal is not judged."""
        self.may_fail = True
        if self.alive():
            self.send_signal(number)
        deadline = patience.Deadline()
        if wait_for_end([self.popen], deadline):
            return self.popen.returncode
        where = self._where()
        self.kill()
        raise AssertionError(f"{self.name} ignored signal {number} for {deadline}\n{where}")

    def _where(self) -> str:
        """What the kernel says about each thread: which call it is in."""
        lines = []
        for task in sorted(pathlib.Path(f"/proc/{self.pid}/task").glob("*")):
            try:
                lines.append(f"  thread {task.name}: {(task / 'wchan').read_text()} "
                             f"syscall {(task / 'syscall').read_text().strip()}")
            except OSError:
                pass
        return "\n".join(lines) + "\n"


class Runner:
    """Starts processes for one test and answers for all of them at its end."""

    def __init__(self, work: pathlib.Path, shm: pathlib.Path):
        self.work, self.shm = work, shm
        self.rules = work / "libvma.conf"
        self.rules.touch()
        self.log_dir = work / "log"
        self.log_dir.mkdir()
        self.log_dir.chmod(0o1777)  # processes of other users log too
        self.procs: list[Proc] = []
        self.expect_errors = False  # set by tests that provoke ERROR lines

    def environment(self, vma: bool, mode: str, name: str, extra: dict[str, str] | None) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("VMA_", "LD_PRELOAD", "FI_")) and k not in ("http_proxy", "HTTP_PROXY")}
        env["LC_ALL"] = "C.UTF-8"
        env["no_proxy"] = "*"
        env["VMA_SHM_DIR"] = str(self.shm)
        env["VMA_CONFIG_FILE"] = str(self.rules)  # not the machine's
        env["VMA_STATS_SHMEM_DIR"] = str(self.log_dir)
        env["ASAN_OPTIONS"] = "detect_leaks=0:abort_on_error=1:verify_asan_link_order=0"
        env["UBSAN_OPTIONS"] = "print_stacktrace=1"
        env["FABTESTS_PATIENCE"] = f"{patience.factor():.2f}"
        if vma:
            env["LD_PRELOAD"] = build.preload()
            env["VMA_TRACELEVEL"] = "debug"
            env["VMA_LOG_FILE"] = str(self.log_dir / f"{name}.%d.log")
            if mode == "latency":
                env["VMA_SPEC"] = "latency"
        env.update(extra or {})
        return env

    def start(self, name: str, argv, *, vma: bool = False, mode: str = "default", env=None, timeout: float = TIMEOUT,
              stdin=None, stdout=None, pass_fds=(), netns=None, preexec=None, cwd=None) -> Proc:
        """Starts argv in a session of its own, which ends with us. `stdin`: bytes, a file object, or None for /dev/null. `netns`: the file
        of a network namespace. `preexec`: called in between, which costs a copy of our memory."""
        index = sum(p.name.split("#")[0] == name for p in self.procs)
        if index:
            name = f"{name}#{index + 1}"
        out, err = self.work / f"{name}.out", self.work / f"{name}.err"
        if isinstance(stdin, bytes):
            feed = self.work / f"{name}.in"
            feed.write_bytes(stdin)
            stdin = feed.open("rb")
        environment = self.environment(vma, mode, name, env)
        begin = [build.program("lib/programs/begin"), os.getpid(), environment.pop("LD_PRELOAD", ""), netns or ""]
        with (stdout or out.open("wb")) as out_file, err.open("wb") as err_file:
            out.touch()
            popen = subprocess.Popen([str(a) for a in [*begin, *argv]], env=environment,
                                     stdin=stdin or subprocess.DEVNULL, stdout=out_file, stderr=err_file,
                                     start_new_session=True, pass_fds=pass_fds, preexec_fn=preexec,
                                     cwd=cwd or self.work)
        proc = Proc(self, name, popen, out, err, patience.Deadline(timeout))
        self.procs.append(proc)
        return proc

    def run(self, name: str, argv, **options) -> Proc:
        """Starts argv and waits for exit status 0."""
        return self.start(name, argv, **options).ok()

    def wait_port(self, port: int, proc: Proc | None = None):
        _wait_until(lambda: ports.is_listening(port), f"port {port} to listen", proc)

    def wait_until(self, condition, what: str, proc: Proc | None = None):
        return _wait_until(condition, what, proc)

    def finish(self) -> list[str]:
        """Ends what still runs and returns what was wrong with any process."""
        wrong = []
        for proc in reversed(self.procs):
            if proc.alive():
                proc.kill()
        for proc in self.procs:
            status = proc.popen.returncode
            if status in CRASHES:
                wrong.append(f"{proc.name} crashed: {signal.Signals(-status).name}\n{proc.stderr()}")
            elif status and not proc.may_fail and not proc.killed:
                wrong.append(f"{proc.name} ended with status {status}\n{proc.output()}")
            if "Sanitizer" in proc.stderr() or "runtime error:" in proc.stderr():
                wrong.append(f"{proc.name}: sanitizer report\n{proc.stderr()}")
            if not self.expect_errors:
                wrong += [f"{proc.name} logged: {line}" for line in proc.log().at_level("PANIC", "ERROR")]
        return wrong

    def report(self) -> str:
        """Everything the processes said, for the report of a failed test."""
        parts = []
        for proc in self.procs:
            for title, text in [("output", proc.output())] + [(p.name, p.read_text(errors="replace"))
                                                              for p in proc.log_paths()]:
                if text.strip():
                    parts.append(f"--- {proc.name} {title}\n{_shorten(text)}")
        return "\n".join(parts)


def _shorten(text: str, limit: int = 6000) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit // 3]}\n[... {len(text) - limit} characters left out ...]\n{text[-2 * limit // 3:]}"
