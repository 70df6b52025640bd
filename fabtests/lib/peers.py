# SPDX-License-Identifier: BSD-2-Clause
"""Starting both sides of a test program of ours (sockets/programs): they get a control channel to each other."""

import difflib
import socket

import pytest

from . import build, patience, runner


def start(run, pair, program: str, *args, offload: bool = False, env=None, server_options=None, client_options=None):
    """Returns (server, client). `offload`: Peer::offload() waits for acceleration where both sides have the library.
    The options go to Runner.start of one side."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    procs = []
    for role, end, vma, options in (("server", ends[0], pair.server, server_options),
                                    ("client", ends[1], pair.client, client_options)):
        options = dict(options or {})
        argv = options.pop("argv", [build.program(program)])
        side_env = dict(env or {})
        if pair.both and offload:
            side_env["FABTEST_LIFT"] = "1"
        side_env.update(options.pop("env", {}))
        procs.append(run.start(role, [*argv, role, "--control", end.fileno(), *args], vma=vma, mode=pair.mode,
                               env=side_env, pass_fds=[end.fileno()], **options))
    for end in ends:
        end.close()
    return procs


def run_both(run, pair, program: str, *args, timeout=runner.TIMEOUT, **options):
    """Both sides must end with exit status 0, the first of them in time."""
    server, client = start(run, pair, program, *args, **options)
    deadline = patience.Deadline(timeout)
    assert runner.wait_for_end([server.popen, client.popen], deadline), f"neither side ended in {deadline}"
    if server.popen.poll() or client.popen.poll():
        for proc in (server, client):  # the other may wait for ever for one that has failed
            if not runner.wait_for_end([proc.popen], patience.Deadline()):
                proc.kill()
    for proc in (server, client):
        if not server.popen.poll() and not client.popen.poll():
            assert runner.wait_for_end([proc.popen], patience.Deadline()), f"{proc.name} did not end"
    failed = [proc for proc in (server, client) if proc.wait() != 0]
    if failed:
        said = "".join(f"{proc.name}: status {proc.popen.returncode}\n{proc.output()}\n" for proc in (server, client))
        for proc in failed:
            proc.may_fail = True
        pytest.fail(said, pytrace=False)
    return server, client


def compare(wanted, got):
    """Two transcripts of both sides ({"server": lines, "client": lines}): any difference fails the test."""
    differences = []
    for side in ("server", "client"):
        if got[side] != wanted[side]:
            differences += difflib.unified_diff(wanted[side], got[side], f"{side} on the kernel", f"{side} here",
                                                n=3, lineterm="")
    if differences:
        pytest.fail("\n".join(differences), pytrace=False)
