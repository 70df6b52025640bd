# SPDX-License-Identifier: BSD-2-Clause
"""OpenSSH's client and server, and rsync, over loopback: the same bytes and exit statuses without the library, with it, and with
VMA_SPEC=latency. sshd forks, executes itself, locks its child into a sandbox and a chroot, and passes descriptors."""

import os
import pathlib
import pwd
import shutil

import pytest

from lib import build, expect, files, pairing, ports

THREE = (pairing.KERNEL, *pairing.ACCELERATED)
pytestmark = pytest.mark.pairs(*THREE)

SSHD_CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {work}/host_key
PidFile {work}/sshd.pid
SetEnv HOME={work}
AuthorizedKeysFile {work}/key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
MaxStartups 50
Subsystem sftp internal-sftp
"""
SSH_CONFIG = """
Host there
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {work}/key
    IdentitiesOnly yes
    BatchMode yes
    StrictHostKeyChecking no
    UserKnownHostsFile {work}/known_hosts
    ExitOnForwardFailure yes
    LogLevel ERROR
"""
ECHO_ASKED = """
import random, socket, sys
for port in sys.argv[1:]:
    data = random.Random(port).randbytes(3_000_000)
    with socket.create_connection(("127.0.0.1", int(port))) as s:
        for at in range(0, len(data), 100_000):
            s.sendall(data[at:at + 100_000])
            got = b""
            while len(got) < 100_000:
                got += s.recv(100_000 - len(got))
            assert got == data[at:at + 100_000], at
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b""
print("as sent")
"""


def privilege_separation_directory():
    """sshd wants it, and only its service makes it."""
    if os.geteuid() == 0:
        pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


@pytest.fixture
def sshd(run, port, pair):
    program = build.tool("sshd")
    privilege_separation_directory()
    for name in ("host_key", "key"):
        run.run("keygen", [build.tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", run.work / name])
    user = pwd.getpwuid(os.geteuid()).pw_name
    (run.work / "sshd_config").write_text(SSHD_CONFIG.format(port=port, work=run.work))
    (run.work / "ssh_config").write_text(SSH_CONFIG.format(port=port, work=run.work, user=user))
    server = run.start("server", [program, "-D", "-e", "-f", run.work / "sshd_config"], vma=pair.server, mode=pair.mode)
    run.wait_port(port, server)
    yield server
    server.stop()
    assert "fatal" not in server.stderr() and "error" not in server.stderr(), server.stderr()


def ssh(run, pair, name, *arguments, program="ssh", **options):
    return run.start(name, [build.tool(program), "-F", run.work / "ssh_config", *arguments], vma=pair.client, mode=pair.mode,
                     **options)


def test_command(run, pair, port, sshd):
    """A pipeline of 8 MB there and back, its exit status, and its error output."""
    sent = files.random_file(run.work / "sent", 8 << 20)
    client = ssh(run, pair, "client", "there", "cat; echo said >&2; exit 7", stdin=(run.work / "sent").open("rb"),
                 stdout=(run.work / "back").open("wb"))
    assert client.fails() == 7
    assert client.stderr() == "said\n"
    assert files.sha256(run.work / "back") == sent
    sshd.stop()
    expect.acceleration(pair, port, sshd, client, offloaded=False)


def test_copies(run, pair, sshd):
    """sftp's commands, and scp both ways."""
    sums = {name: files.random_file(run.work / name, size) for name, size in (("large", 12 << 20), ("small", 777), ("none", 0))}
    (run.work / "over").mkdir()
    batch = run.work / "batch"
    batch.write_text(f"cd {run.work}/over\n" + "".join(f"put {run.work}/{name}\n" for name in sums) + "ls -l\nmkdir inner\n"
                     f"rename small inner/smaller\nget large {run.work}/back\nchmod 600 large\n!true\n")
    ssh(run, pair, "sftp", "-b", batch, "there", program="sftp").ok()
    assert files.sha256(run.work / "back") == sums["large"] == files.sha256(run.work / "over" / "large")
    assert files.sha256(run.work / "over" / "inner" / "smaller") == sums["small"]
    assert (run.work / "over" / "none").stat().st_size == 0 and (run.work / "over" / "large").stat().st_mode & 0o777 == 0o600
    ssh(run, pair, "scp", "-pr", f"there:{run.work}/over", run.work / "copied", program="scp").ok()
    ssh(run, pair, "scp", run.work / "copied" / "large", f"there:{run.work}/again", program="scp").ok()
    assert files.sha256(run.work / "again") == sums["large"]


