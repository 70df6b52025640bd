# SPDX-License-Identifier: BSD-2-Clause
"""A call that succeeds leaves errno as it was: programs/errno_watch.cpp ends a program where one does not. Real programs here;
test_semantics.py has it watch its scenarios."""

import pytest

from lib import build, expect, ports

CHANGED = 99  # exit status, as in errno_watch.cpp
# A handler of fork() that changes errno.
CHANGES = """
import ctypes
libc = ctypes.CDLL(None)
libc.__errno_location.restype = ctypes.POINTER(ctypes.c_int)
def change():
    libc.__errno_location()[0] = 104
handler = ctypes.CFUNCTYPE(None)(change)
libc.__register_atfork(None, handler, None, None)
libc.fork()
"""


def test_the_watch_sees_it(run):
    program = run.start("program", ["python3", "-c", CHANGES], env={"LD_PRELOAD": str(build.program(build.ERRNO_WATCH))})
    program.may_fail = True
    assert program.wait() == CHANGED
    assert "fork() returned" in program.stderr() and "to 104" in program.stderr()


def pair(run, port, spec, server, client, tcp=True):
    env = {"LD_PRELOAD": build.preload_watched(), "VMA_SPEC": spec}
    serving = run.start("server", server, vma=True, env=env)
    run.wait_until(lambda: (ports.is_listening if tcp else ports.is_bound)(port), f"port {port} to be bound", proc=serving)
    expect.in_time(run, lambda seconds: run.run("client", client(seconds), vma=True, env=env).log().accelerated(), "it to be accelerated", serving)
    serving.stop()


@pytest.mark.parametrize("spec", ["none", "latency"])
@pytest.mark.parametrize("protocol", [["--tcp"], []], ids=["tcp", "udp"])
def test_sockperf(run, port, protocol, spec):
    sockperf, where = build.tool("sockperf"), [*protocol, "-i", "127.0.0.1", "-p", port]
    load = ["under-load", "--mps", 10000, "--reply-every", 2, *where]
    pair(run, port, spec, [sockperf, "server", *where], lambda seconds: [sockperf, *load, "-t", seconds], tcp=bool(protocol))


def test_redis(run, port):
    server = [build.tool("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    load = [build.tool("redis-benchmark"), "-h", "127.0.0.1", "-p", port, "-t", "set,get", "-c", 20, "-q"]
    pair(run, port, "none", server, lambda seconds: [*load, "-n", 20000 * seconds])
