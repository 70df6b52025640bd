# SPDX-License-Identifier: BSD-2-Clause
"""vma_stats, and programs in Python for it to look at."""

import json
import re
import signal
import subprocess

from . import build, patience

PYTHON = "/usr/bin/python3"


def program(name):
    return str(build.build_dir() / name)


def make_sample(folder, proc, *more):
    """The file of a process with known numbers. Sizes of header and record are kept in it."""
    made = subprocess.run([program("util/vma_stats/test/stats_sample"), folder, str(proc.pid), *more], check=True,
                          capture_output=True, text=True)
    proc.header_size, proc.slot_size = map(int, made.stdout.split())
    proc.file = folder / f"vmastat.{proc.pid}"
    return proc


def tool(run, *arguments, status=0):
    done = subprocess.run([str(build.build_dir() / "vma_stats"), "-k", run.log_dir, *map(str, arguments)],
                          capture_output=True, text=True, timeout=patience.seconds())
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


BEGINNING = """
import os, select, signal, socket, sys, time

def ping(s, text=b"x" * 100):
    s.sendall(text)
    left = len(text)
    while left:  # until as much has come back
        left -= len(s.recv(left))

"""


def script(run, name, text, **how):
    path = run.work / f"{name}.py"
    path.write_text(BEGINNING + text)
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
for _ in range({count}):
    ping(s)
"""

# By SIGUSR1: end_pings().
UNTIL_TOLD = """
told = []
signal.signal(signal.SIGUSR1, lambda *_: told.append(True))
{begin}
count = 0
while not told:
    {once}
    count += 1
print("%d pings in all" % count, flush=True)
"""

PING_UNTIL_TOLD = UNTIL_TOLD.format(begin='s = socket.create_connection(("127.0.0.1", {port}))', once="ping(s)")

UDP_PING_UNTIL_TOLD = UNTIL_TOLD.format(
    begin='s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nthere = ("127.0.0.1", {port})',
    once='s.sendto(b"x" * 50, there)\n    s.recvfrom(2000)')


def end_pings(run, client, server):
    """Once there were some by the device, both ways; how many there were in all."""
    for proc in client, server:
        wait_for(run, proc, lambda one: one["tx"]["bytes"] > 0 and one["rx"]["bytes"] > 0, "bytes by the device")
    client.send_signal(signal.SIGUSR1)
    return int(re.search(r"(\d+) pings in all", client.wait_output(" pings in all").stdout())[1])
