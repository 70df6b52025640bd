# SPDX-License-Identifier: BSD-2-Clause
"""What vma_lat says of the way that its messages went: both sides of it, for themselves and for each other; and if it was the kernel's, why."""

import dataclasses
import json
import os
import re
import signal

import pytest

from lib import netns, vmastats
from lib.users import become, only_root
from lib.vmalat import program

MYSELF, NOBODY, WWW = os.geteuid(), 65534, 33
FAR = "10.99.0.2"
NOT_LOADED = "libvma.so is not loaded"
NO_LIBRARY = "the other side has no library"


@dataclasses.dataclass
class End:
    library: bool = True
    user: int = MYSELF
    host: netns.Host | None = None
    env: dict[str, str] = dataclasses.field(default_factory=dict)

    def early(self):
        """The provider is there before the first message, as 2000 of them are over before it would be loaded beside them."""
        return dataclasses.replace(self, env=self.env | {"VMA_LIFT_AFTER": "1"})


@dataclasses.dataclass
class Ends:
    """What both said, and the results of the client: `tests`, one a transport."""
    server: str
    client: str
    tests: list

    def ways(self, test=0):
        """Of a test: the server's, as the client has them, and the client's own."""
        return self.tests[test]["servers"][0]["ways"], self.tests[test]["client"]["ways"]


@pytest.fixture
def measure(run, work, port):
    """measure(server, client, *options): a run with 2000 messages, or one that is interrupted once `until` holds for a socket of each."""
    work.chmod(0o755)

    def start(name, end, argv):
        names = work / f"names-{end.user}"
        if not names.exists():
            names.mkdir(mode=0o700)
            os.chown(names, end.user, end.user)
        changed = become(end.user, end.host) if end.user != MYSELF or end.host else None
        return run.start(name, [program(), *argv], vma=end.library, env={"VMA_SHM_DIR": str(names), **end.env}, preexec=changed)

    def both(server, client, *options, to="127.0.0.1", until=None):
        out = run.log_dir / "result.json"
        limit = ["--count", 2000] if until is None else ["--duration", 600]
        serves = start("server", server, ["server", "--clients", 1, "--port", port]).wait_output("listens at")
        asks = start("client", client, ["client", "--port", port, "--json", out, "--wait", "poll", *limit, *options, to])
        if until is not None:
            asks.may_fail = True
            for end, proc in (server, serves), (client, asks):
                if end.library:
                    vmastats.wait_for(run, proc, lambda one: port not in ports_of(one) and until(one), "a socket of the test")
            asks.send_signal(signal.SIGINT)
        assert asks.wait() == (0 if until is None else 5), asks.output()
        serves.ok()
        return Ends(serves.stdout(), asks.stdout(), json.loads(out.read_text())["tests"])

    return both


def ports_of(socket):
    return {socket[side]["port"] for side in ("local", "peer") if side in socket}


def said(text):
    """The ways that a side has printed: its own, and as the client those of the server."""
    return re.findall(r"^( +)way: (.*)$", text, re.M)


def one_way(ways):
    (way,) = ways
    return {name: way[name] for name in ("sockets", "way", "peer_user", "introduced", "reason")}


def kernel(reason, sockets=1):
    return {"sockets": sockets, "way": "kernel", "peer_user": None, "introduced": False, "reason": reason}


def local(peer_user=None, introduced=False):
    return {"sockets": 1, "way": "local", "peer_user": peer_user, "introduced": introduced, "reason": ""}


@pytest.mark.parametrize("server_has, client_has", [(True, True), (True, False), (False, True), (False, False)], ids=str)
def test_with_and_without_the_library(measure, server_has, client_has):
    ends = measure(End(library=server_has).early(), End(library=client_has).early(), "--tcp", "--udp", "--warm-up", 300)
    for number, test in enumerate(ends.tests):
        assert test["servers"][0]["library"] == server_has and test["client"]["library"] == client_has
        for has, ways in zip((server_has, client_has), ends.ways(number)):
            if server_has and client_has:
                assert one_way(ways) == local() and ways[0]["device"] == "local"
                assert 0 < ways[0]["kernel_bytes"] < ways[0]["bytes"] == 2 * 64 * 2300
            else:
                assert one_way(ways) == kernel(NO_LIBRARY if has else NOT_LOADED)
    own = {(True, True): "shared memory (same user), ", (True, False): f"kernel: {NO_LIBRARY}"}
    wanted = [own.get((has, other), f"kernel: {NOT_LOADED}") for has, other in ((server_has, client_has), (client_has, server_has))]
    for text, begins in (ends.server, [("  ", wanted[0])] * 2), (ends.client, [("  ", wanted[1]), ("    ", wanted[0])] * 2):
        lines = said(text)
        assert [indent for indent, _ in lines] == [indent for indent, _ in begins], text
        assert all(line.startswith(begin) for (_, line), (_, begin) in zip(lines, begins)), text


@pytest.mark.parametrize("kind", ["tcp", "udp"])
@pytest.mark.parametrize("test, to", [("throughput", "127.0.0.1"), ("under-load", "127.0.0.1"), ("ping-pong", "::1")])
def test_other_loads_and_several_sockets(measure, kind, test, to):
    ends = measure(End().early(), End().early(), f"--{kind}", "--test", test, "--sockets", 3, to=to)
    for ways in ends.ways():
        assert [(way["way"], way["sockets"]) for way in ways] == [("local", 3)]


