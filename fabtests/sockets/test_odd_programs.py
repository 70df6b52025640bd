# SPDX-License-Identifier: BSD-2-Clause
"""Programs that have something unusual about them, or about what they may use, are accelerated as others are.

What issue 7 names, and where it is tried: descriptors 0-2 (inetd), daemon(), double fork, file actions, clone(), setuid() and chroot(), a
pending cancellation: semantics/processes.cpp. fork, vfork, exec, system, popen, SCM_RIGHTS, threads that fork: semantics/descriptors.cpp.
close_range(), closing under a thread: semantics/closing.cpp. EINTR, SA_RESTART, calls in handlers, jumps, cancellation of a wait:
semantics/signals.cpp. Few descriptors, a killed process: test_faults.py; any of these at random: posix/test_soak.py. Many descriptors,
locked memory, other preloaded libraries: here."""

import glob
import resource

import pytest

from lib import build, limits, pairing, peers

FORMS = "sockets/programs/stream_forms"
MIB = 1 << 20


def test_large_thread_local_variables(run):
    peers.run_both(run, pairing.VMA_LATENCY, "sockets/programs/thread_locals", offload=True)


@pytest.mark.parametrize("call", ("sendmsg", "sendmmsg"))
def test_a_set_passed_on_before_the_first_socket(run, pair, call):
    """Nothing was looked at before a socket had to be, and who had got the set heard nothing of what was accelerated."""
    peers.run_both(run, pair, "sockets/programs/odd/early_set", call, offload=True)


def works(run, **options):
    """Every call form over a connection of some length, which is accelerated."""
    server, client = peers.run_both(run, pairing.VMA_LATENCY, FORMS, "blocking", 32 * MIB, 32 * MIB, 99, **options)
    assert server.log().accelerated() and client.log().accelerated()


def limited(kind, value):
    options = {"preexec": lambda: resource.setrlimit(kind, (value, value))}
    return {"server_options": options, "client_options": options}


def test_little_locked_memory(run):
    works(run, **limited(resource.RLIMIT_MEMLOCK, 4096))


def memory_with(run, descriptors):
    """Resident KiB of a program that has an accelerated connection and may have so many descriptors."""
    script = "\n".join([
        "import socket, re",
        "listener = socket.create_server(('127.0.0.1', 0))",
        "a = socket.create_connection(listener.getsockname())",
        "b = listener.accept()[0]",
        "for _ in range(2000): a.send(b'x'); b.recv(1); b.send(b'y'); a.recv(1)",
        "print(re.search(r'VmRSS:\\s+(\\d+)', open('/proc/self/status').read())[1])"])
    env = {"VMA_LIFT_AT_CONNECT": "20000000"}  # on a busy machine the program would end before it is accelerated

    def restrict():
        limits.no_huge_pages()
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    proc = run.run("memory", ["/usr/bin/python3", "-c", script], vma=True, mode="latency", env=env, preexec=restrict)
    assert proc.log().accelerated()
    return int(proc.stdout())


def test_memory_does_not_grow_with_the_descriptor_limit(run):
    """As many as may be here: 1,073,741,816 in some containers."""
    large = memory_with(run, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    assert large - memory_with(run, 1024) < 2048


@pytest.mark.parametrize("library", ["libjemalloc.so.2", "libeatmydata.so.1"])
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_another_preloaded_library(run, library, first):
    if build.sanitized():
        pytest.skip("a sanitizer has an allocator of its own")
    found = glob.glob(f"/usr/lib/*/{library}") + glob.glob(f"/usr/lib/{library}")
    if not found:
        pytest.skip(f"{library} is not installed")
    order = [build.preload(), found[0]] if first == "ours" else [found[0], build.preload()]
    works(run, env={"LD_PRELOAD": " ".join(order)})
