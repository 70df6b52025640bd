# SPDX-License-Identifier: BSD-2-Clause
"""Connections between processes of different users (doc/trust.md): they are accelerated without a daemon and without a privilege, whoever has
which role; nobody else can be in the way of more than the connection whose names he takes; where the kernel's words don't fit together the
connection stays with it, and the log says why."""

import os
import pathlib
import re

import pytest

from lib import build, expect, netns, nginx, ports, vmastats
from lib.users import Input, become, only_root

PROGRAM = pathlib.Path(__file__).parent / "programs/users.py"
PYTHON = "/usr/bin/python3"
ROOT, SERVER, CLIENT, THIRD = 0, 33, 65534, 4242
ADDRESSES = {"v4": "127.0.0.1", "v6": "::1"}

pytestmark = only_root


@pytest.fixture
def place(work):
    """A directory of names for each user."""
    work.chmod(0o755)

    def of(user):
        folder = work / f"names-{user}"
        if not folder.exists():
            folder.mkdir(mode=0o700)
            os.chown(folder, user, user)
        return {"VMA_SHM_DIR": str(folder)}
    return of


@pytest.fixture
def start(run, place):
    def begin(name, user, *args, env=None, host=None, **more):
        more.setdefault("mode", "latency")
        more.setdefault("vma", True)
        return run.start(name, [PYTHON, "-B", PROGRAM, *args], preexec=become(user, host), env={**place(user), **(env or {})}, **more)
    return begin


LIFT = {"FABTEST_LIFT": "1"}  # asks until it is told that both ends are accelerated


@pytest.fixture
def inputs():
    made = [Input(), Input()]
    yield made
    for one in made:
        one.close()


@pytest.fixture
def accelerated(run, inputs):
    """Waits for both ends, tells the client to end, and for their ends."""
    def wait(server, client, port):
        for proc in server, client:
            run.wait_until(lambda proc=proc: proc.log().accelerated(port) > 0 or not proc.alive(), f"{proc.name} to be accelerated")
        inputs[0].go_on()
        for proc in client, server:
            assert proc.ok().log().accelerated(port) > 0, proc.log().not_accelerated()
    return wait


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("server_user, client_user", [(SERVER, CLIENT), (ROOT, CLIENT), (SERVER, ROOT)], ids=str)
def test_two_users(start, port, inputs, accelerated, server_user, client_user, address):
    server = start("server", server_user, "serve", ADDRESSES[address], port).wait_output("ready")
    client = start("client", client_user, "ask", ADDRESSES[address], port, env=LIFT, stdin=inputs[0].file)
    accelerated(server, client, port)
    for proc, other in (server, client_user), (client, server_user):
        assert any(f"the peer is user {other}'s" in text for text in proc.log().lines)


@pytest.mark.parametrize("mode", ["default"])
def test_without_asking_for_latency(start, port, inputs, accelerated, mode):
    server = start("server", SERVER, "serve", "127.0.0.1", port, mode=mode).wait_output("ready")
    accelerated(server, start("client", CLIENT, "ask", "127.0.0.1", port, env=LIFT, mode=mode, stdin=inputs[0].file), port)


@pytest.mark.parametrize("client_user", [SERVER, CLIENT], ids=["one", "two"])
def test_two_addresses_of_one_host(start, inputs, accelerated, client_user):
    """The kernel knows that both are here, as the other end is."""
    host = netns.made(netns.Host)
    try:
        for address in "192.0.2.1", "192.0.2.2":
            host.ip("addr", "add", f"{address}/32", "dev", "lo")
        server = start("server", SERVER, "serve", "192.0.2.2", 7100, host=host).wait_output("ready")
        accelerated(server, start("client", client_user, "ask", "192.0.2.2", 7100, "192.0.2.1", env=LIFT, host=host, stdin=inputs[0].file), 7100)
    finally:
        host.remove()


