# SPDX-License-Identifier: BSD-2-Clause
"""Programs in containers of podman's, as it makes them when nothing is asked of it: capabilities, the seccomp profile, a network each."""

import pytest

from lib import build
from lib.talk import PORT, accelerated, ask, ask_from_host, serve

SERVER = "10.88.0.10"
INTRODUCED = "introduced by vmad"


@pytest.mark.parametrize("runtime", ["crun", "runc"])
def test_two_containers(run, vmad, podman, feed):
    server = serve(podman, "--ip", SERVER)
    accelerated(run, feed, server, ask(podman, feed, SERVER))


GATEWAY = "10.88.0.1"


@pytest.mark.parametrize("who", ["container", "host"])
def test_a_published_port(run, vmad, machine, podman, feed, who):
    """Both addresses are others at each end, and the port, wherever the client is."""
    server = serve(podman, "--ip", SERVER, "--publish", f"8080:{PORT}")
    client = ask(podman, feed, GATEWAY, port=8080) if who == "container" else ask_from_host(run, machine, podman, feed, GATEWAY, 8080)
    accelerated(run, feed, server, client, (PORT, 8080))


def test_redis(run, vmad, podman):
    server = podman.start("server", [build.tool("redis-server"), "--port", PORT, "--save", "", "--protected-mode", "no"], "--ip", SERVER,
                          mode="default").wait_output("Ready to accept")
    client = podman.start("client", [build.tool("redis-benchmark"), "-h", SERVER, "-p", PORT, "-c", 20, "-n", 40000, "-t", "set,get", "-d", 1000],
                          mode="default").ok()
    podman.do("stop", "server")
    server.ok()
    assert client.log().accelerated(PORT) > 0 and server.log().accelerated(PORT) > 0, client.log().not_accelerated()


def test_a_pod(run, podman, feed):
    """One network, and one memory: nobody has to introduce anybody."""
    podman.do("pod", "create", "--name", "pod")
    server = serve(podman, "--pod", "pod", address="127.0.0.1")
    accelerated(run, feed, server, ask(podman, feed, "127.0.0.1", "--pod", "pod"), introduced=False)


@pytest.mark.parametrize("options", [[], ["--read-only-tmpfs=false"]], ids=["folders", "none"])
def test_read_only(run, vmad, podman, feed, options):
    options = ["--read-only", *options]
    accelerated(run, feed, serve(podman, "--ip", SERVER, *options), ask(podman, feed, SERVER, *options))


MAPS = ["200000", "300000"]


@pytest.mark.parametrize("maps, rules, meet", [((0, 0), "", True), ((0, 1), "", False),
                                               ((0, 1), "broker allow user 200000 with user 300000 port 7100", True)])
def test_user_namespaces(run, vmad, podman, feed, maps, meet):
    """Users are the host's: root of two containers is one user if both have the same numbers."""
    maps = [[word for kind in "ug" for word in (f"--{kind}idmap", f"0:{MAPS[number]}:65536")] for number in maps]
    server = serve(podman, "--ip", SERVER, *maps[0])
    client = ask(podman, feed, SERVER, *maps[1])
    if meet:
        accelerated(run, feed, server, client)
        return
    run.wait_until(lambda: all(f"of user {user} asks the broker" in vmad.proc.stdout() for user in MAPS), "both to ask", proc=client)
    feed.go_on()
    for proc in client, server:
        assert proc.ok().log().accelerated(PORT) == 0
    assert "are introduced" not in vmad.proc.stdout()
