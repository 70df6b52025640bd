# SPDX-License-Identifier: BSD-2-Clause
"""Connections between network namespaces, as of two containers: vmad introduces their ends, and then they are as accelerated as others are."""

import os
import pathlib
import signal
import subprocess

import pytest

from lib import build, vmastats
from lib.users import become

PROGRAM = pathlib.Path(__file__).parent.parent / "sockets/programs/users.py"
PYTHON = "/usr/bin/python3"
PORT = 7100
SERVER = "10.99.0.2"
INTRODUCED = "introduced by vmad"


@pytest.fixture
def ends(run, work, vmad, hosts, feed):
    """ends(...): a server in one namespace, and a client in the other that asks until it is told to end."""
    def start(server_user=0, client_user=0, server_has=True, client_has=True, lift=True, to=(SERVER, PORT)):
        vmad.path.chmod(0o666)
        made = []
        for name, user, host, has, args in (("server", server_user, hosts.right, server_has, ["serve", SERVER, PORT]),
                                            ("client", client_user, hosts.left, client_has, ["ask", *to])):
            names = work / f"names-{name}"
            names.mkdir(mode=0o700)
            os.chown(names, user, user)
            env = {"VMA_SHM_DIR": str(names), "VMA_BROKER": str(vmad.path), **({"FABTEST_LIFT": "1"} if lift and name == "client" else {})}
            made.append(run.start(name, [PYTHON, "-B", PROGRAM, *args], vma=has, mode="latency", preexec=become(user, host), env=env,
                                  stdin=feed.file if name == "client" else None))
            if name == "server":
                made[0].wait_output("ready")
        return made
    return start


def accelerated(run, feed, server, client):
    for proc in server, client:
        run.wait_until(lambda proc=proc: proc.log().accelerated(PORT) > 0 or not proc.alive(), f"{proc.name} to be accelerated")
    feed.go_on()
    for proc in client, server:
        assert proc.ok().log().accelerated(PORT) > 0, proc.log().not_accelerated()
        assert any(INTRODUCED in line for line in proc.log().lines)


def test_two_namespaces(run, ends, feed):
    accelerated(run, feed, *ends())


def test_what_is_seen_of_it(run, ends, feed):
    """vma_stats tells an introduced connection from others."""
    server, client = ends()
    for proc in server, client:
        vmastats.wait_for(run, proc, lambda one: one["offloaded"] and one["introduced"], "an introduced connection")
    accelerated(run, feed, server, client)


@pytest.mark.parametrize("rules", ["broker allow user www-data with user nobody port 7100"])
def test_two_users_that_may(run, ends, feed):
    server, client = ends(server_user=33, client_user=65534)
    accelerated(run, feed, server, client)
    assert any("the peer is user 33's, introduced" in line for line in client.log().lines)


def test_two_users_that_nobody_has_let(run, ends, feed):
    both = ends(server_user=33, client_user=65534)
    for proc in both:
        vmastats.wait_for(run, proc, lambda one: one["reason"] == "vmad's rules keep the two processes apart", "vmad's answer")
    feed.go_on()
    for proc in reversed(both):
        assert proc.ok().log().accelerated(PORT) == 0


def test_rules_are_read_again(run, vmad, ends, feed):
    """By SIGHUP: wrong ones change nothing, right ones hold for the next who ask."""
    said = [f"{vmad.config}:2", "the rules were read again: 1"]
    for text, line in zip(["broker deny user root with user root\nbroker nonsense\n", "broker allow user www-data with user nobody\n"], said):
        vmad.config.write_text(text)
        vmad.proc.send_signal(signal.SIGHUP)
        run.wait_until(lambda line=line: line in vmad.proc.output(), "vmad to read its rules", proc=vmad.proc)
    assert f"the rules stay as they were: {vmad.config}:2" in vmad.proc.output()
    accelerated(run, feed, *ends(server_user=33, client_user=65534))


@pytest.mark.parametrize("patience", [50])
@pytest.mark.parametrize("who", ["server", "client"])
def test_the_library_on_one_side(ends, who):
    server, client = ends(server_has=who == "server", client_has=who == "client", lift=False)
    client.ok()
    server.ok()
    for proc in server, client:
        assert proc.log().accelerated(PORT) == 0