def test_what_is_seen_of_it(run, start, port, inputs, accelerated):
    """vma_stats says whose the other end is, and why a connection is not accelerated."""
    server = start("server", SERVER, "serve", "127.0.0.1", port).wait_output("ready")
    client = start("client", CLIENT, "ask", "127.0.0.1", port, env=LIFT, stdin=inputs[0].file)
    vmastats.wait_for(run, server, lambda one: one["offloaded"] and one.get("peer_user") == CLIENT, "the user of the other end")
    accelerated(server, client, port)


@pytest.mark.parametrize("taken", [1, 7, 8])
def test_somebody_has_the_names(run, start, port, inputs, accelerated, taken):
    """A third user takes them in time: as long as one is left the ends meet, past those who don't listen and listeners that are not who they
    should be. Who takes all keeps them apart as long as he has them."""
    server = start("server", SERVER, "serve", "127.0.0.1", port).wait_output("ready")
    client = start("client", CLIENT, "slow", "127.0.0.1", port, env=LIFT, stdin=inputs[0].file)
    names = run.wait_until(lambda: re.search(r"names (.*)\n", client.stdout()), "the names", proc=client)[1].split()
    thief = start("thief", THIRD, "hold", *names[:taken], vma=False, stdin=inputs[1].file).wait_output("holds")
    inputs[0].go_on()
    if taken == len(names):
        reason = "another user has taken the names by which the peer would find us"
        vmastats.wait_for(run, client, lambda one: one["reason"] == reason, "the reason")
        assert server.log().accelerated(port) == 0
        inputs[1].go_on()
    accelerated(server, client, port)
    inputs[1].go_on()
    thief.ok()


@pytest.fixture
def two_processors():
    """As somebody takes names for each."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("two_processors")
def test_somebody_has_the_names_of_those_to_come(start, port, inputs, accelerated):
    """What can be known of a connection before it is there is not enough for its names."""
    server = start("server", SERVER, "serve", "127.0.0.1", port).wait_output("ready")
    thief = start("thief", THIRD, "ahead", port, vma=False, stdin=inputs[1].file).wait_output("holds")
    accelerated(server, start("client", CLIENT, "ask", "127.0.0.1", port, env=LIFT, stdin=inputs[0].file), port)
    inputs[1].go_on()
    thief.ok()


def test_somebody_has_many_who_do_not_answer(run, start, port, inputs, accelerated):
    """One user's connections, renewed all the time, leave a place for another's: one of its first attempts, which are ever more calls apart."""
    server = start("server", SERVER, "crowd", "127.0.0.1", port).wait_output("ready")
    filler = start("filler", THIRD, "fill", "127.0.0.1", port, vma=False, stdin=inputs[1].file).wait_output("holds")
    run.wait_until(lambda: any("too many meetings at a time" in text for text in server.log().lines), "one to be refused", proc=filler)
    client = start("client", CLIENT, "ask", "127.0.0.1", port, env=LIFT, stdin=inputs[0].file)
    for proc in server, client:
        run.wait_until(lambda proc=proc: proc.log().accelerated(port) > 0, f"{proc.name} to be accelerated", proc=client)
    calls = [re.search(r": accelerated: .* after (\d+) sends", text) for text in client.log().lines]
    assert [match for match in calls if match and int(match[1]) < 1000], client.log().lines
    inputs[1].go_on()
    filler.ok()
    accelerated(server, client, port)


def test_the_library_on_one_side(start, port):
    """Nobody comes to the meeting: the connection stays with the kernel, and nothing is left open."""
    for with_it in "server", "client":
        server = start("server", SERVER, "serve", "127.0.0.1", port, vma=with_it == "server").wait_output("ready")
        client = start("client", CLIENT, "ask", "127.0.0.1", port, vma=with_it == "client")
        client.ok()
        server.ok()
        for proc in server, client:
            assert proc.log().accelerated(port) == 0


def test_switched_off(start, port):
    server = start("server", SERVER, "serve", "127.0.0.1", port).wait_output("ready")
    client = start("client", CLIENT, "ask", "127.0.0.1", port, env={"VMA_OTHER_USERS": "0"}).ok()
    server.ok()
    assert client.log().accelerated(port) == server.log().accelerated(port) == 0
    assert any("VMA_OTHER_USERS=0" in text for text in client.log().lines)


def test_peek(start, port):
    """What was looked at is what is read: the bytes of another user's ring could change in between, so they are the kernel's from then on."""
    server = start("server", SERVER, "serve", "127.0.0.1", port).wait_output("ready")
    start("client", CLIENT, "peek", "127.0.0.1", port).ok()
    server.ok()


@pytest.mark.parametrize("victim", ["server", "client"])
def test_one_is_killed(run, start, port, inputs, victim):
    server = start("server", SERVER, "serve", "127.0.0.1", port).wait_output("ready")
    client = start("client", CLIENT, "ask", "127.0.0.1", port, env=LIFT, stdin=inputs[0].file)
    run.wait_until(lambda: server.log().accelerated(port) > 0, "it to be accelerated")
    killed, other = (server, client) if victim == "server" else (client, server)
    killed.kill()
    if other is server:
        start("again", CLIENT, "ask", "127.0.0.1", port).ok()
        server.ok()
    else:
        client.fails()  # it is told of the end


def test_a_socket_that_was_made_before(run, place, port):
    """Of a process that becomes another user after it made its socket nobody can tell whose it is: SO_PEERCRED says the new user, the kernel's
    list of sockets the old one."""
    script = f"""import os, sys, socket
