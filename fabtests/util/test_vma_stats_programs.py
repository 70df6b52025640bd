# SPDX-License-Identifier: BSD-2-Clause
"""vma_stats beside programs that run with libvma.so: while they work, stopped, and after kill -9."""

import json
import os
import resource
import signal
import socket
import stat
import subprocess

import pytest

from lib import build

PYTHON = "/usr/bin/python3"


def tool(run, *arguments, status=0):
    done = subprocess.run([str(build.build_dir() / "vma_stats"), "-k", run.log_dir, *map(str, arguments)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def read(run, proc, *arguments):
    return json.loads(tool(run, "-F", "-p", proc.pid, "--json", "-c", 1, *arguments))


def file_of(run, proc):
    return run.log_dir / f"vmastat.{proc.pid}"


def wait_for(run, proc, condition, what):
    """Waits until what the process has counted fulfils the condition; returns the socket that does."""
    def look():
        if not file_of(run, proc).exists():
            return None
        return next((one for one in read(run, proc)["sockets"] if condition(one)), None)
    return run.wait_until(look, what, proc=proc)


def script(run, name, text, **how):
    path = run.work / f"{name}.py"
    path.write_text("import os, select, signal, socket, sys, time\n" + text)
    return run.start(name, [PYTHON, "-u", path], vma=True, **how)


ECHO = """
listener = socket.create_server(("127.0.0.1", {port}))
print("ready", flush=True)
s, _ = listener.accept()
while data := s.recv(4096):
    s.sendall(data)
"""

PING = """
s = socket.create_connection(("127.0.0.1", {port}))
for i in range({count}):
    s.sendall(b"x" * 100)
    left = 100
    while left:
        left -= len(s.recv(left))
print("done", flush=True)
sys.stdin.read() if {stays} else None
signal.pause() if {stays} else None
"""


@pytest.fixture
def talk(run, port):
    """A ping-pong of 5,000 messages of 100 B that is over, both processes still there."""
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", PING.format(port=port, count=5000, stays=True)).wait_output("done")
    return server, client


def test_what_a_process_writes_is_its_users_alone(run, port):
    """Statistics, their text at the end, and the log: they tell with whom it talks. The umask would let all users read."""
    env = {"VMA_STATS_FILE": str(run.work / "stats.%d"), "VMA_TRACELEVEL": "debug"}
    text = ECHO.format(port=port) + "s.close(); print('done', flush=True); signal.pause()"
    before = os.umask(0)
    try:
        server = script(run, "server", text, env=env).wait_output("ready")
        client = script(run, "client", PING.format(port=port, count=10, stays=False), env=env)
    finally:
        os.umask(before)
    client.ok()
    server.wait_output("done")
    paths = [file_of(run, server), *run.log_dir.glob("*.log"), *run.work.glob("stats.*")]
    assert len(paths) >= 5
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in paths} == {"0o600"}


def test_all_is_counted(run, talk):
    """No byte is missing, and what one has sent the other has received, by the kernel and by the device."""
    server, client = talk
    theirs = next(one for one in read(run, server)["sockets"] if one["state"] == "ESTABLISHED")
    mine = read(run, client)["sockets"][0]
    for sender, receiver in (mine, theirs), (theirs, mine):
        assert sender["tx"]["bytes"] + sender["tx"]["os_bytes"] == 500_000
        assert receiver["rx"]["bytes"] + receiver["rx"]["os_bytes"] == 500_000
        assert sender["tx"]["bytes"] == receiver["rx"]["bytes"] > 0
        assert (sender["offloaded"], sender["way"], sender["device"]) == (True, "local", "local")
        assert sender["rx"]["migrations"] == 1
        assert receiver["rx"]["queued_bytes"] == 0
    assert mine["local"] == theirs["peer"] and mine["peer"] == theirs["local"]
    assert mine["tx"]["thread"] == client.pid
    assert mine["rx"]["poll_hit"] + mine["rx"]["poll_miss"] > 0


def test_stopped_and_killed(run, talk):
    server, client = talk
    before = read(run, client)["sockets"]
    client.send_signal(signal.SIGSTOP)
    stopped = read(run, client)
    assert stopped["alive"] and stopped["sockets"] == before
    client.kill()
    dead = read(run, client)
    assert not dead["alive"]
    assert [one["tx"] for one in dead["sockets"]] == [one["tx"] for one in before]
    assert "ended - exiting" in tool(run, "-F", "-p", client.pid, "-v", 3)
    server.ok()  # its peer is gone
    tool(run, "-v", 5, status=1)  # which cleans
    assert not list(run.log_dir.glob("vmastat.*"))


def test_end_takes_the_file_away(run, port):
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    assert file_of(run, server).exists()
    client = script(run, "client", PING.format(port=port, count=3, stays=False))
    client.ok()
    server.ok()
    assert not list(run.log_dir.glob("vmastat.*"))


def test_net_view_of_both(run, talk):
    server, client = talk
    rows = [line.split() for line in tool(run, "-v", 5).splitlines()[1:]]
    mine = [row for row in rows if row[-1] == f"{client.pid}/python3" or row[-1].startswith(f"{client.pid}/")]
    theirs = [row for row in rows if row[-1].startswith(f"{server.pid}/")]
    assert sorted(row[6] for row in theirs if len(row) > 8) == ["ESTABLISHED", "LISTEN"] or len(theirs) == 2
    assert [(row[0], row[1], row[6]) for row in mine] == [("tcp", "Yes", "ESTABLISHED")]
    assert mine[0][7].isdigit()


def test_zero_while_it_runs(run, port):
    """Nothing of what is counted meanwhile is lost."""
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", PING.format(port=port, count=10_000_000, stays=False))
    wait_for(run, client, lambda one: one["tx"]["bytes"] > 1_000_000, "bytes by the device")
    tool(run, "-F", "-p", client.pid, "-z", "-c", 1)
    client.send_signal(signal.SIGSTOP)
    first = read(run, client)["sockets"][0]["tx"]["bytes"]
    client.send_signal(signal.SIGCONT)
    wait_for(run, client, lambda one: one["tx"]["bytes"] > first, "more bytes")
    tool(run, "-F", "-p", server.pid, "-z", "-c", 1)


def test_two_readers(run, port):
    """A second reader sees the same deltas as the first."""
    script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", PING.format(port=port, count=10_000_000, stays=False))
    wait_for(run, client, lambda one: one["offloaded"], "an accelerated socket")
    readers = [run.start("tool", [build.build_dir() / "vma_stats", "-F", "-k", run.log_dir, "-p", client.pid, "-d", 2,
                                  "--json", "-c", 2]) for _ in range(2)]
    for reader in readers:
        for line in reader.ok().stdout().splitlines():
            assert json.loads(line)["sockets"][0]["tx"]["packets"] > 0


@pytest.mark.parametrize("number", [0, 1])
def test_beyond_the_records(run, port, number):
    """VMA_STATS_FD_NUM: those beyond are not seen, and work as the others."""
    server = script(run, "server", ECHO.format(port=port), env={"VMA_STATS_FD_NUM": str(number)}).wait_output("ready")
    script(run, "client", PING.format(port=port, count=500, stays=False)).ok()
    server.ok()
    again = script(run, "again", ECHO.format(port=port), env={"VMA_STATS_FD_NUM": str(number)}).wait_output("ready")
    assert len(read(run, again)["sockets"]) == number


def test_no_folder(run, port, tmp_path):
    """The empty text: no file. One that isn't there: one line, and all works."""
    off = script(run, "off", ECHO.format(port=port), env={"VMA_STATS_SHMEM_DIR": ""}).wait_output("ready")
    assert not file_of(run, off).exists() and not off.log().at_level("WARNING")
    off.kill()
    missing = script(run, "missing", ECHO.format(port=port), env={"VMA_STATS_SHMEM_DIR": str(tmp_path / "none")})
    missing.wait_output("ready")
    lines = missing.log().at_level("WARNING")
    assert len(lines) == 1 and "VMA_STATS_SHMEM_DIR: " in lines[0] and "No such file or directory" in lines[0]
    script(run, "client", PING.format(port=port, count=500, stays=False)).ok()
    missing.ok()


def test_file_size_limit(run, port):
    """RLIMIT_FSIZE: no file, one line, and no SIGXFSZ."""
    limited = script(run, "limited", ECHO.format(port=port), env={"VMA_STATS_FILE": str(run.work / "none")},
                     preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    limited.wait_output("ready")
    assert any("File too large" in line for line in limited.log().at_level("WARNING")) and not file_of(run, limited).exists()
    script(run, "client", PING.format(port=port, count=50, stays=False)).ok()
    limited.ok()


HOSTILE = """
here = "{folder}/vmastat.%d" % os.getpid()
victim = "{folder}/victim"
open(victim, "w").write("precious")
if "{how}" == "symlink":
    os.symlink(victim, here)
elif "{how}" == "link":
    os.link(victim, here)
elif "{how}" == "fifo":
    os.mkfifo(here)
elif "{how}" == "folder":
    os.mkdir(here)
else:
    open(here, "w").write("stale")
socket.socket().close()
assert open(victim).read() == "precious"
print("file" if os.path.isfile(here) and not os.path.islink(here) and os.path.getsize(here) > 10000 else "none")
"""


@pytest.mark.parametrize("how, made", [("symlink", "none"), ("link", "none"), ("fifo", "none"), ("folder", "none"),
                                       ("stale", "file")])
def test_name_is_taken(run, how, made):
    """Who can write to the folder can't make us write through a link, or wait; a stale file of our own goes."""
    proc = script(run, "taken", HOSTILE.format(folder=run.log_dir, how=how)).ok()
    assert proc.stdout().strip() == made
    assert len(proc.log().at_level("WARNING")) == (made == "none")


FORK = """
listener = socket.create_server(("127.0.0.1", {port}))
child = os.fork()
if child == 0:
    if {works}:
        s = socket.create_connection(("127.0.0.1", {port}))
        s.sendall(b"x" * 10)
    print("child", os.getpid(), flush=True)
    signal.pause()
s, _ = listener.accept() if {works} else (None, None)
print("parent", flush=True)
signal.pause()
"""


def test_fork(run, port):
    """A child has a file of its own once it does something; its parent's is not touched."""
    proc = script(run, "fork", FORK.format(port=port, works=True)).wait_output("child").wait_output("parent")
    child = int(proc.stdout().split("child")[1].split()[0])
    mine = json.loads(tool(run, "-F", "-p", child, "--json", "-c", 1))
    assert mine["pid"] == child
    assert [one["tx"]["os_bytes"] for one in mine["sockets"]] == [0, 10]
    assert [one["tx"]["os_bytes"] for one in read(run, proc)["sockets"]] == [0, 0]


def test_fork_and_nothing(run, port):
    proc = script(run, "fork", FORK.format(port=port, works=False)).wait_output("child").wait_output("parent")
    child = int(proc.stdout().split("child")[1].split()[0])
    assert file_of(run, proc).exists() and not (run.log_dir / f"vmastat.{child}").exists()


def test_exec(run):
    """What the program before left is no live process's, and an exec that fails changes nothing."""
    text = "socket.socket()\n"
    failed = script(run, "failed", text + "try: os.execv('/none', ['x'])\nexcept OSError: print('still', flush=True)\n"
                                          "signal.pause()").wait_output("still")
    assert read(run, failed)["alive"]
    replaced = script(run, "replaced", text + "os.execv('/bin/sleep', ['sleep', '1000'])")
    run.wait_until(lambda: os.readlink(f"/proc/{replaced.pid}/exe").endswith("sleep"), "exec", proc=replaced)
    assert not read(run, replaced)["alive"]
    replaced.kill()


def test_closed_socket_goes(run):
    proc = script(run, "closes", "a = socket.socket(); b = socket.socket(); a.close(); print('done', flush=True)\n"
                                 "signal.pause()").wait_output("done")
    sockets = read(run, proc)["sockets"]
    assert len(sockets) == 1


GROUPS = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", {port}))
join = lambda group: socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
for group in "239.1.2.3", "239.1.2.4", "239.1.2.3":
    try: s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, join(group))
    except OSError: pass
s.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, join("239.1.2.4"))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
print("done", flush=True)
signal.pause()
"""


def test_groups(run, port):
    proc = script(run, "member", GROUPS.format(port=port)).wait_output("done")
    one = read(run, proc)["sockets"][0]
    assert [group["address"] for group in one["groups"]] == ["239.1.2.3"]
    assert one["multicast_interface"]["address"] == "127.0.0.1" and not one["multicast_loop"]
    assert f"[239.1.2.3]           {one['fd']} \n" in tool(run, "-F", "-p", proc.pid, "-v", 4, "-c", 1)
    text = tool(run, "-F", "-p", proc.pid, "-v", 3, "-c", 1)
    assert "- UDP, Blocked, MC Loop Disabled, MC IF = [127.0.0.1]\n" in text and "- Member of = [239.1.2.3]\n" in text


UDP_RECEIVER = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", {port}))
print("ready", flush=True)
count = 0
while True:
    data, peer = s.recvfrom(2000)
    count += 1
    if data == b"end":
        break
    s.sendto(data, peer)
print("done", flush=True)
signal.pause()
"""

