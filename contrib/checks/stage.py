"""One stage of a check: where its commands run, how long they may take, and where what they say is kept."""

import os
import pathlib
import signal
import subprocess
import time

from .cases import FAIL, PASS, SKIP, Case

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
LOGS = BUILD / "check-logs"
ASIDE_NICE = 5
STAGE_TIMEOUT = 2400  # seconds, several times what a stage takes: one that hangs must not hang the machine it runs on
LAST_WORDS = 60  # seconds for a command that was told to end


class Stage:
    """One step of the check: runs commands into one log, and yields cases."""

    def __init__(self, name, jobs, aside=False, timeout=STAGE_TIMEOUT):
        self.name = name
        self.jobs = jobs
        self.aside = aside
        self.log = LOGS / f"{name}.log"
        self.log.unlink(missing_ok=True)
        self.deadline = time.monotonic() + timeout

    def run(self, *command, cwd=ROOT, env=None, log=None):
        """Exit status of the command, 124 if it took too long: then it is interrupted first, so that it can tell how far it came. Ends
        whatever it left behind in its session."""
        with open(log or self.log, "ab") as log:
            log.write(f"$ {' '.join(map(str, command))}\n".encode())
            log.flush()
            child = subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            if self.aside:
                give_way(child.pid)
            try:
                return child.wait(max(1.0, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                interrupt(child)
                log.write(b"stopped: it took too long\n")
                return 124
            finally:
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                child.wait()

    def one(self, *command, env=None):
        """A command that is one case by itself: status 77 is skipped, for the reason it printed last."""
        status = self.run(*command, env=env)
        if status == 77:
            return [Case(self.name, SKIP, self.text().rstrip().splitlines()[-1])]
        return [Case(self.name, FAIL if status else PASS)]

    def part(self, name):
        """An empty log for one of several commands that run at the same time."""
        log = LOGS / f"{self.name}-{name}.log"
        log.unlink(missing_ok=True)
        return log

    def text(self):
        return self.log.read_text(encoding="utf-8", errors="replace")


def interrupt(child):
    child.send_signal(signal.SIGINT)
    try:
        child.wait(LAST_WORDS)
    except subprocess.TimeoutExpired:
        pass


def give_way(pid):
    """The process, and all that it starts, gets a third of what others get where they compete for a processor, which is enough to go
    on beside a machine's other work."""
    group = pathlib.Path(f"/proc/{pid}/autogroup")  # sched(7): of a session, where it is on
    try:
        os.setpriority(os.PRIO_PROCESS, pid, max(ASIDE_NICE, os.getpriority(os.PRIO_PROCESS, pid)))  # a user can't take it back
        for _ in range(20):
            try:
                group.write_text(str(ASIDE_NICE), encoding="ascii")
                return
            except BlockingIOError:  # the kernel takes ten a second of all who aren't root
                time.sleep(0.1)
    except (FileNotFoundError, ProcessLookupError):
        pass  # a kernel without groups; a process that has ended
