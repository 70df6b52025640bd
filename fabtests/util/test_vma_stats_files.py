# SPDX-License-Identifier: BSD-2-Clause
"""The files that a program with libvma.so leaves for vma_stats: whose they are, when they come and go, and what stands in their place."""

import json
import os
import resource
import signal
import stat

import pytest

from lib.vmastats import ECHO, PING, PING_UNTIL_TOLD, end_pings, file_of, read, script, tool, wait_for


def test_what_a_process_writes_is_its_users_alone(run, port):
    """Statistics, their text at the end, and the log: they tell with whom it talks. The umask would let all users read."""
    env = {"VMA_STATS_FILE": str(run.work / "stats.%d"), "VMA_TRACELEVEL": "debug"}
    text = ECHO.format(port=port) + "s.close(); print('done', flush=True); signal.pause()"
    before = os.umask(0)
    try:
        server = script(run, "server", text, env=env).wait_output("ready")
        client = script(run, "client", PING.format(port=port, count=10), env=env)
    finally:
        os.umask(before)
    client.ok()
    server.wait_output("done")
    paths = [file_of(run, server), *run.log_dir.glob("*.log"), *run.work.glob("stats.*")]
    assert len(paths) >= 5
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in paths} == {"0o600"}


def test_end_takes_the_file_away(run, port):
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    assert file_of(run, server).exists()
    client = script(run, "client", PING.format(port=port, count=3))
    client.ok()
    server.ok()
    assert not list(run.log_dir.glob("vmastat.*"))


def test_no_folder(run, port, tmp_path):
    """The empty text: no file. One that isn't there: one line, and all works."""
    off = script(run, "off", ECHO.format(port=port), env={"VMA_STATS_SHMEM_DIR": ""}).wait_output("ready")
    assert not file_of(run, off).exists() and not off.log().at_level("WARNING")
    off.kill()
    missing = script(run, "missing", ECHO.format(port=port), env={"VMA_STATS_SHMEM_DIR": str(tmp_path / "none")})
    missing.wait_output("ready")
    lines = missing.log().at_level("WARNING")
    assert len(lines) == 1 and "VMA_STATS_SHMEM_DIR: " in lines[0] and "No such file or directory" in lines[0]
    script(run, "client", PING.format(port=port, count=500)).ok()
    missing.ok()


def test_file_size_limit(run, port):
    """RLIMIT_FSIZE: no file, one line, and no SIGXFSZ."""
    limited = script(run, "limited", ECHO.format(port=port), env={"VMA_STATS_FILE": str(run.work / "none")},
                     preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    limited.wait_output("ready")
    assert any("File too large" in line for line in limited.log().at_level("WARNING")) and not file_of(run, limited).exists()
    script(run, "client", PING.format(port=port, count=50)).ok()
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


# The child's line is written at once: print() writes a word at a time here, and its parent's come in between.
FORK = """
listener = socket.create_server(("127.0.0.1", {port}))
child = os.fork()
if child == 0:
    if {works}:
        s = socket.create_connection(("127.0.0.1", {port}))
        s.sendall(b"x" * 10)
    os.write(1, b"child %d\\n" % os.getpid())
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


def test_stats_file(run, port):
    """The block of view 3 at each close, of sockets that did something, by the device, too."""
    server = script(run, "server", ECHO.format(port=port), env={"VMA_STATS_FILE": str(run.work / "stats.%d")})
    server.wait_output("ready")
    client = script(run, "client", PING_UNTIL_TOLD.format(port=port))
    end_pings(run, client, server)
    client.ok()
    server.ok()
    text = (run.work / f"stats.{server.pid}").read_text()
    assert text.count("Fd=[") == 1 and "Rx Offload: " in text and "Tx OS info: " in text


def test_stats_file_of_the_open(run, port):
    """Those that are open when the process ends, once."""
    script(run, "server", ECHO.format(port=port)).wait_output("ready")
    text = PING.format(port=port, count=50) + "os.dup(s.fileno()); s.detach()\n"
    client = script(run, "client", text, env={"VMA_STATS_FILE": str(run.work / "stats.%d")}).ok()
    assert (run.work / f"stats.{client.pid}").read_text().count("Fd=[") == 1
