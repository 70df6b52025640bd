# SPDX-License-Identifier: BSD-2-Clause
"""TCP between two hosts under the preload library: accelerated over the RDMA device, and what happens when a side lacks the
library, dies, or loses its device. Every byte that arrives is compared (programs/stream.py)."""

import base64
import itertools
import json
import pathlib
import random
import re
import signal
import time

import pytest

from lib import build, nginx, patience, rxe as rxe_lib, vmadump, vmalog

STREAM = build.TOP / "fabtests" / "lab" / "programs" / "stream.py"
ACCELERATED = f"accelerated: device {rxe_lib.DOMAIN}"
SIDES = ("server", "client")
FOR_EVER = 1 << 40
TOLD_EACH = 1 << 18  # as in stream.py
PATTERN = 1048573  # bytes that it sends over and over
# What leaves rings with room: a full one turns its sender to the kernel for a while, by which most bytes go then.
RATE = ("--rate", 1 << 20)
STATS = [str(build.build_dir() / "vma_stats"), "--json", "--cycles", "1"]


@pytest.fixture(autouse=True)
def needs(vma_on_rxe):
    if not build.intercepts():
        pytest.skip("libvma.so of this build intercepts nothing")


def env(name: str, **more) -> dict[str, str]:
    return {**rxe_lib.preload_env(name), "VMA_REMOTE_STREAMS": "1", **more}


def log(guest, name: str) -> str:
    return "\n".join(vmalog.without_notice(guest.run(f"cat /tmp/{name}.log || true")))


def without_calls(text: str) -> str:
    """The last hundred lines of a log but those of the calls that go in and out."""
    return "\n".join([line for line in text.splitlines() if not re.search(r": (?:ENTER|EXIT): ", line)][-100:])


def start_server(guest, argv, name: str):
    """Starts it, with the log `name`, and waits until it listens. Its connections are to be offloaded at once."""
    before = guest.listeners()
    server = guest.start(argv, env=env(name, VMA_SPEC="latency"))
    assert guest.wait_listening(server, before, rxe_lib.LIMIT), server.output()
    return server


def until_accelerated(lab, name: str, act):
    """How long the peers look for each other is limited, their libraries are loaded meanwhile, and guests can be slower: it is done until
    a connection of each has been offloaded."""
    deadline = patience.Deadline(rxe_lib.LIMIT)
    logs = [""]
    while not all(ACCELERATED in said for said in logs):
        assert not deadline.over(), "\n".join(logs)
        act()
        logs = [log(guest, f"{name}-{guest.role}") for guest in lab.guests]


