# SPDX-License-Identifier: BSD-2-Clause
"""Containers of a user who is not root: a user namespace with the user's own numbers, and networks inside of it."""

import pytest

from lib.podman import Podman
from lib.talk import PORT, accelerated, ask, ask_from_host, serve


@pytest.fixture
def podman(run, machine):
    return Podman(run, machine, rootless=True)


SERVER = "10.89.0.10"


def test_a_pod(run, podman, feed):
    podman.do("pod", "create", "--name", "pod", "--network", "none")
    server = serve(podman, "--pod", "pod", address="127.0.0.1")
    accelerated(run, feed, server, ask(podman, feed, "127.0.0.1", "--pod", "pod"), introduced=False)


def test_two_containers(run, vmad, podman, feed):
    podman.do("network", "create", "--subnet", "10.89.0.0/24", "--disable-dns", "net")
    server = serve(podman, "--network", "net", "--ip", SERVER)
    accelerated(run, feed, server, ask(podman, feed, SERVER, "--network", "net"))


def test_a_published_port(run, vmad, machine, podman, feed):
    """It ends at a proxy of podman's, which has two connections that are none of vmad's business: both stay on the kernel, and work."""
    podman.do("network", "create", "--subnet", "10.89.0.0/24", "--disable-dns", "net")
    server = serve(podman, "--network", "net", "--ip", SERVER, "--publish", f"8080:{PORT}")
    client = ask_from_host(run, machine, podman, feed, "127.0.0.1", 8080, lift=False)
    client.ok()
    server.ok()
    for proc in client, server:
        assert proc.log().not_accelerated() and proc.log().accelerated() == 0
