# SPDX-License-Identifier: BSD-2-Clause
"""podman's own seccomp profile, which each container has that asks for no other, and stricter ones."""

import json
import pathlib
import platform

import pytest

from lib.talk import PORT, PYTHON, accelerated, ask, serve

SERVER = "10.88.0.10"
PROFILE = pathlib.Path("/usr/share/containers/seccomp.json")
PROBE = pathlib.Path(__file__).parent / "programs/probe.py"
FILTERED = "Seccomp:\t2\n"


@pytest.fixture
def refusing(work):
    """refusing(call): an option for a profile that refuses this call besides."""
    def make(call):
        profile = json.loads(PROFILE.read_text(encoding="utf-8"))
        for rule in profile["syscalls"]:
            rule["names"] = [name for name in rule["names"] if name != call]
        profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
        profile["syscalls"].append({"names": [call], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "args": []})
        made = work / f"no-{call}.json"
        made.write_text(json.dumps(profile), encoding="utf-8")
        return f"--security-opt=seccomp={made}"
    return make


def test_the_default(run, vmad, machine, podman, feed):
    server = serve(podman, "--ip", SERVER)
    client = ask(podman, feed, SERVER)
    client.wait_log(lambda log: log.accelerated(PORT), "the client to be accelerated")
    for name in "server", "client":
        assert FILTERED in machine.file(f"/proc/{podman.process(name)}/status").read_text(encoding="utf-8")
    accelerated(run, feed, server, client)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of system calls are x86_64's")
def test_what_the_default_refuses(podman):
    said = json.loads(podman.start("probe", [PYTHON, "-B", PROBE], vma=False).ok().stdout())
    assert {name: error for name, error in said.items() if error is not None} == {"kcmp": "EPERM", "io_uring_setup": "ENOSYS"}
    assert len(said) > 2


@pytest.mark.parametrize("call", ["kcmp", "io_uring_setup", "process_vm_readv", "pidfd_open"])
def test_calls_that_it_does_without(run, vmad, podman, feed, refusing, call):
    """The default refuses the first two."""
    option = refusing(call)
    accelerated(run, feed, serve(podman, "--ip", SERVER, option), ask(podman, feed, SERVER, option))


@pytest.mark.parametrize("call", ["memfd_create", "eventfd2", "recvmsg"])
def test_calls_that_it_needs(vmad, podman, feed, refusing, call):
    """The connection stays on the kernel, and the log says for which call."""
    server = serve(podman, "--ip", SERVER, refusing(call))
    client = ask(podman, feed, SERVER, lift=False)
    client.ok()
    server.ok()
    for proc in server, client:
        assert proc.log().accelerated(PORT) == 0
    assert any(call in line for line in server.log().lines if "seccomp" in line or "filter" in line), server.log().not_accelerated()
