# SPDX-License-Identifier: BSD-2-Clause
"""Processes that share the network and not everything else, as containers of one pod do: numbers of processes (each has its number 1), the
view of files, System V memory. Their connections work; they are accelerated where both see the same directory and the same memory."""

import os
import pathlib

import pytest

from lib import build, netns

PROGRAM = pathlib.Path(__file__).parent / "programs/containers.py"
PYTHON = "/usr/bin/python3"
PORT = 7100
KINDS = ["stream", "datagrams"]

# unshare(1)'s options -> whether what two of them have between each other is accelerated.
APART = {"numbers": (["--pid", "--fork", "--kill-child", "--mount-proc"], True),
         "memory": (["--ipc"], False),
         "both": (["--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"], False)}


@pytest.fixture
def host():
    made = netns.made(netns.Host)
    yield made
    made.remove()


def start(run, host, name, options, *args, **more):
    return run.start(name, [*(["unshare", *options] if options else []), PYTHON, "-B", PROGRAM, *args], vma=True, mode="latency",
                     netns=host.file, **more)


def serve(run, host, options, kind, **more):
    return start(run, host, "server", options, "serve", kind, PORT, **more).wait_output("ready")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("apart, who", [("numbers", "both"), ("numbers", "client"), ("numbers", "server"), ("memory", "client"),
                                        ("both", "server")])
def test_containers(run, host, kind, apart, who):
    options, accelerated = APART[apart]
    server = serve(run, host, options if who != "client" else [], kind)
    client = start(run, host, "client", options if who != "server" else [], "ask", kind, PORT, env={"FABTEST_LIFT": "1"} if accelerated else {})
    client.ok()
    server.ok()
    for proc in server, client:
        assert (proc.log().accelerated(PORT) > 0) == accelerated, proc.log().not_accelerated()


@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_its_own_beside_others(run, host, kind):
    """One that has its own System V memory takes nothing away from those that have theirs in common, whoever comes first."""
    run.run("first", ["unshare", "--ipc", build.program("sockets/programs/one_process")], vma=True, mode="latency", env={"FABTEST_LIFT": "1"}, netns=host.file)
    server = serve(run, host, [], kind)
    run.run("second", ["unshare", "--ipc", build.program("sockets/programs/one_process")], vma=True, mode="latency", env={"FABTEST_LIFT": "1"}, netns=host.file)
    start(run, host, "client", [], "ask", kind, PORT, env={"FABTEST_LIFT": "1"}).ok()
    server.ok()
    assert server.log().accelerated(PORT) > 0, server.log().not_accelerated()
    assert len(list(run.shm.glob("generation-*"))) <= 3  # one a namespace, whose numbers the kernel may use again


def test_networks_of_their_own(run, host):
    """The same addresses and ports in two networks are two connections, each accelerated, whoever sees the other one's names."""
    apart = netns.made(netns.Host)
    try:
        servers = [serve(run, place, [], "stream") for place in (host, apart)]
        clients = [start(run, place, f"client{i}", [], "ask", "stream", PORT) for i, place in enumerate((host, apart))]
        for proc in [*clients, *servers]:
            proc.ok()
        for server in servers:
            assert server.log().accelerated(PORT) > 0, server.log().not_accelerated()
    finally:
        apart.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_its_own(run, host, kind):
    """The server has another directory at the same place."""
    options = ["--mount", "sh", "-c", f'mount -t tmpfs -o mode=0700 none {run.shm} && exec "$@"', "sh"]
    server = serve(run, host, options, kind)
    start(run, host, "client", [], "ask", kind, PORT).ok()
    server.ok()


def test_names_of_another_pid_namespace(run, host):
    """Whoever comes later doesn't take them for those of the dead; when they are (the server is killed), they go with the next start of
    a program, as `run` sees to."""
    options = APART["numbers"][0]
    server = serve(run, host, options, "datagrams")
    start(run, host, "first", options, "ask", "datagrams", PORT, "stays", env={"FABTEST_LIFT": "1"}).ok()
    names = set(run.shm.glob("u-*"))
    assert names
    run.run("later", [build.program("sockets/programs/one_process")], vma=True, mode="latency", env={"FABTEST_LIFT": "1"}, netns=host.file)
    assert set(run.shm.glob("u-*")) == names
    server.kill()


def test_enters_a_mount_namespace(run, host):
    proc = start(run, host, "enters", [], "enter", run.shm)
    proc.ok()
    assert proc.log().accelerated() >= 4  # the ends of those before
    assert len(proc.log().at_level("WARNING")) <= 2


def test_unread_bytes_of_another_container(run, host, work):
    """A program that starts in a third one, which sees nothing of those two but their directory, lets them be."""
    fifo = work / "fifo"
    os.mkfifo(fifo)
    options = ["--ipc", *APART["numbers"][0]]
    passes = start(run, host, "passes", options, "passes", fifo).wait_output("passed")
    assert list(run.shm.glob("unread/*"))
    apart = netns.made(netns.Host)
    try:
        start(run, apart, "later", options, "enter", run.shm).ok()
    finally:
        apart.remove()
    fifo.write_bytes(b"")
    passes.ok()


@pytest.mark.parametrize("more", [[], ["no-proc"]], ids=["proc", "no-proc"])
def test_child_of_another_pid_namespace(run, host, more):
    server = serve(run, host, [], "stream")
    start(run, host, "parent", [], "forks", PORT, 3, *more).ok()
    server.ok()