@pytest.mark.parametrize("patience", [50])
@pytest.mark.parametrize("who", ["server", "client"])
def test_why_not_is_seen(run, ends, feed, who):
    """vma_stats says that the other side did not come to vmad."""
    both = ends(server_has=who == "server", client_has=who == "client")
    vmastats.wait_for(run, both[0 if who == "server" else 1], lambda one: one["reason"].startswith("vmad introduced nobody"), "the reason")
    feed.go_on()
    for proc in reversed(both):
        proc.ok()


def test_a_published_port(run, ends, hosts, feed):
    """Both addresses are others at each end, and the port."""
    rules = f"""table ip published {{
        chain in {{ type nat hook prerouting priority -100; tcp dport 80 dnat to {SERVER}:{PORT}; }}
    }}"""
    hosts.right.ip("addr", "add", "10.98.0.1/32", "dev", "lo")
    hosts.left.ip("route", "add", "10.98.0.1/32", "dev", "wire")
    done = subprocess.run(["ip", "netns", "exec", hosts.right.name, build.tool("nft"), "-f", "-"], input=rules, text=True, capture_output=True,
                          check=False)
    if done.returncode:
        pytest.skip(f"this kernel translates no addresses: {done.stderr.splitlines()[0]}")
    server, client = ends(to=("10.98.0.1", 80))
    run.wait_until(lambda: client.log().accelerated(80) > 0 and server.log().accelerated(PORT) > 0 or not client.alive(), "both to be accelerated")
    feed.go_on()
    client.ok()
    server.ok()
    assert client.log().accelerated(80) > 0, client.log().not_accelerated()


def test_vmad_is_killed(run, vmad, ends, feed):
    """What it has introduced is none of its business any more."""
    server, client = ends()
    for proc in server, client:
        run.wait_until(lambda proc=proc: proc.log().accelerated(PORT) > 0 or not proc.alive(), f"{proc.name} to be accelerated")
    vmad.kill()
    vmad.stopped = True
    feed.go_on()
    client.ok()
    server.ok()


AGAIN_AND_AGAIN = f"""
import sys
sys.path.insert(0, {str(PROGRAM.parent)!r})
import users
while not users.is_told():
    with users.connected({SERVER!r}, {PORT}) as sock:
        users.ask_all(sock, users.LINES)
with users.connected({SERVER!r}, {PORT}) as sock:
    sock.sendall(b"last")
    users.exactly(sock, 4)
"""


def test_vmad_comes_and_goes(run, work, vmad, hosts, feed):
    """Of two processes that outlive it, twice: their connections are introduced while it runs."""
    names = work / "names"
    names.mkdir(mode=0o700)
    env = {"VMA_SHM_DIR": str(names), "VMA_BROKER": str(vmad.path)}

    def without():
        return sum("(vmad: not running)" in line for line in client.log().lines)

    def wait_for_more(count, what):
        before = count()
        run.wait_until(lambda: count() > before or not client.alive(), what)

    vmad.kill()
    server = run.start("server", [PYTHON, "-B", PROGRAM, "serve", SERVER, PORT], vma=True, mode="latency", preexec=become(0, hosts.right),
                       env=env).wait_output("ready")
    client = run.start("client", [PYTHON, "-B", "-c", AGAIN_AND_AGAIN], vma=True, mode="latency", preexec=become(0, hosts.left), env=env,
                       stdin=feed.file)
    for _ in range(2):
        wait_for_more(without, "a connection without vmad")
        vmad.start()
        for proc in server, client:
            wait_for_more(lambda proc=proc: proc.log().accelerated(PORT), f"{proc.name} to be accelerated")
        vmad.kill()
    vmad.stopped = True
    feed.go_on()
    client.ok()
    server.ok()


DEFERRED = f"""
import socket
import sys
sys.path.insert(0, {str(PROGRAM.parent)!r})
import users
with socket.create_server(({SERVER!r}, {PORT})) as listener:
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 60)
    print("ready", flush=True)
    with listener.accept()[0] as sock:
        while data := sock.recv(65536):
            sock.sendall(data)
"""
BEFORE_ITS_SERVER = f"""
import socket
import sys
sys.path.insert(0, {str(PROGRAM.parent)!r})
import users
with users.connected({SERVER!r}, {PORT}) as sock:
    for number in range(64):
        sock.send(users.line(number), socket.MSG_MORE)
    for number in range(64):
        assert users.exactly(sock, 16) == users.line(number)
    while not users.is_told():
        users.ask_all(sock, users.LINES // 10)
"""