class Streams:
    """stream.py in both guests, the client's when the server's listens."""

    _port = 6000

    def __init__(self, lab, *options, count=FOR_EVER, address=None, what="both", envs=None, client_in=None):
        Streams._port += 1
        self.port = Streams._port
        self.guests = {"server": lab.server, "client": client_in or lab.client}
        envs = envs or {role: env(f"stream-{self.port}-{role}") for role in SIDES}
        self.logs = {role: envs[role]["VMA_LOG_FILE"] for role in SIDES if envs[role]}
        before = lab.server.listeners()
        words = [address or lab.server.address, Streams._port, what, count, 20000, *options]
        self.server = lab.server.start(["python3", STREAM, "listen", *words], env=envs["server"])
        assert lab.server.wait_listening(self.server, before, rxe_lib.LIMIT), self.server.output()
        self.client = self.guests["client"].start(["python3", STREAM, "connect", *words], env=envs["client"])

    def log(self, role: str) -> str:
        return log(self.guests[role], pathlib.PurePath(self.logs[role]).stem) if role in self.logs else ""

    def wait_for_log(self, role: str, text: str, times: int = 1):
        command = getattr(self, role)
        deadline = patience.Deadline(rxe_lib.LIMIT)
        while self.log(role).count(text) < times:
            if not command.alive() or deadline.over():
                pytest.fail(f"the {role}'s log does not say {text!r} {times} times\n{self.state()}", pytrace=False)
            time.sleep(0.2)

    def wait_for_logs(self, text: str, times: int = 1):
        for role in SIDES:
            self.wait_for_log(role, text, times)

    def received(self, role: str) -> int:
        found = re.findall(r"^at (\d+)$", getattr(self, role).stdout(), re.MULTILINE)
        return int(found[-1]) if found else 0

    def wait(self, role: str, condition):
        command = getattr(self, role)
        command.guest.wait_until(lambda: not command.alive() or condition(), rxe_lib.LIMIT)
        assert command.alive(), command.output()

    def wait_more(self, role: str):
        """Until that side has received more than it has by now."""
        before = self.received(role)
        self.wait(role, lambda: self.received(role) > before + TOLD_EACH)

    def wait_by_device(self, role: str):
        """Until bytes have come to that side by the device: before, the kernel's end is all that there can be."""
        def by_device():
            shown = json.loads(self.guests[role].run(STATS))
            return any(sock["rx"]["bytes"] for sock in shown["sockets"])
        self.wait(role, by_device)

    def state(self) -> str:
        """What each side has said, where its threads are, and what kernel and library know of the connection."""
        threads = ("for pid in $(grep -l stream.py /proc/[0-9]*/cmdline | cut -d/ -f3); do for task in /proc/$pid/task/*; do "
                   "echo $task $(cat $task/wchan $task/syscall) $(grep -h ^Sig $task/status); done; done; ss -tnoi; "
                   f"{' '.join(STATS)}; true")  # one of the two may have ended
        said = []
        for role in SIDES:
            command, guest = getattr(self, role), self.guests[role]
            said += [f"---- {role}: {command}", *command.output().splitlines()[-10:], without_calls(self.log(role)),
                     guest.run(["/bin/sh", "-c", threads])]
        return "\n".join(said)

    def ends(self, role: str, what: str) -> tuple[int, str]:
        command = getattr(self, role)
        if not command.guest.wait_until(lambda: not command.alive(), rxe_lib.LIMIT):
            pytest.fail(f"{command} does not end\n{self.state()}", pytrace=False)
        command.ok()
        found = re.search(rf"^{what} (\d+) (\w+)$", command.stdout(), re.MULTILINE)
        assert found, command.output()
        return int(found[1]), found[2]

    def enough(self):
        for role in SIDES:
            getattr(self, role).send_signal(signal.SIGUSR2)

    def arrived(self, count: int | None = None):
        """Both have received what the other has sent, `count` if that is known, and nothing went wrong."""
        sent = {role: self.ends(role, "sent") for role in SIDES}
        received = {role: self.ends(role, "received") for role in SIDES}
        for role, other in zip(SIDES, SIDES[::-1]):
            assert sent[role] == received[other], self.log(role) + self.log(other)
            assert sent[role] == (count or sent[role][0], "end"), self.log(role)
        for role in SIDES:
            assert ACCELERATED in self.log(role) and "WARNING" not in self.log(role), self.log(role)


@pytest.mark.parametrize("address", ["address", "address6"])
def test_both_ways(rxe, address):
    run = Streams(rxe, *RATE, address=getattr(rxe.server, address))
    run.wait_for_logs(ACCELERATED)
    for role in SIDES:
        run.wait_more(role)
    run.enough()
    run.arrived()


@pytest.mark.parametrize("mib", (1, 2, 3, 5))
def test_ends_about_the_switch(rxe, mib):
    """One side may be at its end, or have closed, while the other one has just been connected to its endpoint."""
    run = Streams(rxe, count=mib << 20)
    ends = [(run.ends(role, "sent"), run.ends(role, "received")) for role in SIDES]
    assert ends == [((mib << 20, "end"),) * 2] * 2, "".join(map(run.log, SIDES))


