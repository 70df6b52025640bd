# SPDX-License-Identifier: BSD-2-Clause
"""Several processes on one Ethernet port: each has the flows of its own, and none of them is needed by the others, however it ends."""

import collections
import contextlib
import itertools
import re
import signal
import socket
import subprocess

import pytest

from lib import build, nginx, patience, port
from lib.users import Input, become
from lib.wire import LEFT, bound_queue_sockets, hold_queue, inside, is_listening, xdp_of

NUMBERS = range(7901, 7905)


def pids_on_port(proc):
    """Connections that the port has carried, by the process they were of."""
    lines = [line for line in proc.log().lines if "accelerated: port wire" in line]
    return collections.Counter(re.search(r"Pid: *(\d+)", line)[1] for line in lines)


def place_of(proc):
    """Which one it has, from 1 on."""
    found = [re.search(r"wire: shared by processes of this user, place (\d+) of 8", line) for line in proc.log().lines]
    return next((int(match[1]) for match in found if match), None)


class Web:
    """nginx on the left."""

    def __init__(self, run, lab, *, workers):
        self.lab = lab
        (run.work / "small").write_bytes(b"x" * 500)
        self.proc = lab.program("web", nginx.command(run.work, f"{LEFT}:8001 reuseport", run.work, workers=workers))
        run.wait_until(lambda: is_listening(lab.left, 8001), "nginx to listen", proc=self.proc)

    def load(self):
        """wrk on the right, running."""
        argv = [build.tool("wrk"), "-t2", "-c64", "-d1", f"http://{LEFT}:8001/small"]
        return self.lab.program("wrk", argv, ours=False)

    def are_on_port(self):
        """How many workers are, behind a load whose answers are whole."""
        self.is_whole(self.load())
        return len(pids_on_port(self.proc))

    @staticmethod
    def is_whole(load):
        said = load.ok().stdout()
        assert "Socket errors" not in said and "Non-2xx" not in said, said


class Server:
    """A redis on the left, by the port."""

    def __init__(self, lab, number, few=False, **options):
        self.lab, self.number = lab, number
        argv = [*(["/usr/bin/prlimit", "--nofile=40"] if few else []), build.tool("redis-server"), "--save", "", "--port", number, "--bind", LEFT, "--protected-mode", "no"]
        self.proc = lab.program(f"redis{number}", argv, **options)
        lab.run.wait_until(lambda: is_listening(lab.left, number), f"redis {number} to listen", proc=self.proc)

    def load(self, name, requests=20000, connections=4, test="set"):
        """redis-benchmark on the right, running."""
        return self.lab.program(f"{name}{self.number}", [build.tool("redis-benchmark"), "-h", LEFT, "-p", self.number, "-q",
                                                         "-c", connections, "-n", requests, "-t", test, "-d", 200],
                                ours=False)

    def is_loaded(self, connections):
        """Waits until the kernel's side has so many connections."""
        def all_there():
            shown = subprocess.run(["ss", "-N", self.lab.right.name, "-Htn", "state", "established", f"dport = :{self.number}"],
                                   capture_output=True, text=True, check=True)
            return len(shown.stdout.splitlines()) >= connections
        self.lab.run.wait_until(all_there, f"{connections} connections")

    def is_served(self, requests=5000):
        """Loads it until the port carries its connections."""
        def attempt(count):
            assert "Error" not in self.load("bench", count).ok().output()
            return self.proc
        port.until_offloaded(attempt, requests)

    def place(self):
        return place_of(self.proc)


@pytest.fixture
def serve(lab):
    servers = []

    def served(number, **options):
        servers.append(Server(lab, number, **options))
        return servers[-1]

    yield served
    for server in servers:
        if server.proc.alive():
            server.proc.stop()


@pytest.fixture
def guarded(vmad):
    """Options of a server whose death its silent peers hear of: all may wait for answers to what it has acknowledged."""
    return {"env": {"FI_VMA_GUARDIAN": str(vmad.path)}}


