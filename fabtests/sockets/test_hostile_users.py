# SPDX-License-Identifier: BSD-2-Clause
"""Another user at the other end of a connection who lies (doc/trust.md), whoever of the two connects: he changes each word of the memory that both
have, and each message by which they meet. Who has him for a peer goes on serving a third user, and keeps nothing of him."""

import os
import pathlib
import random
import re

import pytest

from lib import build, ports
from lib.users import Input, become, only_root

PROGRAMS = pathlib.Path(__file__).parent / "programs"
PYTHON = "/usr/bin/python3"
VICTIM, THIRD, LIARS = 33, 4242, 20001
SEED = int(os.environ.get("FUZZ_SEED", "0")) or random.randrange(1, 1 << 32)
ALL = os.environ.get("FUZZ_ALL") == "1"  # takes minutes: each word of the memory, in place of one of each kind by chance
TIMES = 200  # that each kind of word and of message is changed
MOST = 10 if ALL else TIMES  # by one user, within the time that a process has
BANS = 7  # of users, one fewer than end it for all
KINDS = ["eventfd", "epoll", "file", "folder", "unsealed", "pipe", "datagrams", "many"]

pytestmark = only_root


class Case:
    """The victim, with a connection to a third user that is accelerated. `role`: the liars'."""

    def __init__(self, run, work, role):
        self.run, self.work, self.role = run, work, role
        work.chmod(0o755)
        self.liars = self.spare = 0
        self._begin()

    def _begin(self):
        self.feed = Input()
        self.used = 0  # users who have lied to this victim
        self.port, self.liars_port = ports.free_port(), ports.free_port()
        honest = THIRD if self.role == "listens" else VICTIM
        self.server = self._start("server", honest, "users.py", "crowd", "127.0.0.1", self.port).wait_output("ready")
        if self.role == "listens":
            self.client = self._start("client", VICTIM, "liars/liars.py", "visit", self.port, self.liars_port, stdin=self.feed.file)
        else:
            self.client = self._start("client", THIRD, "users.py", "ask", "127.0.0.1", self.port, env={"FABTEST_LIFT": "1"}, stdin=self.feed.file)
        self.victim = self.client if self.role == "listens" else self.server
        for proc in self.client, self.server:
            self.run.wait_until(lambda proc=proc: proc.log().accelerated(self.port) > 0, f"{proc.name} to be accelerated", proc=self.client)
        self.before = self._has()

    def _start(self, name, user, program, *args, env=None, **more):
        names = self.work / f"names-{user}"
        if not names.exists():
            names.mkdir(mode=0o700)
            os.chown(names, user, user)
        return self.run.start(name, [PYTHON, "-B", PROGRAMS / program, *args], preexec=become(user), vma=True, mode="latency",
                              env={"VMA_SHM_DIR": str(names), "VMA_TRACELEVEL": "details", **(env or {})}, **more)

    def _has(self):
        """Descriptors, and segments that are mapped."""
        maps = pathlib.Path(f"/proc/{self.victim.pid}/maps").read_text(encoding="utf-8")
        return len(os.listdir(f"/proc/{self.victim.pid}/fd")), maps.count("/memfd:")

    def next_user(self):
        """One who hasn't lied yet, and a victim that has not yet had to do with too many."""
        if self.used == BANS:
            self.end()
            self._begin()
        self.used += 1
        self.liars += 1
        return LIARS + self.liars

    def lie(self, user, what, quota, env=None):
        """Returns (connections that were met, rounds, [lies of each kind])."""
        seed = SEED + self.liars
        print(f"FUZZ_SEED={SEED}: user {user}'s is {seed}")
        port = self.liars_port if self.role == "listens" else self.port
        env = {"LD_PRELOAD": f"{build.preload()} {build.program('sockets/programs/liars/liar.so')}", "FUZZ_SEED": str(seed), **(env or {})}
        liar = self._start("liar", user, "liars/liars.py", self.role, port, what, ",".join(map(str, quota)), env=env)
        self.run.wait_until(lambda: not liar.alive(), "the liar to end", proc=self.victim)
        print(liar.stdout())
        met, rounds, lies = re.search(r" met (\d+) rounds (\d+) words \d+ lies (.*)$", liar.ok().stdout(), re.M).groups()
        return int(met), int(rounds), list(map(int, lies.split()))

    def end(self):
        """The victim has no more than before, but two for each user that it lets in no more: the link, and what that brought. The third user's connection
        has stayed where it was."""
        fds, segments = self.before
        self.run.wait_until(lambda: self._has()[0] <= fds + 2 * self.used + self.spare and self._has()[1] <= segments, f"no more than {self.before}", self.victim)
        self.feed.go_on()
        for proc in self.client, self.server:
            log = proc.ok().log()
            assert log.accelerated(self.port) > 0
        assert not [line for line in self.client.log().lines if f":{self.port}:" in line and "back to the kernel" in line]
        self.feed.close()


@pytest.fixture(params=["asks", "listens"])
def role(request):
    return request.param


@pytest.fixture
def case(run, work, role):
    return Case(run, work, role)


def test_words(case):
    """Slots, control words, the bells' pages, and some of the bytes, in the segments of both ends."""
    left = TIMES
    while left > 0:
        met, rounds, _lies = case.lie(case.next_user(), "words", [min(left, MOST)], env={"LIAR_EACH": "1"} if ALL else None)
        assert met > 0
        left -= rounds
    case.end()


def test_messages(case):
    """Each of their words, their length, their order, and which descriptors they bring; and messages that are somebody else's to send, or come too
    early, too late, or twice."""
    left = [TIMES] * 6
    kept_out = 0  # liars, one after the other: what those before have begun keeps others out for a second
    while any(left):
        met, _rounds, lies = case.lie(case.next_user(), "messages", left, env={"LIAR_MESSAGES": "1"})
        kept_out = 0 if met else kept_out + 1
        assert kept_out < BANS
        left = [max(0, one - told) for one, told in zip(left, lies)]
    case.end()


def test_descriptors(case):
    """A user each brings what may wait when it is touched, or more than anybody takes: that stays open, and its user is no guest any more."""
    case.spare = 32  # sockets of meetings that were over before, which a process leaves open with what is in them
    for kind in KINDS:
        user = case.next_user()
        said = f"of user {user}, sent a malformed message"
        while not any(said in line for line in case.victim.log().lines):  # a meeting may be over before its message is looked at
            case.lie(user, "fds", [2], env={"LIAR_BRINGS": kind})
        assert case.lie(user, "meets", [1])[0] == 0
    case.end()