def test_forks_in_mid_stream(rxe):
    """Each fork gives the stream back to the kernel, as the child holds it too; then it is offloaded again."""
    run = Streams(rxe, *RATE)
    for turn, role in enumerate(SIDES, 1):
        run.wait_for_logs(ACCELERATED, turn)
        run.wait_more(role)
        getattr(run, role).send_signal(signal.SIGUSR1)
        run.wait_for_log(role, "back to the kernel: fork")
    run.wait_for_logs(ACCELERATED, 3)
    for role in SIDES:
        run.wait_more(role)
        assert "WARNING" not in run.log(role), run.log(role)


def capture(guest, way):
    """200 packets of its streams, that go this way: of both ways, 400 may be of one, while a thread waits for a processor."""
    guest.run([build.build_dir() / "vma_dump", "-i", "rdma", "-B", 4096, "-s", 256, "-Q", way, "-c", 200, "-w", "/tmp/captured"],
              timeout=rxe_lib.LIMIT)
    return vmadump.parse(base64.b64decode(guest.run(["base64", "-w", "0", "/tmp/captured"], timeout=rxe_lib.LIMIT)))


def test_captured(rxe):
    """vma_dump in mid-stream: what goes both ways by RDMA, each piece where it belongs in its stream. The rate leaves vma_dump a
    processor, too: a guest has one."""
    patterns = [random.Random(1 + listener).randbytes(PATTERN) * 2 for listener in (False, True)]
    run = Streams(rxe, *RATE)
    run.wait_for_logs(ACCELERATED)
    for role in SIDES:
        run.wait_more(role)
    for role, way in itertools.product(SIDES, ("in", "out")):
        packets = capture(run.guests[role], way)
        assert len(packets) == 200 and {one.out for one in packets} == {way == "out"}
        comments = [one.options[1].decode() for one in packets if 1 in one.options]
        assert len(comments) == 1 and "RDMA to another host" in comments[0]
        whole = patterns[(way == "out") == (role == "server")]
        for one in packets:
            at = (one.seq - 1) % PATTERN
            assert one.interface.startswith(f"{rxe_lib.DOMAIN}@") and one.data == whole[at:at + len(one.data)] != b""
    run.enough()
    run.arrived()


def test_rate_limit(rxe):
    """Never faster than the rate, whichever way the bytes go, by the sender's clock (a guest's can be some percent off, as it is measured
    against another while it boots); how much slower is the machine's affair."""
    count, rate, burst = 5 << 20, RATE[1], 1 << 18
    run = Streams(rxe, *RATE, count=count)
    run.arrived(count)
    for role in SIDES:
        took = float(re.search(r"leaving took ([\d.]+) s", getattr(run, role).stdout())[1])
        print(f"{role}: {count / took / rate:.2f} of the rate")
        assert took > (count - burst) / rate


def test_sockperf(rxe):
    envs = {role: env(f"perf-{role}") for role in SIDES}
    rxe_lib.sockperf(rxe, "--tcp", server_env=envs["server"], client_env=envs["client"], seconds=8)
    for guest in rxe.guests:
        assert ACCELERATED in log(guest, f"perf-{guest.role}"), log(guest, f"perf-{guest.role}")


def test_redis(rxe):
    port = "6390"
    server = start_server(rxe.server, ["redis-server", "--bind", rxe.server.address, "--port", port, "--save", "",
                                       "--protected-mode", "no"], "redis-server")

    def benchmark():
        said = rxe.client.run(["redis-benchmark", "-h", rxe.server.address, "-p", port, "-c", "4", "-n", "2000", "-t",
                               "set,get", "-q"], env=env("redis-client"), timeout=rxe_lib.LIMIT)
        assert re.search(r"GET: [\d.]+ requests per second", said), said
    until_accelerated(rxe, "redis", benchmark)
    server.stop()