UDP_SENDER = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(1000):
    s.sendto(b"x" * 50, ("127.0.0.1", {port}))
    s.recvfrom(2000)
s.sendto(b"end", ("127.0.0.1", {port}))
print("done", flush=True)
signal.pause()
"""


def test_datagrams(run, port):
    receiver = script(run, "receiver", UDP_RECEIVER.format(port=port)).wait_output("ready")
    sender = script(run, "sender", UDP_SENDER.format(port=port)).wait_output("done")
    receiver.wait_output("done")
    theirs, mine = read(run, receiver)["sockets"][0], read(run, sender)["sockets"][0]
    assert mine["tx"]["packets"] + mine["tx"]["os_packets"] == 1001
    assert theirs["rx"]["packets"] + theirs["rx"]["os_packets"] == 1001
    assert mine["tx"]["packets"] == theirs["rx"]["packets"] > 500
    assert mine["tx"]["bytes"] == theirs["rx"]["bytes"]
    assert mine["offloaded"] and theirs["offloaded"]
    assert theirs["rx"]["queued_packets"] == 0 and theirs["local"]["port"] == port and theirs["rx"]["limit_bytes"] > 0


def test_drops(run, port):
    """Datagrams that found no room are counted."""
    receiver = script(run, "receiver", f"""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", {port}))