def test_two_programs(run, lab, serve):
    """Both at once, by the same port."""
    redis = serve(NUMBERS[0])
    web = Web(run, lab, workers=1)
    redis.is_served()
    run.wait_until(lambda: web.are_on_port() >= 1, "nginx to be on the port", proc=web.proc)
    loads = redis.load("both", 50000), web.load()
    assert "Error" not in loads[0].ok().output()
    Web.is_whole(loads[1])
    assert {redis.place(), place_of(web.proc)} == {1, 2}
    nginx.end(run, web.proc)


def test_nginx_with_four_workers(run, lab):
    """Each worker has connections by the port, and answers are whole."""
    web = Web(run, lab, workers=4)
    run.wait_until(lambda: web.are_on_port() >= 4, "four workers to be on the port", proc=web.proc)
    nginx.end(run, web.proc)


FORKS_BEFOREHAND = """
import os, socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
for _ in range(4):
    if os.fork() == 0:
        while True:
            with listener.accept()[0] as sock:
                while data := sock.recv(100, socket.MSG_WAITALL):
                    sock.sendall(data)
os.wait()
"""


def test_workers_that_are_forked_beforehand(run, lab):
    """They share a listening socket that was made before them. Each has a connection by the port, from the same client."""
    number = NUMBERS[0]
    server = lab.program("server", ["/usr/bin/python3", "-c", FORKS_BEFOREHAND, LEFT, number])
    run.wait_until(lambda: is_listening(lab.left, number), "the server to listen", proc=server)
    with inside(lab.right), contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.create_connection((LEFT, number), patience.seconds())) for _ in range(4)]
        for sock in socks:
            sock.settimeout(None)  # else MSG_WAITALL doesn't wait
        sent = itertools.count()

        def four_on_port():
            for sock in socks:
                for _ in range(50):
                    message = f"{next(sent):100}".encode()
                    sock.sendall(message)
                    assert sock.recv(100, socket.MSG_WAITALL) == message
            return len(pids_on_port(server)) == 4
        run.wait_until(four_on_port, "four workers to be on the port", proc=server)


@pytest.mark.parametrize("who", [0, 1], ids=["first", "later"])
def test_one_is_killed(serve, guarded, who):
    """Whoever it is: the others go on, its peers hear of it, and its place is another's."""
    servers = [serve(number, **guarded) for number in NUMBERS[:3]]
    for server in servers:
        server.is_served()
    victim = servers.pop(who)
    others = [server.load("others", 200000) for server in servers]
    load = victim.load("victim", 100000000)
    victim.is_loaded(4)
    place = victim.place()
    victim.proc.kill()
    load.fails()  # its connections were reset
    for other in others:
        assert "Error" not in other.ok().output()
    follower = serve(NUMBERS[3])
    follower.is_served()
    assert follower.place() == place


def test_many_are_killed(serve, guarded):
    """In full flow, more often than there are places: no frame is lost, or there would be none left for the one that stays."""
    stays = serve(NUMBERS[0])
    stays.is_served()
    for _ in range(9):
        victim = serve(NUMBERS[1], **guarded)
        victim.is_served()
        load = victim.load("victim", 100000000, 32)
        victim.is_loaded(32)
        victim.proc.kill()
        load.fails()
        assert victim.place() == 2
    stays.is_served(50000)


def test_one_is_stopped(serve):
    """What comes for it fills its ring, and takes nobody else's frames."""
    stopped, goes_on = serve(NUMBERS[0]), serve(NUMBERS[1])
    for server in stopped, goes_on:
        server.is_served()
    load = stopped.load("stopped", 100000000, 64, "set")
    stopped.is_loaded(64)
    stopped.proc.send_signal(signal.SIGSTOP)
    try:
        goes_on.is_served(100000)
    finally:
        stopped.proc.send_signal(signal.SIGCONT)
    load.stop()
    stopped.is_served()


def test_the_first_ends(lab, serve):
    """Orderly: the port is the others', until the last one ends."""
    first, second = serve(NUMBERS[0]), serve(NUMBERS[1])
    for server in first, second:
        server.is_served()
    first.proc.stop()
    second.is_served(50000)
    third = serve(NUMBERS[2])
    third.is_served()
    assert third.place() == 1
    for server in second, third:
        server.proc.stop()
    assert not xdp_of(lab.left)


