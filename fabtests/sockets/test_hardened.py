# SPDX-License-Identifier: BSD-2-Clause
"""Programs that a service manager has hardened: each of systemd's switches by itself, as lib/places/hardened.py makes it, for both sides and for the
server alone. None changes what they do; those that cost acceleration are in this table, in doc/sandboxes.md and in the manual page."""

import os
import pathlib
import subprocess

import pytest

from lib import build, pairing, peers
from lib.places import hardened

PROGRAM = "sockets/programs/sandbox"
RUNNER = pathlib.Path(hardened.__file__)
PLAN = ("running", "never", "kill")

# Switch -> whether connections are accelerated where both sides have it, and where only the server does.
ACCELERATED = {name: (True, True) for name in hardened.SWITCHES}
ACCELERATED |= {name: (False, False) for name in (
    "SystemCallFilter=@system-service,~@ipc", "SystemCallFilter=@system-service,~@ipc,EPERM", "SystemCallFilter=@system-service,~clone",
    "RestrictAddressFamilies=AF_INET,AF_INET6,AF_UNIX", "RestrictAddressFamilies=AF_INET,AF_INET6,AF_NETLINK",
    "RestrictAddressFamilies=AF_INET,AF_INET6", "PrivateIPC", "InaccessiblePaths=/dev/shm", "ReadOnlyPaths=/dev/shm", "Landlock",
    "User,LimitNPROC=1")}
ACCELERATED |= {
    "User": (True, False),  # whom the client trusts is its own user
    "InaccessiblePaths=/proc": (None, None),  # some of it: it does not know who holds a socket too
    "LimitAS=96M": (None, None),  # as far as it reaches
    "LimitFSIZE=64K": (None, None)}


def launcher(run, switch):
    return ["/usr/bin/python3", "-B", RUNNER, run.work, switch, "--", build.program(PROGRAM)]


def options(run, pair, switch, sides):
    env = {"LD_PRELOAD": "", "HARDENED_PRELOAD": build.preload()} if pair.both else {}
    return {f"{side}_options": {"argv": launcher(run, switch), "env": env} for side in sides}


def available(run, switch):
    """Skips where the switch needs what this machine has not, as a privilege."""
    tried = subprocess.run([*launcher(run, switch)[:-1], "/bin/true"], capture_output=True, text=True, check=False)
    if tried.returncode == hardened.NOT_HERE:
        pytest.skip(f"{switch}: {tried.stderr.strip()}")


@pytest.mark.parametrize("sides", [("server", "client"), ("server",)], ids="-".join)
@pytest.mark.parametrize("switch", hardened.SWITCHES)
def test_switch(run, switch, sides):
    available(run, switch)
    if switch.startswith("User"):
        number = hardened.user_of_world()
        os.chown(run.shm, number, number)
    accelerated = ACCELERATED[switch][len(sides) == 1]
    wanted = {}
    got = {}
    for pair, said in ((pairing.KERNEL, wanted), (pairing.VMA_LATENCY, got)):
        procs = peers.run_both(run, pair, PROGRAM, *PLAN, offload=accelerated is True, **options(run, pair, switch, sides))
        for side, proc in zip(("server", "client"), procs):
            said[side] = proc.stdout().splitlines()
    peers.compare(wanted, got)
    assert wanted["client"] == ["all came back"]
    if accelerated is None:
        return
    assert [proc.log().accelerated() > 0 for proc in procs] == [accelerated] * 2, [p.log().not_accelerated() for p in procs]
