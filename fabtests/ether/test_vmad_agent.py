# SPDX-License-Identifier: BSD-2-Clause
"""vmad's side of VMA's agent protocol: the silent peers of a process that is killed are reset, whatever other peers do; messages of
any kind are borne. The peers are the kernel's sockets on the right."""

import contextlib
import errno
import os
import pathlib
import random
import signal
import socket
import sys

import pytest

from lib import agent, build, patience
from lib.tcp import accepted, kernel_listener
from lib.users import only_root
from lib.wire import LEFT, RIGHT, Asked

_PORT = 7000
_NOBODY = "10.99.0.77"


class Vmad:
    def __init__(self, run, host, *options):
        self.socket, self.folder, self.lock = run.work / "agent.sock", run.work / "notify", run.work / "vmad.lock"
        self._run = run
        self.options = [build.build_dir() / "vmad", "--socket", "", "--broker", "", "--agent-socket", self.socket, "-n", self.folder,
                        "--lock-file", self.lock]
        self.proc = run.start("vmad", [*self.options, "--console", "-v", "5", *options], netns=host.file)
        self.says("vmad listens at")

    def says(self, text: str, count: int = 1):
        self._run.wait_until(lambda: self.said(text) >= count, f"vmad to say: {text}", proc=self.proc)

    def said(self, text: str) -> int:
        return self.proc.stdout().count(text) + self.proc.stderr().count(text)


@pytest.fixture
def start(run, hosts):
    """start(option...): vmad on the left host. Its end is clean."""
    started = []

    def made(*options):
        started.append(Vmad(run, hosts.left, *options))
        return started[-1]

    yield made
    for vmad in started:
        assert vmad.proc.alive()
        assert vmad.proc.stop() == 0
        assert not vmad.socket.exists()


@pytest.fixture
def process(run, hosts):
    """process(vmad): one on the left host that speaks the protocol."""

    def made(vmad):
        program = Asked(run, hosts.left, "process", sys.executable, "-B", agent.__file__, vmad.folder, vmad.socket)
        assert program.next_line() == "ready"
        return program

    return made


@pytest.fixture
def listener(hosts):
    with kernel_listener(hosts.right, RIGHT, _PORT) as made:
        yield made


def connected(program, listener):
    """The peer's end of a new connection of the process."""
    program.do(f"connect {RIGHT} {_PORT}")
    return accepted(listener)


def killed(program):
    program.proc.may_fail = True
    program.proc.send_signal(signal.SIGKILL)
    assert program.proc.wait() == -signal.SIGKILL
    program.close()


def is_reset(sock) -> bool:
    with pytest.raises(ConnectionResetError):
        sock.recv(1)
    return True


def is_open(sock) -> bool:
    sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        sock.recv(1)
    return True


@pytest.mark.parametrize("options", [[], ["--force-rst"]], ids=["kernel", "force"])
def test_reset_of_the_peers(start, process, listener, options):
    vmad = start(*options)
    program = process(vmad)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(connected(program, listener)) for _ in range(5)]
        vmad.says("process", 6)
        killed(program)
        assert all(is_reset(peer) for peer in peers)
    vmad.says("resets 5 connections")
    vmad.says("the peer has answered", 5)
    assert not list(vmad.folder.iterdir())


def test_who_has_left(start, process, listener):
    """A connection that was closed, and those of a process that has said that it leaves, are none of its business."""
    vmad = start()
    one, other = process(vmad), process(vmad)
    with connected(one, listener) as closed, connected(one, listener) as left, connected(other, listener) as last:
        one.do("close 1")
        one.do("exit")
        vmad.says("has left")
        killed(one)
        killed(other)
        assert is_reset(last)  # by then the others would be, too
        assert is_open(closed) and is_open(left)
    vmad.says("has died")
    assert vmad.said("has died") == 1


def test_a_slow_peer_holds_nobody_up(start, process, listener):
    """Two thousand connections to a peer that never answers, told before and after the one that does. One after the other they
    would take a minute each."""
    vmad = start("--retry-interval", "60000")
    program = process(vmad)
    program.do(f"tell {LEFT} 20000 {_NOBODY} {_PORT} 1000")
    with connected(program, listener) as peer:
        program.do(f"tell {LEFT} 20000 {_NOBODY} {_PORT} 2000")
        vmad.says("process", 2002)
        killed(program)
        assert is_reset(peer)
        again = process(vmad)  # and somebody who comes meanwhile is heard
        with connected(again, listener) as more:
            killed(again)
            assert is_reset(more)
    assert vmad.said("has not answered") == 0


