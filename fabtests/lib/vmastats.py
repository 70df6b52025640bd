# SPDX-License-Identifier: BSD-2-Clause
"""vma_stats, and programs in Python for it to look at."""

import json
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

# By SIGUSR1, and then as much as has been sent has come back.
PING_UNTIL_TOLD = """
told = []
signal.signal(signal.SIGUSR1, lambda *_: told.append(True))
s = socket.create_connection(("127.0.0.1", {port}))
while not told:
    s.sendall(b"x" * 100)
    left = 100
    while left:
        left -= len(s.recv(left))
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