BECOMES_ANOTHER = f"""
import os, socket
with socket.create_server(("{LEFT}", {NUMBERS[3]})) as listener:
    sock = listener.accept()[0]
    while data := sock.recv(4096):
        sock.sendall(data)
        if data.endswith(b"go on"):
            break
    os.execvp("sleep", ["sleep", "100000"])
"""


def test_one_becomes_another_program(lab, serve):
    """exec(2) ends nothing that a pidfd would tell of; the place is free all the same."""
    two = {"FI_VMA_ETHERNET_PROCESSES": "2"}
    becomes = lab.program("becomes", ["/usr/bin/python3", "-c", BECOMES_ANOTHER], env=two)
    lab.run.wait_until(lambda: is_listening(lab.left, NUMBERS[3]), "the program to listen", proc=becomes)
    with inside(lab.right), socket.create_connection((LEFT, NUMBERS[3]), patience.seconds()) as sock:
        def on_port():
            for _ in range(200):
                sock.sendall(b"12345678")
                assert sock.recv(8, socket.MSG_WAITALL) == b"12345678"
            return port.offloaded(becomes) == 1
        lab.run.wait_until(on_port, "its connection to go by the port")
        stays = serve(NUMBERS[0])
        stays.is_served()
        sock.sendall(b"go on")
        assert sock.recv(5, socket.MSG_WAITALL) == b"go on"
        assert sock.recv(1) == b""
    follower = serve(NUMBERS[1])
    follower.is_served()
    becomes.kill()


RECEIVES = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[3:] == ["shared"]:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
sock.bind((sys.argv[1], int(sys.argv[2])))
print("bound", flush=True)
while True:
    print(sock.recv(100).decode(), flush=True)
"""


def receivers(lab, numbers, *how):
    """A process for each number, whose socket is bound to that port."""
    made = [lab.program(f"receiver{i}", ["/usr/bin/python3", "-c", RECEIVES, LEFT, number, *how]) for i, number in enumerate(numbers)]
    return [proc.wait_output("bound") for proc in made]


def send_from_many(lab, number, first, count):
    """Datagrams with their numbers as text, ten from each socket."""
    with inside(lab.right):
        socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count // 10)]
    for i, sock in enumerate(socks):
        for j in range(10):
            sock.sendto(f"{first + 10 * i + j}".encode(), (LEFT, number))
        sock.close()


def test_datagrams_of_two_processes(lab):
    """Each has the port's flow of its own socket."""
    both = receivers(lab, NUMBERS[:2])

    def on_port():
        for number in NUMBERS[:2]:
            send_from_many(lab, number, 0, 50)
        return all(port.offloaded(proc) == 1 for proc in both)
    lab.run.wait_until(on_port, "both to be on the port")
    for i, proc in enumerate(both):
        send_from_many(lab, NUMBERS[i], 1000 * (i + 1), 100)
        wanted = [str(1000 * (i + 1) + n) for n in range(100)]
        lab.run.wait_until(lambda proc=proc, wanted=wanted: set(wanted) <= set(proc.stdout().split()), "all datagrams", proc=proc)
    for i, proc in enumerate(both):
        assert not any(line.startswith(str(2 - i)) and len(line) == 4 for line in proc.stdout().split())
        proc.kill()


def test_datagrams_to_a_group_of_sockets(lab):
    """SO_REUSEPORT: the kernel chooses, whoever has a port, and each datagram comes once."""
    both = receivers(lab, [NUMBERS[0]] * 2, "shared")
    for turn in range(1, 6):
        send_from_many(lab, NUMBERS[0], 1000 * turn, 100)
        wanted = sorted(str(1000 * turn + n) for n in range(100))

        def came(turn=turn):
            return sorted(line for proc in both for line in proc.stdout().split() if line.startswith(str(turn)) and len(line) == 4)
        lab.run.wait_until(lambda came=came, wanted=wanted: len(came()) >= len(wanted), "all datagrams")
        assert came() == wanted
    assert all(len(proc.stdout().split()) > 10 for proc in both)
    for proc in both:
        proc.kill()