def test_a_peer_that_never_answers(start, process):
    vmad = start("-r", "1")
    program = process(vmad)
    program.do(f"tell {LEFT} 20000 {_NOBODY} {_PORT} 3")
    vmad.says("process", 4)
    killed(program)
    vmad.says("the peer has not answered 3 times", 3)


def as_another_user(action):
    """In a process of a user who has no rights here."""
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(Exception):
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            action()
            status = 0
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_only_its_end_says_that_a_process_has_ended(start, process, listener):
    """Not its files: any user could switch the guard off by reading the pid file of a process of root's, and vmad only looks at pidfds."""
    vmad = start()
    program = process(vmad)
    with connected(program, listener) as peer:
        vmad.folder.parent.chmod(0o755)
        pid_file = vmad.folder / f"vma_agent.{program.proc.pid}.pid"
        as_another_user(lambda: pid_file.read_bytes())
        program.do("unwatch")
        open_files = [os.readlink(entry) for entry in pathlib.Path(f"/proc/{vmad.proc.pid}/fd").iterdir()]
        assert any("pidfd" in file for file in open_files) and not any("inotify" in file for file in open_files), open_files
        killed(program)
        assert is_reset(peer)
    assert vmad.said("not watched") == 0


def test_as_many_as_the_options_allow(start, process, listener):
    """One process, and two connections of it: who comes too many is said to, and is not watched."""
    vmad = start("-p", "1", "--fid", "2")
    program = process(vmad)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(connected(program, listener)) for _ in range(3)]
        vmad.says("more connections than are watched (--fid: 2)")
        other = agent.Client(vmad.folder, vmad.socket)
        stack.callback(other.close)
        other.sock.send(agent.init())
        vmad.says("as many processes as --pid allows")
        killed(program)
        assert is_reset(peers[0]) and is_reset(peers[1])
        assert is_open(peers[2])
        other.greet()  # there is room again


@pytest.fixture
def client(start):
    """A vmad, and this process' client."""
    vmad = start()
    made = agent.Client(vmad.folder, vmad.socket)
    yield vmad, made
    made.close()


def answers(client) -> list[bytes]:
    """What has come before the answer to a message that has one."""
    client.sock.send(agent.init())
    got = []
    while (answer := client.sock.recv(100))[:1] != bytes((agent.INIT | agent.ACK,)):
        got.append(answer)
    return got


def test_flow_rules_are_refused(client):
    vmad, mine = client
    mine.greet()
    for kind in range(5):
        for action in (1, 2):
            mine.sock.send(agent.flow(1, kind, action))
            assert mine.sock.recv(100) == agent.header(agent.FLOW | agent.ACK, 1)
    mine.sock.send(agent.flow(0))
    assert answers(mine) == []
    vmad.says("all are refused")
    assert vmad.said("all are refused") == 1


def test_versions(client):
    vmad, mine = client
    mine.sock.send(agent.init(version=4))
    mine.sock.send(agent.init(version=255))
    mine.sock.send(agent.init(version=0))
    assert answers(mine) == []
    vmad.says("is thrown away")
    mine.sock.send(agent.init(version=2))
    assert mine.sock.recv(100)[:8] == agent.header(agent.INIT | agent.ACK)  # whoever is newer refuses us


def test_wrong_messages(client):
    vmad, mine = client
    mine.greet()
    good = [agent.init(), agent.state(1, (LEFT, 1), (RIGHT, 2), agent.ESTABLISHED), agent.flow(1)]
    local, remote = (LEFT, 1), (RIGHT, 2)
    wrong = [message[:length] for message in good for length in range(len(message))]
    wrong += [message + b"x" for message in good] + [good[0] + bytes(60000)]
    wrong += [agent.header(code) for code in (0, 1, 2, 4, 5, 127, 128, 129, 255)]
    wrong += [agent.init(pid=pid) for pid in (0, -1, 1, os.getppid(), 2**31 - 1)]
    wrong += [agent.init(status=1), agent.flow(2), agent.flow(1, kind=5), agent.flow(1, action=0), agent.flow(1, action=3),
              agent.state(1, local, remote, 11), agent.state(1, local, remote, 4, kind=3), agent.state(1, local, remote, 4, status=1),
              agent.state(1, (LEFT, 0), remote, 4), agent.state(1, local, ("0.0.0.0", 2), 4), agent.state(1, local, ("224.0.0.1", 2), 4)]
    wrong = [message for message in wrong if message != agent.header(agent.EXIT)]
    for message in wrong:
        mine.sock.send(message)
    assert answers(mine) == []
    assert vmad.said(": " + LEFT) == 0
    vmad.says("is thrown away")