def test_nginx(rxe):
    """A worker that its master has forked; files by sendfile, over one connection."""
    file = build.provider_dir() / "libvma-fi.so"
    conf = nginx.configuration("/tmp", f"{rxe.server.address}:8080", file.parent, sendfile="on")
    rxe.server.run(["python3", "-c", "import sys; open('/tmp/nginx.conf', 'w').write(sys.argv[1])", conf])
    server = start_server(rxe.server, ["nginx", "-p", "/tmp", "-c", "/tmp/nginx.conf", "-e", "/tmp/nginx-error.log"],
                          "nginx-server")
    gets = [word for i in range(2) for word in ("-o", f"/tmp/got{i}", f"http://{rxe.server.address}:8080/{file.name}")]

    def get():
        rxe.client.run(["curl", "-sS", "--fail", "--limit-rate", "1M", *gets], env=env("nginx-client", VMA_SPEC="latency"),
                       timeout=rxe_lib.LIMIT)
        for i in range(2):
            rxe.client.run(["cmp", f"/tmp/got{i}", file])
    until_accelerated(rxe, "nginx", get)
    server.stop(number=signal.SIGQUIT)


@pytest.mark.parametrize("role", SIDES)
def test_one_side_without_the_library(rxe, role):
    """The other tries, is refused, and goes on."""
    count = 6 << 20
    name = f"alone-{role}"
    run = Streams(rxe, count=count, envs={side: env(name) if side == role else None for side in SIDES})
    for side in SIDES:
        assert run.ends(side, "received") == (count, "end")
    said = log(getattr(rxe, role), name)
    assert "not accelerated: no accelerated peer" in said and "WARNING" not in said, said


def test_off_unless_asked_for(rxe):
    count = 1 << 20
    run = Streams(rxe, count=count, envs={side: rxe_lib.preload_env(f"off-{side}") for side in SIDES})
    for guest in rxe.guests:
        assert run.ends(guest.role, "received") == (count, "end")
        assert "not accelerated: the peer is on another host" in log(guest, f"off-{guest.role}")


@pytest.mark.parametrize("device, said", [(None, "accelerated: device local"), (rxe_lib.DOMAIN, "is it excluded by")],
                         ids=["any device", "rxe0 only"])
def test_connections_of_one_host_open_no_rdma_device(rxe, device, said):
    """Not even rdma-core is loaded, whichever devices are admitted."""
    name = f"one-host-{device}"
    more = {"FI_VMA_DEVICE": device} if device else {}
    envs = {side: env(f"{name}-{side}", **more) for side in SIDES}
    run = Streams(rxe, address="127.0.0.1", envs=envs, client_in=rxe.server)
    run.wait_for_log("client", said)
    loaded = rxe.server.run("cat /proc/[0-9]*/maps")
    assert "libvma-fi.so" in loaded
    assert not re.findall(r"\S*lib(?:ibverbs|rdmacm)\S*", loaded)


def assert_reset(run, role):
    """Who receives is told, whatever the thread that sends was told before: an end would say that nothing is missing."""
    assert run.ends(role, "received")[1] == "ECONNRESET", (run.ends(role, "sent"), run.log(role))


@pytest.mark.parametrize("killed, other", [SIDES, SIDES[::-1]])
def test_kill(rxe, killed, other):
    run = Streams(rxe)
    run.wait_for_logs(ACCELERATED)
    run.wait_by_device(other)
    getattr(run, killed).kill()
    assert_reset(run, other)
    took = getattr(run, other).ended - getattr(run, killed).ended
    print(f"seen after {took:.2f} s")
    assert took < 60  # told at all, and not by a time-out of the kernel's; on an idle machine it is a fifth of a second


@pytest.mark.parametrize("role", SIDES)
def test_device_is_removed(broken, role):
    """Both hear of it, and no byte that was read is wrong."""
    run = Streams(broken)
    run.wait_for_logs(ACCELERATED)
    for side in SIDES:
        run.wait_by_device(side)
    getattr(broken, role).rdma_delete()
    for side in SIDES:
        assert_reset(run, side)
    assert "connection reset" in run.log(role)