def test_more_than_there_are_places(lab, serve):
    """Whoever has none is on the kernel, says so, and works."""
    servers = [serve(number, env={"FI_VMA_ETHERNET_PROCESSES": "2"}) for number in NUMBERS[:2]]
    for server in servers:
        server.is_served()
    third = serve(NUMBERS[2])
    assert "Error" not in third.load("bench").ok().output()
    lab.run.wait_until(lambda: any("all places are taken" in line for line in third.proc.log().lines), "its log line")
    assert port.offloaded(third.proc) == 0


def test_one_that_does_not_answer(lab, serve):
    """It is stopped: who comes later is on the kernel, and works."""
    first = serve(NUMBERS[0])
    first.is_served()
    first.proc.send_signal(signal.SIGSTOP)
    try:
        second = serve(NUMBERS[1])
        assert "Error" not in second.load("bench").ok().output()
        lab.run.wait_until(lambda: any("has it, and doesn't answer" in line for line in second.proc.log().lines), "its log line")
    finally:
        first.proc.send_signal(signal.SIGCONT)
    second.is_served()


def test_few_descriptors(serve):
    """One that may not have those of all places has the port for itself, or goes without."""
    first = serve(NUMBERS[0])
    first.is_served()
    second = serve(NUMBERS[1], few=True)
    assert "Error" not in second.load("bench", connections=2).ok().output()
    assert port.offloaded(second.proc) == 0


def test_one_place(lab, serve):
    """As it was before there were several: who comes second is on the kernel."""
    first = serve(NUMBERS[0], env={"FI_VMA_ETHERNET_PROCESSES": "1"})
    first.is_served()
    second = serve(NUMBERS[1])
    assert "Error" not in second.load("bench").ok().output()
    lab.run.wait_until(lambda: any("wire stays the kernel's" in line for line in second.proc.log().lines), "its log line")
    first.is_served()


HOLDS = """
import socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
    sock.bind("\\0vma-nic/%d/0" % socket.if_nametoindex("wire"))
    if sys.argv[1] == "listens":
        sock.listen(1)
    print("holds", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("how, who", [("listens", "user 65534"), ("does not listen", "somebody")], ids=["listens", "silent"])
def test_another_user_has_the_name(run, lab, serve, how, who):
    """By which processes of this user would share the port: the first one has it alone."""
    stdin = Input()
    thief = run.start("thief", ["/usr/bin/python3", "-c", HOLDS, how], preexec=become(65534, lab.left), stdin=stdin.file).wait_output("holds")
    first, second = serve(NUMBERS[0]), serve(NUMBERS[1])
    first.is_served()
    assert first.place() is None
    assert sum(f"{who} " in line and "has taken the name" in line for line in first.proc.log().lines) == 1
    assert "Error" not in second.load("bench").ok().output()
    assert port.offloaded(second.proc) == 0
    stdin.go_on()
    thief.ok()
    stdin.close()
    first.is_served()


def test_the_kernel_still_has_the_queue(lab, serve):
    """The last process has ended, and the kernel is letting go of what it had: who comes then waits, and has the port."""
    server = serve(NUMBERS[0])
    with hold_queue(lab.left):
        load = server.load("bench")
        lab.run.wait_until(lambda: any("is busy, with no XDP program" in line for line in server.proc.log().lines), "it to wait")
    assert "Error" not in load.ok().output()
    server.is_served()
    assert server.place() == 1


def test_sockets_are_bound_as_places_are_taken(serve):
    """The end of a process takes a grace period of RCU for each."""
    first, second = (serve(number) for number in NUMBERS[:2])
    first.is_served()
    assert bound_queue_sockets(first.proc.pid) == 1
    second.is_served()
    assert bound_queue_sockets(first.proc.pid) == bound_queue_sockets(second.proc.pid) == 2
