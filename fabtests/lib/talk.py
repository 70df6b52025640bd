# SPDX-License-Identifier: BSD-2-Clause
"""Two programs that talk to each other, each perhaps in a container: an echo, and who looks at each byte of it."""

from . import build

USERS = build.TOP / "fabtests/sockets/programs/users.py"
PYTHON = "/usr/bin/python3"
PORT = 7100
INTRODUCED = "introduced by vmad"


def serve(podman, *options, name="server", address="0.0.0.0", **how):
    return podman.start(name, [PYTHON, "-B", USERS, "serve", address, PORT], *options, **how).wait_output("ready")


def ask(podman, feed, address, *options, name="client", port=PORT, lift=True, **how):
    """Asks until `feed` goes on, or as often as it takes."""
    env = {"FABTEST_LIFT": "1"} if lift else {}
    return podman.start(name, [PYTHON, "-B", USERS, "ask", address, port], *options, env=env, stdin=feed.file, **how)


def ask_from_host(run, machine, podman, feed, address, port, lift=True):
    """The same, by a process of the machine that is in no container."""
    env = podman.settings("client", "latency") | ({"FABTEST_LIFT": "1"} if lift else {})
    command = machine.command("env", *(f"{what}={value}" for what, value in env.items()), PYTHON, "-B", USERS, "ask", address, port)
    return run.start("client", command, stdin=feed.file)


def accelerated(run, feed, server, client, ports=(PORT, PORT), introduced=True):
    """Waits for both, has the client end, and is sure of what was said."""
    for proc, port in zip((server, client), ports):
        run.wait_until(lambda proc=proc, port=port: proc.log().accelerated(port) > 0 or not proc.alive(), f"{proc.name} to be accelerated")
    feed.go_on()
    for proc, port in zip((client, server), reversed(ports)):
        assert proc.ok().log().accelerated(port) > 0, proc.log().not_accelerated()
        assert any(INTRODUCED in line for line in proc.log().lines) == introduced