sys.path.insert(0, {str(PROGRAM.parent)!r})
import users
with socket.socket() as sock:
    os.setresuid({CLIENT}, {CLIENT}, {CLIENT})
    sock.settimeout(users.PATIENCE)
    sock.connect(("127.0.0.1", {port}))
    users.ask_all(sock, 500)
    sock.sendall(b"last")
    users.exactly(sock, 4)
"""
    server = run.start("server", [PYTHON, "-B", PROGRAM, "serve", "127.0.0.1", port], preexec=become(SERVER), env=place(SERVER), vma=True,
                       mode="latency").wait_output("ready")
    client = run.start("client", [PYTHON, "-B", "-c", script], env=place(CLIENT), vma=True, mode="latency").ok()
    server.ok()
    assert client.log().accelerated(port) == 0
    assert any("made by another user" in text for text in client.log().lines), client.log().not_accelerated()


def test_users_that_have_no_number(start, port, run, place):
    """In a user namespace that knows only one user all others are one: its number says nothing, and the connection stays with the kernel."""
    server = start("server", SERVER, "serve", "127.0.0.1", port).wait_output("ready")
    client = run.start("client", ["unshare", "--user", PYTHON, "-B", PROGRAM, "ask", "127.0.0.1", port], preexec=become(CLIENT), env=place(CLIENT),
                       vma=True, mode="latency").ok()
    server.ok()
    assert client.log().accelerated(port) == server.log().accelerated(port) == 0


# ---- programs as their packages start them ----------------------------------------------------------------------------

CONNECTIONS = 20


def all_accelerated(server, client, port):
    """Each of the client's connections, as both ends see it."""
    return all(proc.log().accelerated(port) >= CONNECTIONS for proc in (client, server))