def test_forwarding(run, pair, port, sshd):
    """-L and -R to a server that echoes, several connections at a time through one."""
    echo, left, right = (ports.free_port() for _ in range(3))
    server = run.start("echo", [build.tool("socat"), f"TCP4-LISTEN:{echo},fork,reuseaddr", "PIPE"], vma=pair.server, mode=pair.mode)
    run.wait_port(echo, server)
    tunnel = ssh(run, pair, "tunnel", "-N", "-L", f"127.0.0.1:{left}:127.0.0.1:{echo}", "-R", f"127.0.0.1:{right}:127.0.0.1:{echo}",
                 "there")
    run.wait_port(left, tunnel)
    run.wait_port(right, tunnel)
    asking = [run.start("asks", ["/usr/bin/python3", "-c", ECHO_ASKED, left, right], vma=pair.client, mode=pair.mode)
              for _ in range(3)]
    for one in asking:
        assert one.ok().stdout() == "as sent\n"
    tunnel.stop()
    server.stop()


def test_shared_connection(run, pair, sshd):
    """Sessions of other processes over one connection: they pass their descriptors to the one that has it."""
    control = ["-o", f"ControlPath={run.work}/control"]
    master = ssh(run, pair, "master", "-M", "-N", *control, "there")
    run.wait_until((run.work / "control").exists, "the control socket", proc=master)
    sent = files.random_file(run.work / "sent", 1 << 20)
    sessions = [ssh(run, pair, "session", *control, "there", f"cat {run.work}/sent; exit {number}",
                    stdout=(run.work / f"got{number}").open("wb")) for number in range(1, 5)]
    for number, session in enumerate(sessions, 1):
        assert session.fails() == number
        assert files.sha256(run.work / f"got{number}") == sent
    ssh(run, pair, "end", *control, "-O", "exit", "there").ok()
    master.may_fail = True
    master.wait()


# ---- rsync ----------------------------------------------------------------------------------------------------------------


def tree(run):
    """Files of several sizes, a link, an empty directory."""
    source = run.work / "source"
    for number in range(60):
        place = source / f"d{number % 7}"
        place.mkdir(parents=True, exist_ok=True)
        files.random_file(place / f"f{number}", [0, 1, 700, 66_000, 1 << 20][number % 5] + number)
    (source / "empty").mkdir()
    (source / "link").symlink_to("d1/f1")
    return source


def contents(place):
    return {str(path.relative_to(place)): os.readlink(path) if path.is_symlink() else files.sha256(path)
            for path in place.rglob("*") if path.is_symlink() or path.is_file()}


def rsync(run, pair, *arguments):
    return run.run("client", [build.tool("rsync"), "-a", "--checksum", "--delete", *arguments], vma=pair.client, mode=pair.mode)


def there_and_back(run, pair, far, *options):
    """A copy to `far`, a change of some parts of files, the difference, and a copy back."""
    source = tree(run)
    rsync(run, pair, *options, f"{source}/", far)
    with (source / "d4" / "f4").open("r+b") as changed:
        changed.seek(500_000)
        changed.write(b"changed here")
    (source / "d0" / "f7").unlink()
    client = rsync(run, pair, *options, "--stats", "--no-whole-file", f"{source}/", far)
    assert "Number of regular files transferred: 1" in client.stdout(), client.stdout()
    rsync(run, pair, *options, far, run.work / "back")
    assert contents(source) == contents(run.work / "there") == contents(run.work / "back")
    return client


def test_rsync_daemon(run, pair, port):
    (run.work / "there").mkdir()
    owner = f"uid = {os.geteuid()}\ngid = {os.getegid()}\n" if os.geteuid() == 0 else ""
    (run.work / "rsyncd.conf").write_text(f"use chroot = no\nmunge symlinks = no\nlog file = {run.work}/rsyncd.log\n{owner}"
                                          f"[there]\npath = {run.work}/there\nread only = no\n")
    server = run.start("server", [build.tool("rsync"), "--daemon", "--no-detach", "--address=127.0.0.1", f"--port={port}",
                                  f"--config={run.work}/rsyncd.conf"], vma=pair.server, mode=pair.mode)
    run.wait_port(port, server)
    client = there_and_back(run, pair, f"rsync://127.0.0.1:{port}/there/")
    server.stop()
    expect.acceleration(pair, port, server, client, offloaded=False)


def test_rsync_over_ssh(run, pair, sshd):
    (run.work / "there").mkdir()
    there_and_back(run, pair, f"there:{run.work}/there/", "-e", f"{shutil.which('ssh')} -F {run.work}/ssh_config")