print("ready", flush=True)
for i in range(200):
    data, peer = s.recvfrom(2000)
    s.sendto(data, peer)
print("pause", flush=True)
signal.pause()
""").wait_output("ready")
    sender = script(run, "sender", f"""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(200):
    s.sendto(b"x", ("127.0.0.1", {port}))
    s.recvfrom(100)
for i in range(20000):
    s.sendto(b"x" * 1000, ("127.0.0.1", {port}))
print("done", flush=True)
signal.pause()
""")
    sender.wait_output("done")
    one = wait_for(run, receiver, lambda one: one["rx"]["dropped_packets"] > 0, "drops")
    assert 0 < one["rx"]["queued_packets"] <= one["rx"]["most_packets"]
    assert 0 < one["rx"]["queued_bytes"] <= one["rx"]["most_bytes"]


def test_reason(run, port):
    """The text that the debug log has."""
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", f"""
s = socket.create_connection(("127.0.0.1", {port}))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
for i in range(100):
    s.sendall(b"x")
    s.recv(1)
print("done", flush=True)
signal.pause()
""").wait_output("done")
    one = read(run, client)["sockets"][0]
    assert (one["way"], one["reason"], one["tx"]["os_packets"]) == ("pinned", "SO_RCVLOWAT", 100)
    assert "- Not offloaded: SO_RCVLOWAT\n" in tool(run, "-F", "-p", client.pid, "-v", 3, "-c", 1)
    sockets = read(run, server)["sockets"]
    assert not any(one["offloaded"] for one in sockets)
    assert sorted(one["reason"] for one in sockets) == ["it listens", "no accelerated peer was found"]


def test_log_level_and_dump(run, port):
    script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", PING.format(port=port, count=10_000_000, stays=False), env={"VMA_TRACELEVEL": "warn"})
    one = wait_for(run, client, lambda one: one["offloaded"], "an accelerated socket")
    text = tool(run, "-F", "-p", client.pid, "-S", one["fd"], "warn", "-l", "debug", "-D", 3, "-c", 1)
    assert f"Dumping Fd {one['fd']} to VMA using log level = warn..." in text
    client.wait_log(lambda log: "Tx Offload:" in "\n".join(log.lines), "the dump")
    assert f"Fd=[{one['fd']}]" in "\n".join(client.log().lines)
    assert "Time: " in "\n".join(client.log().lines)  # of details 3


def test_stats_file(run, port):
    """The block of view 3 at each close, of sockets that did something."""
    server = script(run, "server", ECHO.format(port=port), env={"VMA_STATS_FILE": str(run.work / "stats.%d")})
    server.wait_output("ready")
    script(run, "client", PING.format(port=port, count=500, stays=False)).ok()
    server.ok()
    text = (run.work / f"stats.{server.pid}").read_text()
    assert text.count("Fd=[") == 1 and "Rx Offload: " in text and "Tx OS info: " in text


def test_stats_file_of_the_open(run, port):
    """Those that are open when the process ends, once."""
    script(run, "server", ECHO.format(port=port)).wait_output("ready")
    text = PING.format(port=port, count=50, stays=False) + "os.dup(s.fileno()); s.detach()\n"
    client = script(run, "client", text, env={"VMA_STATS_FILE": str(run.work / "stats.%d")}).ok()
    assert (run.work / f"stats.{client.pid}").read_text().count("Fd=[") == 1


def test_sockperf(run, port):
    """A program of others, by its name."""
    sockperf = build.tool("sockperf")
    server = run.start("server", [sockperf, "server", "--tcp", "-i", "127.0.0.1", "-p", port], vma=True)
    run.wait_port(port, server)
    client = run.start("client", [sockperf, "ping-pong", "--tcp", "-i", "127.0.0.1", "-p", port, "-t", 20,
                                  *build.SOCKPERF_MANY], vma=True)
    one = wait_for(run, client, lambda one: one["rx"]["packets"] > 1000, "packets")
    assert one["rx"]["poll_hit"] > 0
    text = tool(run, "-F", "-n", "sockperf", "-c", 1)
    assert "stats for application: sockperf with pid: " in text
    client.kill()
    server.stop()


def test_redis(run, port):
    """Many connections through one epoll set."""
    server = run.start("redis", [build.tool("redis-server"), "--port", port, "--save", ""], vma=True)
    run.wait_port(port, server)
    run.run("benchmark", [build.tool("redis-benchmark"), "-p", port, "-t", "set", "-n", 20000, "-q", "-c", 10], vma=True)
    server.wait_output("Ready to accept")
    assert read(run, server)["program"] == "redis-server"
    server.stop()
    assert not file_of(run, server).exists()


MUX_ECHO = """
listener = socket.create_server(("127.0.0.1", {port}))
print("ready", flush=True)
s, _ = listener.accept()
how = "{how}"
if how == "epoll":
    poller = select.epoll()
    poller.register(s, select.EPOLLIN)