def test_redis(run, place, port):
    server = run.start("server", [build.tool("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", "/"],
                       preexec=become(SERVER), env=place(SERVER), vma=True)
    run.wait_port(port, server)

    def ask(seconds):
        load = [build.tool("redis-benchmark"), "-p", port, "-c", CONNECTIONS, "-n", 40000 * seconds, "-t", "set,get", "-d", 1000]
        client = run.start("client", load, preexec=become(CLIENT), env=place(CLIENT), vma=True).ok()
        return all_accelerated(server, client, port)
    expect.in_time(run, ask, "all to be accelerated", server)
    server.stop()


def test_nginx(run, work, place, port):
    """The master is root, who listens; its workers are another user, who accepts."""
    root = work / "www"
    root.mkdir()
    (root / "file").write_bytes(os.urandom(20000))
    for folder in work, root:
        folder.chmod(0o755)
    server = run.start("server", nginx.command(work, f"127.0.0.1:{port}", root, workers=2, user="www-data"), vma=True,
                       env={"VMA_SHM_DIR": ""})
    run.wait_port(port, server)

    def ask(seconds):
        client = run.start("client", [build.tool("wrk"), "-t", 1, "-c", CONNECTIONS, "-d", seconds, f"http://127.0.0.1:{port}/file"],
                           preexec=become(CLIENT), env=place(CLIENT), vma=True).ok()
        assert "Non-2xx" not in client.stdout()
        return all_accelerated(server, client, port)
    expect.in_time(run, ask, "all to be accelerated", server)
    nginx.end(run, server)


def test_memcached(run, place, port):
    """Started by root, and another user from then on."""
    server = run.start("server", [build.tool("memcached"), "-u", "www-data", "-l", "127.0.0.1", "-p", port, "-U", 0], vma=True,
                       env={"VMA_SHM_DIR": ""})
    run.wait_port(port, server)
    script = f"""import select, socket, sys
with socket.create_connection(("127.0.0.1", {port})) as sock:
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        number = (number + 1) % 10000
        sock.sendall(b"set key 0 0 4\\r\\n%04d\\r\\nget key\\r\\n" % number)
        wanted = b"STORED\\r\\nVALUE key 0 4\\r\\n%04d\\r\\nEND\\r\\n" % number
        data = b""
        while len(data) < len(wanted):
            data += sock.recv(len(wanted) - len(data))
        assert data == wanted
"""
    feed = Input()
    client = run.start("client", [PYTHON, "-B", "-c", script], preexec=become(CLIENT), env=place(CLIENT), vma=True, stdin=feed.file)
    for proc in client, server:
        run.wait_until(lambda proc=proc: proc.log().accelerated(port) == 1, f"{proc.name} to be accelerated", proc=client)
    feed.go_on()
    client.ok()
    feed.close()
    server.stop()
    for proc in client, server:
        assert proc.log().accelerated(port) == 1, proc.log().not_accelerated()


FPM = """
[global]
error_log = {work}/fpm.log
[www]
user = nobody
group = nogroup
listen = 127.0.0.1:{port}
pm = static
pm.max_children = 2
"""

FASTCGI = """
location / {{
    fastcgi_pass behind;
    fastcgi_keep_conn on;
    fastcgi_param SCRIPT_FILENAME {script};
    fastcgi_param REQUEST_METHOD $request_method;
    fastcgi_param CONTENT_LENGTH $content_length;
}}
"""


def test_php(run, work, place, port):
    """Three users: who asks, nginx's worker, and PHP's behind it. Each body comes back."""
    another_port = ports.free_port()
    script = work / "echo.php"
    script.write_text("<?php readfile('php://input');")
    (work / "fpm.conf").write_text(FPM.format(work=work, port=another_port))
    work.chmod(0o755)
    behind = run.start("php", [build.tool("php-fpm8.2"), "-n", "-F", "-y", work / "fpm.conf"], vma=True, env={"VMA_SHM_DIR": ""})
    run.wait_port(another_port, behind)
    server = run.start("server", nginx.command(work, f"127.0.0.1:{port}", work, user="www-data", more=FASTCGI.format(script=script),
                                               http=f"upstream behind {{ server 127.0.0.1:{another_port}; keepalive 1; }}"), vma=True,
                       env={"VMA_SHM_DIR": ""})
    run.wait_port(port, server)
    asks = f"""import http.client, random, select, sys
connection = http.client.HTTPConnection("127.0.0.1", {port})
source = random.Random({port})
while not select.select([sys.stdin], [], [], 0)[0]:
    body = source.randbytes(source.randrange(1, 8000))
    connection.request("POST", "/", body)
    assert connection.getresponse().read() == body
"""
    feed = Input()
    client = run.start("client", [PYTHON, "-B", "-c", asks], preexec=become(CLIENT), env=place(CLIENT), vma=True, stdin=feed.file)
    pairs = (client, port), (server, port), (server, another_port), (behind, another_port)
    for proc, at in pairs:
        run.wait_until(lambda proc=proc, at=at: proc.log().accelerated(at) > 0, f"{proc.name} to be accelerated", proc=client)
    feed.go_on()
    client.ok()
    feed.close()
    nginx.end(run, server)
    behind.stop()