def test_noise(client):
    """Messages that are nearly right."""
    vmad, mine = client
    seed = int(os.environ.get("VMA_TEST_SEED", random.randrange(1 << 32)))
    print(f"VMA_TEST_SEED={seed}")
    chance = random.Random(seed)
    mine.sock.setblocking(False)
    kinds = [agent.init(), agent.header(agent.EXIT), agent.flow(1),
             agent.state(7, (LEFT, 1), (_NOBODY, 2), agent.ESTABLISHED), agent.state(7, (LEFT, 1), (_NOBODY, 2), agent.CLOSED)]
    for _ in range(20000):
        message = bytearray(chance.choice(kinds))
        for _ in range(chance.randrange(4)):
            message[chance.randrange(len(message))] = chance.randrange(256)
        if chance.random() < 0.1:
            message = message[:chance.randrange(len(message) + 1)] + chance.randbytes(chance.randrange(40))
        with contextlib.suppress(BlockingIOError):  # its queue is full, or nobody reads our answers
            mine.sock.send(message)
    with contextlib.suppress(BlockingIOError):
        while True:
            mine.sock.recv(100)
    mine.sock.settimeout(patience.seconds())
    answers(mine)
    assert vmad.proc.alive()


def test_files_that_are_none(client):
    """Names of all kinds in the folder: nobody's end is read from them."""
    vmad, mine = client
    mine.greet()
    for name in ("vma_agent.pid", "vma_agent..pid", "vma_agent.-1.pid", "vma_agent.1x.pid", "vma_agent.99999999999.pid",
                 "vma_agent.0.pid", "x" * 255, f"vma_agent.{os.getpid()}.sock2"):
        (vmad.folder / name).touch()
    assert answers(mine) == []
    assert vmad.proc.alive()


# ---- the daemon itself -------------------------------------------------------------------------------------------------

def test_a_second_one(run, start):
    vmad = start()
    second = run.start("second", [*vmad.options, "--console"])
    assert second.fails() == 1
    assert "another vmad holds it" in second.stderr()


def test_in_the_background(run):
    """It is there when the command returns."""
    socket_path, lock = run.work / "agent.sock", run.work / "vmad.lock"
    command = [build.build_dir() / "vmad", "--socket", "", "--broker", "", "--agent-socket", socket_path, "-n", run.work / "notify",
               "--lock-file", lock]
    run.run("vmad", command)
    pid = int(lock.read_text(encoding="ascii"))
    try:
        mine = agent.Client(run.work / "notify", socket_path)
        mine.greet()
        mine.close()
        second = run.start("second", command)
        assert second.fails() == 1
        assert "another vmad holds it" in second.stderr()
    finally:
        fd = os.pidfd_open(pid)
        os.kill(pid, signal.SIGTERM)
        run.wait_until(lambda: _is_gone(pid), "the end of vmad")
        os.close(fd)
    assert not socket_path.exists()


def _is_gone(pid: int) -> bool:
    try:
        return "Z" in pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split(") ")[1][:1]
    except OSError as error:
        assert error.errno in (errno.ENOENT, errno.ESRCH)
        return True


@pytest.mark.parametrize("options, told", [
    (["-v", "7"], '--verbose is "7", expected a number from 0 to 6'), (["-r", "0"], "--retry-interval"),
    (["-p", "x"], '--pid is "x"'), (["-f", "-1"], '--fid is "-1"'), (["--verbose"], "requires an argument"),
])
def test_options(run, options, told):
    proc = run.start("vmad", [build.build_dir() / "vmad", *options])
    assert proc.fails() == 2
    assert told in proc.stderr()


@only_root
def test_a_folder_of_another_user(run):
    folder = run.work / "notify"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    proc = run.start("vmad", [build.build_dir() / "vmad", "--console", "--socket", "", "--agent-socket", run.work / "a.sock", "-n", folder,
                              "--lock-file", run.work / "lock"])
    assert proc.fails() == 1
    assert "user 12345's" in proc.stderr()


def test_a_socket_of_another_user(client):
    """Nobody else may tell of connections."""
    vmad, _mine = client
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgid(12345)
            os.setuid(12345)
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(agent.init(), str(vmad.socket))
        except PermissionError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