elif how == "poll":
    poller = select.poll()
    poller.register(s, select.POLLIN)
wait = {{"epoll": lambda: poller.poll(), "poll": lambda: poller.poll(), "select": lambda: select.select([s], [], [])}}[how]
while True:
    wait()
    data = s.recv(4096)
    if data == b"stop":
        break
    s.sendall(data)
if how == "select":
    select.select([s], [], [], 0.001)
else:
    poller.poll(1)
print("done", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("how", ["epoll", "poll", "select"])
def test_waits(run, port, how):
    """Each wait that found the socket is counted, by a device or by the kernel; and the one that timed out."""
    server = script(run, "server", MUX_ECHO.format(port=port, how=how), env={"VMA_CPU_USAGE_STATS": "1"})
    server.wait_output("ready")
    script(run, "client", PING.format(port=port, count=2000, stays=False) + "s.sendall(b'stop')\nsignal.pause()\n")
    server.wait_output("done")
    seen = read(run, server)["iomux"]
    assert len(seen) == 1 and seen[0]["name"].startswith(how)
    one = seen[0]
    # All of it fits into the ring once: a message that goes round its end comes in two pieces.
    assert one["ready"] + one["os_ready"] == 2001 and one["ready"] > 0
    assert one["timeouts"] == 1 and one["errors"] == 0 and one["thread"] == server.pid
    assert one["poll_hit"] + one["poll_miss"] <= 2002 and one["poll_hit"] > 0
    text = tool(run, "-F", "-p", server.pid, "-c", 1)
    assert f"Rx Ready:{one['os_ready']}/{one['ready']} [os/offload] Timeouts:1 " in text


def test_polling_time(run, port):
    """VMA_CPU_USAGE_STATS: a server whose socket always polls."""
    server = script(run, "server", MUX_ECHO.format(port=port, how="epoll"),
                    env={"VMA_CPU_USAGE_STATS": "1", "VMA_SELECT_POLL": "-1"}).wait_output("ready")
    client = script(run, "client", PING.format(port=port, count=100_000_000, stays=False))
    run.wait_until(lambda: file_of(run, server).exists() and
                   any(one["polling_percent"] > 0 for one in read(run, server)["iomux"]), "a share", proc=server)
    client.kill()


def test_ring(run, talk):
    """The device's ring has what its sockets have, also those that are closed."""
    _, client = talk
    one = read(run, client)
    rings = one["rings"]
    assert [(ring["kind"], ring["name"]) for ring in rings] == [("local", "local")]
    assert rings[0]["tx_bytes"] == one["sockets"][0]["tx"]["bytes"] > 0
    assert "\tRING_LOCAL=[0]\n" in tool(run, "-F", "-p", client.pid, "-v", 3, "-c", 1)


def test_ring_of_closed(run, port):
    script(run, "server", ECHO.format(port=port)).wait_output("ready")
    text = PING.format(port=port, count=3000, stays=False) + "s.close()\nprint('done', flush=True)\nsignal.pause()\n"
    client = script(run, "client", text).wait_output("done")
    seen = read(run, client)
    assert not seen["sockets"] and seen["rings"][0]["rx_bytes"] > 0


def test_dummy_sends_of_getsockname(run, port):
    """VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME: counted, and the peer gets nothing of them."""
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    asks = PING.format(port=port, count=500, stays=False) + """
for _ in range(7):
    s.getsockname()
s.sendall(b"end")
assert s.recv(10) == b"end"
print("asked", flush=True)
signal.pause()
"""
    client = script(run, "client", asks, env={"VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME": "1"}).wait_output("asked")
    mine = read(run, client)["sockets"][0]
    assert mine["tx"]["dummies"] == 7 and mine["tx"]["bytes"] + mine["tx"]["os_bytes"] == 500 * 100 + 3
    theirs = next(one for one in read(run, server)["sockets"] if one["state"] == "ESTABLISHED")
    assert theirs["tx"]["dummies"] == 0


HEARS = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", {port}))
print("ready", flush=True)
while (got := s.recvfrom(2000))[0] != b"end":
    s.sendto(b"heard", got[1])
"""

PACED = """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("127.0.0.1", {port}))
s.setsockopt(socket.SOL_SOCKET, 47, 1_000_000)  # SO_MAX_PACING_RATE, bytes a second
for i in range(400):
    s.send(b"x" * 1000)
    s.recv(10)  # who only sends may be done before the other end takes datagrams
s.send(b"end")
print("done", flush=True)
signal.pause()
"""


def test_pacing(run, port):
    """How long sends had to wait, and what went under a limit: all that the device has carried."""
    hears = script(run, "hears", HEARS.format(port=port)).wait_output("ready")
    paced = script(run, "paced", PACED.format(port=port)).wait_output("done")
    tx = read(run, paced)["sockets"][0]["tx"]
    assert tx["bytes"] + tx["os_bytes"] == 400_003
    assert tx["pacing_rate"] == 1_000_000 and tx["paced_bytes"] == tx["bytes"] > 0
    assert tx["held"] > 0 and tx["held_ns"] > 0
    paced.kill()
    hears.kill()