def test_few_messages(measure):
    ends = measure(End(), End(), "--tcp", "--count", 3, "--warm-up", 0)
    for ways in ends.ways():
        assert one_way(ways) == kernel("6 sends and receives, VMA_LIFT_AFTER is 32")


def test_a_rule_keeps_it(run, measure):
    run.rules.write_text("use os tcp_client *:*:127.0.0.1:*\n")
    server, client = measure(End(), End(), "--tcp").ways()
    assert one_way(client) == kernel("a rule of libvma.conf says os")
    assert one_way(server)["way"] == "kernel"


def test_without_statistics(measure):
    """There is nobody to ask: neither way is claimed."""
    ends = measure(End(env={"VMA_STATS_SHMEM_DIR": ""}).early(), End().early(), "--tcp")
    server, client = ends.ways()
    assert one_way(client) == local()
    assert (server[0]["way"], server[0]["sockets"]) == ("unknown", 1) and "VMA_STATS_SHMEM_DIR" in server[0]["reason"]
    assert ends.tests[0]["servers"][0]["library"]


def test_more_sockets_than_records(measure):
    server, client = measure(End(env={"VMA_STATS_FD_NUM": "3"}).early(), End().early(), "--tcp", "--sockets", 5).ways()
    assert sum(way["sockets"] for way in server) == 5
    assert any(way["way"] == "unknown" and "no record" in way["reason"] for way in server)
    assert [(way["way"], way["sockets"]) for way in client] == [("local", 5)]


def test_statistics_elsewhere(work, measure):
    """The library says itself where they are."""
    folder = work / "else where"
    folder.mkdir()
    for ways in measure(*[End(env={"VMA_STATS_SHMEM_DIR": str(folder)}).early()] * 2, "--tcp").ways():
        assert one_way(ways) == local()


def test_endpoints_have_no_way(serve, client):
    """Their provider is what carries them."""
    serve()
    proc, result = client("--fabric", "msg", "--count", 100)
    assert result["tests"][0]["client"]["ways"] == result["tests"][0]["servers"][0]["ways"] == []
    assert not said(proc.stdout())


# ---- two users ---------------------------------------------------------------------------------------------------------


@only_root
def test_two_users(measure):
    ends = measure(End(user=WWW), End(user=NOBODY), "--tcp", until=lambda one: one["offloaded"])
    server, client = ends.ways()
    assert one_way(server) == local(NOBODY) and one_way(client) == local(WWW)
    assert [line.split(",")[0] for _, line in said(ends.client)] == [f"shared memory with user {WWW}", f"shared memory with user {NOBODY}"]


@only_root
def test_datagrams_of_two_users(measure):
    for ways in measure(End(user=WWW), End(user=NOBODY), "--udp").ways():
        assert one_way(ways) == kernel("datagrams to another user go by the kernel")


@only_root
def test_another_user_without_the_library(measure):
    server, client = measure(End(user=WWW, library=False), End(user=NOBODY), "--tcp").ways()
    assert one_way(server) == kernel(NOT_LOADED)
    assert one_way(client) == {**kernel(NO_LIBRARY), "peer_user": WWW}


# ---- two network namespaces --------------------------------------------------------------------------------------------


@pytest.fixture
def ends(hosts, vmad):
    """ends(...): one in each of two network namespaces, with vmad to introduce them."""
    vmad.path.chmod(0o666)
    told = {"VMA_BROKER": str(vmad.path)}

    def of(server_user=MYSELF, client_user=MYSELF, server_has=True):
        return End(user=server_user, host=hosts.right, env=told, library=server_has), End(user=client_user, host=hosts.left, env=told)
    return of


def test_two_namespaces(measure, ends):
    done = measure(*ends(), "--tcp", to=FAR, until=lambda one: one["offloaded"])
    for ways in done.ways():
        assert one_way(ways) == local(introduced=True)
    assert said(done.client)[0][1].startswith("shared memory across network namespaces, introduced by vmad")


@pytest.mark.parametrize("rules", [f"broker allow user {WWW} with user {NOBODY}"])
def test_two_users_in_two_namespaces(measure, ends):
    done = measure(*ends(WWW, NOBODY), "--tcp", to=FAR, until=lambda one: one["offloaded"])
    server, client = done.ways()
    assert one_way(server) == local(NOBODY, True) and one_way(client) == local(WWW, True)


def test_rules_keep_them_apart(measure, ends):
    reason = "vmad's rules keep the two processes apart"
    for ways in measure(*ends(WWW, NOBODY), "--tcp", to=FAR, until=lambda one: one["reason"] == reason).ways():
        assert one_way(ways) == kernel(reason)


@pytest.mark.parametrize("patience", [50])
def test_another_namespace_without_the_library(measure, ends):
    done = measure(*ends(server_has=False), "--tcp", to=FAR, until=lambda one: one["reason"].startswith("vmad introduced nobody"))
    server, client = done.ways()
    assert one_way(server) == kernel(NOT_LOADED) and one_way(client) == kernel(NO_LIBRARY)


def test_datagrams_of_two_namespaces(measure, ends):
    for ways in measure(*ends(), "--udp", to=FAR).ways():
        assert one_way(ways) == kernel("datagrams to another network namespace go by the kernel")


def test_vmad_does_not_run(work, measure, hosts):
    told = {"VMA_BROKER": str(work / "none")}
    for ways in measure(End(host=hosts.right, env=told), End(host=hosts.left, env=told), "--tcp", to=FAR).ways():
        assert one_way(ways) == kernel("the peer is on another host, or in another network namespace (vmad: not running)")
