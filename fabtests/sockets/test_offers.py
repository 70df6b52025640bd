# SPDX-License-Identifier: BSD-2-Clause
"""How the two ends of a connection find each other: whom an offer is of is proved, and nobody waits for another process."""

import os
import pathlib
import re
import signal
import stat

import pytest

from lib import build

PROGRAM = pathlib.Path(__file__).parent / "programs/offers.py"
PYTHON = "/usr/bin/python3"
NOBODY = 65534
ENDS = [PYTHON, "-B", PROGRAM.with_name("containers.py")]


def start(run, name, *args, **more):
    return run.start(name, [PYTHON, "-B", PROGRAM, name, *args], **more)


def port_of(proc):
    proc.wait_output(".\n")
    return int(re.search(r"port (\d+)\.", proc.stdout()).group(1))


def offer_of(run, port):
    """Its name and what it says, as soon as it is there."""
    wanted = re.compile(rf"o-.*{port:04x}-[0-9a-f]*$")
    found = run.wait_until(lambda: [p for p in run.shm.glob("o-*") if wanted.search(p.name)], f"the offer of port {port}")
    return found[0]


def test_a_copied_offer(run, work, port):
    """Of a program that nobody may trace another one of the same user gets nothing by leaving its own offer under the other's name."""
    fifos = [work / name for name in ("to_victim", "to_plain", "to_plain_at_last", "to_thief", "to_victim_of_thief")]
    for fifo in fifos:
        os.mkfifo(fifo)
    victim = start(run, "victim", port, fifos[0], fifos[4], vma=True).wait_output("ready")
    plain = start(run, "plain", port, *fifos[1:3])
    victim.wait_output("first answered")
    thief = start(run, "thief", port, fifos[3], vma=True)
    offer = offer_of(run, port_of(thief))
    fifos[3].write_bytes(b"")
    thief.wait_output("sent all")
    fifos[4].write_bytes(b"")
    victim.wait_output("second answered")
    thief.wait_output("answered")
    forged = run.shm / offer.name.replace(f"{port_of(thief):04x}-", f"{port_of(plain):04x}-", 1)
    assert forged != offer
    os.symlink(os.readlink(offer), forged)
    for fifo in fifos[:2]:
        fifo.write_bytes(b"")
    run.wait_until(lambda: any("holds the other end" in text for proc in (victim, thief) for text in proc.log().at_level("WARNING")),
                   "somebody to take the offer")
    fifos[2].write_bytes(b"")
    for proc in plain, victim, thief:
        proc.ok()
    assert victim.log().accelerated(port) == 0


def become_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


@pytest.mark.parametrize("user", ["this", "nobody"])
def test_who_may_not_be_traced(run, shm, port, user):
    """Showing what one holds takes no privilege and no right to trace: neither of these can look into the other, nor anybody into them."""
    more = {}
    if user == "nobody":
        if os.geteuid() != 0:
            pytest.skip("only root can become somebody else")
        os.chown(shm, NOBODY, NOBODY)
        more["preexec"] = become_nobody
    server = start(run, "untraced", "serve", "stream", port, vma=True, mode="latency", **more).wait_output("ready")
    start(run, "untraced", "ask", "stream", port, vma=True, mode="latency", env={"FABTEST_LIFT": "1"}, **more).ok()
    assert server.ok().log().accelerated(port) > 0, server.log().not_accelerated()


def test_who_is_stopped_with_the_lock(run, port):
    """A stopped process of the user that has the directory's lock holds up nobody."""
    holder = start(run, "locks", run.shm)
    holder.wait_output("locked")
    run.wait_until(lambda: pathlib.Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it to be stopped")
    server = run.start("server", [*ENDS, "serve", "stream", port], vma=True, mode="latency").wait_output("ready")
    run.run("client", [*ENDS, "ask", "stream", port], vma=True, mode="latency", env={"FABTEST_LIFT": "1"})
    assert server.ok().log().accelerated(port) > 0, server.log().not_accelerated()
    holder.send_signal(signal.SIGCONT)
    holder.ok()


def test_files_of_a_user(run, work, port):
    """Nobody else reads what counts a user's connections, nor enters the directory, whatever the umask."""
    nothing = lambda: os.umask(0) and None
    run.run("pair", [build.program("sockets/programs/one_process")], vma=True, mode="latency", preexec=nothing,
            env={"VMA_SHM_DIR": str(work / "made"), "FABTEST_LIFT": "1"})
    assert stat.S_IMODE((work / "made").stat().st_mode) == 0o700
    victim = start(run, "victim", port, work / "none", vma=True, preexec=nothing).wait_output("ready")
    assert stat.S_IMODE((run.log_dir / f"vmastat.{victim.pid}").stat().st_mode) == 0o600
    victim.kill()


@pytest.mark.parametrize("owner", [0, NOBODY], ids=["root", "nobody"])
def test_the_directory_is_made_by_another_user(run, owner):
    """Whoever has the name first can't keep others from being accelerated: they have a place that is theirs alone."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory of another user")
    user = NOBODY - owner
    place = "/run/vma-0" if user == 0 else f"/run/user/{user}"
    script = f"""set -e
        for folder in /dev/shm /run; do mount -t tmpfs -o mode=1777 none $folder; done
        mkdir -m 755 /dev/shm/vma-{user} && chown {owner} /dev/shm/vma-{user}
        [ {user} = 0 ] || {{ mkdir -p -m 755 /run/user; mkdir -m 700 {place}; chown {user} {place}; }}
        setpriv --reuid={user} --clear-groups "$@"
        ls -ld /dev/shm/vma-{user} {place if user == 0 else place + "/vma"}"""
    proc = run.run("pairs", ["unshare", "--mount", "sh", "-c", script, "sh", "env", f"LD_PRELOAD={build.preload()}", PYTHON, "-B", PROGRAM, "pairs"],
                   mode="latency", env={"VMA_SHM_DIR": "", "VMA_TRACELEVEL": "debug", "VMA_SPEC": "latency", "VMA_LOG_FILE": str(run.log_dir / "pairs.%d.log")})
    assert proc.log().accelerated() > 0, proc.log().not_accelerated()
    assert "drwx------" in proc.stdout()