def test_asked_before_the_other_end_is_there(run, work, vmad, hosts, feed):
    """The server's kernel has no connection before data comes (TCP_DEFER_ACCEPT), and the client's keeps data for 0.2 s (MSG_MORE). So
    vmad, when it is asked, knows of no other end, as on a machine that is late with packets. That isn't the last word."""
    names = work / "names"
    names.mkdir(mode=0o700)
    env = {"VMA_SHM_DIR": str(names), "VMA_BROKER": str(vmad.path)}
    server = run.start("server", [PYTHON, "-B", "-c", DEFERRED], vma=True, mode="latency", preexec=become(0, hosts.right), env=env)
    server.wait_output("ready")
    client = run.start("client", [PYTHON, "-B", "-c", BEFORE_ITS_SERVER], vma=True, mode="latency", preexec=become(0, hosts.left), env=env,
                       stdin=feed.file)
    for proc in client, server:
        one = vmastats.wait_for(run, proc, lambda one: one["offloaded"] or "another host" in one["reason"], "its way")
        assert one["offloaded"], one["reason"]
    accelerated(run, feed, server, client)


MANY = f"""
import sys
sys.path.insert(0, {str(PROGRAM.parent)!r})
import users
socks = [users.connected({SERVER!r}, {PORT}) for _ in range(50)]
number = 0
while not users.is_told():
    for sock in socks:
        sock.sendall(users.line(number))
    for sock in socks:
        assert users.exactly(sock, 16) == users.line(number)
    number += 1
socks[0].sendall(b"last")
"""


def test_many_at_once(run, work, vmad, hosts, feed):
    """As many as a pool has that is opened at once: none waits for others."""
    names = work / "names"
    names.mkdir(mode=0o700)
    env = {"VMA_SHM_DIR": str(names), "VMA_BROKER": str(vmad.path)}
    server = run.start("server", [PYTHON, "-B", PROGRAM, "crowd", SERVER, PORT], vma=True, mode="latency", preexec=become(0, hosts.right), env=env)
    server.wait_output("ready")
    client = run.start("client", [PYTHON, "-B", "-c", MANY], vma=True, mode="latency", preexec=become(0, hosts.left), env=env, stdin=feed.file)
    def accelerated():
        ours = [one for one in vmastats.read(run, client)["sockets"] if one["offloaded"]] if vmastats.file_of(run, client).exists() else []
        return ours if len(ours) == 50 else None
    all_of_them = run.wait_until(accelerated, "all connections to be accelerated", proc=client)
    feed.go_on()
    client.ok()
    server.ok()
    assert max(one["tx"]["os_packets"] for one in all_of_them) < 2000, "some waited while others went on"


def test_there_is_no_vmad(run, work, hosts, feed):
    server = run.start("server", [PYTHON, "-B", PROGRAM, "serve", SERVER, PORT], vma=True, mode="latency", preexec=become(0, hosts.right),
                       env={"VMA_BROKER": str(work / "none")}).wait_output("ready")
    client = run.start("client", [PYTHON, "-B", PROGRAM, "ask", SERVER, PORT], vma=True, mode="latency", preexec=become(0, hosts.left),
                       env={"VMA_BROKER": str(work / "none")}).ok()
    server.ok()
    assert client.log().accelerated(PORT) == 0
    assert any("the peer is on another host, or in another network namespace (vmad: not running)" in line for line in client.log().lines)


def test_redis(run, work, vmad, hosts):
    names = work / "names"
    names.mkdir(mode=0o700)
    env = {"VMA_SHM_DIR": str(names), "VMA_BROKER": str(vmad.path)}
    server = run.start("server", [build.tool("redis-server"), "--port", PORT, "--bind", SERVER, "--save", "", "--protected-mode", "no"], vma=True,
                       preexec=become(0, hosts.right), env=env, cwd=work).wait_output("Ready to accept")
    for requests in 40000, 160000, 640000:  # a busy machine introduces the ends of short runs too late
        client = run.start("client", [build.tool("redis-benchmark"), "-h", SERVER, "-p", PORT, "-c", 20, "-n", requests, "-t", "set,get",
                                      "-d", 1000], vma=True, preexec=become(0, hosts.left), env=env).ok()
        if min(client.log().accelerated(PORT), server.log().accelerated(PORT)) >= 20:
            break
    server.stop()
    assert client.log().accelerated(PORT) >= 20 and server.log().accelerated(PORT) >= 20, client.log().not_accelerated()
